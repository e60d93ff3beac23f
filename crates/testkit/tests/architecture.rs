//! Holds the direction of dependencies that docs/architecture.md section 2 lays down.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

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
    ("linear", &["core", "run"]),
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
    let crates = metadata(MetadataCommand::new().no_deps()).packages.into_iter().map(|package| {
        let normal = package.dependencies.into_iter().filter(|d| d.kind == DependencyKind::Normal);
        (short(&package.name).to_owned(), normal.map(|d| short(&d.name).to_owned()).collect())
    });
    crates.collect()
}

fn metadata(command: &mut MetadataCommand) -> Metadata {
    command
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .env("CARGO_NET_OFFLINE", "true")
        .exec()
        .expect("cargo metadata of this workspace")
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

#[test]
fn no_dependency_needs_a_later_rust_than_the_workspace() {
    // Cargo has downloaded the dependencies for this platform only.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let for_platform = ["--filter-platform".to_owned(), platform];
    let metadata = metadata(MetadataCommand::new().other_options(for_platform));
    let ours = metadata.workspace_packages();
    let promised = ours[0].rust_version.clone().expect("a rust-version in the workspace");
    for package in &ours {
        assert_eq!(package.rust_version.as_ref(), Some(&promised), "{}", package.name);
    }
    let too_late = metadata
        .packages
        .iter()
        .filter(|package| package.rust_version.as_ref().is_some_and(|needed| *needed > promised));
    let too_late: Vec<_> = too_late.map(|package| package.id.to_string()).collect();
    assert!(too_late.is_empty(), "these need more than Rust {promised}: {too_late:?}");
}
