//! Holds the direction of dependencies that docs/architecture.md section 2 lays down.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Each crate, with those of our crates that it may use outside of tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("proto", &[]),
    ("net", &[]),
    ("features", &["core", "proto"]),
    ("canary", &["core", "proto"]),
    ("trace", &["core"]),
    ("oci", &["core", "proto"]),
    ("store", &["core", "proto"]),
    ("run", &["core"]),
    ("rpc", &["proto", "net"]),
    ("tfserving", &["core", "proto", "rpc", "run", "store", "trace"]),
    ("trials", &["core", "oci", "features", "canary"]),
    ("lifecycle", &["core", "oci", "store", "run", "features", "canary", "trace", "trials"]),
    ("ui", &["core", "proto", "lifecycle"]),
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
            "run",
            "tfserving",
            "lifecycle",
            "trace",
            "trials",
            "ui",
        ],
    ),
    ("engine", &["proto", "net"]),
    ("tools", &["proto", "core", "features", "canary", "oci", "store", "run", "lifecycle"]),
    ("bench", &["proto", "core", "features", "rpc", "tfserving"]),
    ("cli", &["server", "engine", "tools", "bench", "canary", "core", "run", "store", "tfserving"]),
    (
        "testkit",
        &[
            "core",
            "proto",
            "features",
            "canary",
            "oci",
            "store",
            "run",
            "lifecycle",
            "server",
            "engine",
            "tools",
        ],
    ),
];

/// Crates without a runtime, and the runtimes and network libraries that they must not depend on.
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
