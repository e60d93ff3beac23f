//! Holds the direction of dependencies that docs/architecture.md section 2 lays down.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Which of our crates a crate may use outside of tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("proto", &[]),
    ("features", &["core", "proto"]),
    ("canary", &["core", "proto"]),
    ("trace", &["core"]),
    ("oci", &["core", "proto"]),
    ("store", &["core", "proto"]),
    ("net", &[]),
    ("rpc", &["proto", "net"]),
    ("backend", &["core", "proto", "rpc"]),
    ("lifecycle", &["core", "oci", "store", "backend", "features", "canary", "trace"]),
    (
        "server",
        &[
            "core",
            "proto",
            "features",
            "canary",
            "oci",
            "store",
            "net",
            "backend",
            "lifecycle",
            "trace",
        ],
    ),
    ("engine", &["proto", "net"]),
    ("tools", &["proto", "core", "features", "canary", "oci", "store", "backend", "lifecycle"]),
    ("bench", &["proto", "core", "features", "rpc", "backend"]),
    ("cli", &["server", "engine", "tools", "bench", "canary"]),
    (
        "testkit",
        &[
            "core",
            "proto",
            "features",
            "canary",
            "oci",
            "store",
            "backend",
            "lifecycle",
            "server",
            "engine",
            "tools",
        ],
    ),
];

/// What the sync parts must stay free of.
const SYNC: &[&str] = &["core", "features", "canary", "store"];
const ASYNC: &[&str] = &["tokio", "tonic", "hyper", "reqwest", "kube"];

/// Each of our crates with the names it depends on outside of tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let metadata = MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata of this workspace");
    let crates = metadata.packages.into_iter().map(|package| {
        let normal = package.dependencies.into_iter().filter(|d| d.kind == DependencyKind::Normal);
        (short(&package.name).to_owned(), normal.map(|d| short(&d.name).to_owned()).collect())
    });
    crates.collect()
}

fn short(name: &str) -> &str {
    name.strip_prefix("outrigger-").unwrap_or(name)
}

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<_, BTreeSet<_>> =
        ALLOWED.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    let crates = dependencies();
    for (name, uses) in &crates {
        let permitted = allowed.get(name.as_str()).unwrap_or_else(|| panic!("{name} has no place"));
        for used in uses.iter().filter(|used| crates.contains_key(*used)) {
            assert!(permitted.contains(used.as_str()), "{name} must not depend on {used}");
        }
    }
}

#[test]
fn sync_parts_know_no_runtime() {
    let crates = dependencies();
    for name in SYNC {
        for forbidden in ASYNC {
            assert!(!crates[*name].contains(*forbidden), "{name} must not depend on {forbidden}");
        }
    }
}
