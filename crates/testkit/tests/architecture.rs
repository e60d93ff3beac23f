//! Holds the direction of dependencies that docs/architecture.md section 2 lays down.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde::Deserialize;

/// Each crate, with those of our crates that it may use outside of tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("proto", &[]),
    ("net", &[]),
    ("budget", &["core"]),
    ("compression", &["core"]),
    ("features", &["core", "json", "proto", "vectors"]),
    ("feature-table", &["core", "features", "oip", "proto", "tables"]),
    ("json", &[]),
    ("oip", &["core", "json", "proto"]),
    ("canary", &["core", "proto"]),
    ("trace", &["core"]),
    ("oci", &["core", "proto", "resilience"]),
    ("store", &["core", "proto"]),
    ("run", &["budget", "core"]),
    ("batcher", &["budget", "core", "run"]),
    ("score", &["core", "features", "run"]),
    ("rpc", &["core", "proto", "net"]),
    ("tfserving", &["core", "proto", "rpc", "run", "store", "trace"]),
    ("resilience", &["core"]),
    ("dispatch", &["core", "resilience"]),
    ("oip-client", &["budget", "core", "oip", "proto", "resilience", "rpc"]),
    ("oip-engine", &["core", "oip", "oip-client", "run"]),
    ("trials", &["core", "oci", "features", "canary", "score"]),
    ("onnx", &["core", "oip", "proto", "rpc", "run"]),
    ("onnxruntime", &["core", "oip", "onnx", "proto", "run"]),
    ("forest", &["budget", "core", "fm", "run", "trees"]),
    ("tables", &["json"]),
    ("vectors", &[]),
    ("xgboost-serving", &["core", "features", "proto"]),
    ("trees", &["vectors"]),
    ("fm", &["trees"]),
    ("validation", &["core", "feature-table", "features", "proto", "score", "tables"]),
    (
        "lifecycle",
        &[
            "core", "oci", "store", "run", "features", "canary", "score", "trace", "trials",
            "budget",
        ],
    ),
    ("console", &["core"]),
    ("ui", &["core", "console", "proto", "lifecycle"]),
    (
        "server",
        &[
            "core",
            "batcher",
            "budget",
            "compression",
            "console",
            "proto",
            "features",
            "feature-table",
            "canary",
            "oci",
            "store",
            "net",
            "oip",
            "run",
            "tfserving",
            "forest",
            "lifecycle",
            "oip-client",
            "oip-engine",
            "onnx",
            "rpc",
            "score",
            "trace",
            "trials",
            "ui",
            "validation",
            "xgboost-serving",
        ],
    ),
    ("engine", &["proto", "net", "run"]),
    (
        "tools",
        &[
            "batch",
            "proto",
            "core",
            "feature-table",
            "features",
            "canary",
            "oci",
            "oip",
            "oip-client",
            "store",
            "run",
            "score",
            "lifecycle",
            "validation",
        ],
    ),
    ("batch", &["core", "dispatch", "oip", "oip-client", "resilience", "tables"]),
    ("batch-ui", &["batch", "console", "core"]),
    ("bench", &["proto", "compression", "core", "features", "oip", "rpc", "tfserving"]),
    (
        "cli",
        &[
            "server",
            "engine",
            "onnx",
            "onnxruntime",
            "tools",
            "batch",
            "batch-ui",
            "bench",
            "canary",
            "core",
            "run",
            "store",
            "tfserving",
            "validation",
        ],
    ),
    (
        "testkit",
        &[
            "budget",
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
const SYNC: &[&str] = &[
    "core",
    "compression",
    "dispatch",
    "features",
    "feature-table",
    "canary",
    "json",
    "oip",
    "resilience",
    "store",
    "tables",
    "trees",
    "fm",
    "vectors",
    "xgboost-serving",
];
const ASYNC: &[&str] = &["tokio", "tonic", "hyper", "reqwest", "kube"];

/// The part of `cargo metadata --format-version 1` that these tests read.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    rust_version: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// None of one that is used outside of tests and build scripts.
    kind: Option<String>,
}

impl Package {
    /// The oldest Rust that it compiles with.
    fn oldest_rust(&self) -> Option<[u32; 3]> {
        let mut version = [0; 3];
        for (part, text) in version.iter_mut().zip(self.rust_version.as_ref()?.split('.')) {
            *part = text.parse().expect("a version of Rust");
        }
        Some(version)
    }
}

fn metadata(options: &[&str]) -> Metadata {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")])
        .args(options)
        .output()
        .expect("cargo");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata of this workspace: {message}");
    serde_json::from_slice(&output.stdout).expect("the metadata of this workspace")
}

/// Each of our crates with the names it depends on outside of tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let crates = metadata(&["--no-deps"]).packages.into_iter().map(|package| {
        let normal = package.dependencies.into_iter().filter(|d| d.kind.is_none());
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

#[test]
fn no_dependency_needs_a_later_rust_than_the_workspace() {
    // Cargo has downloaded the dependencies for this platform only.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = metadata(&["--filter-platform", &platform]);
    let (ours, others): (Vec<_>, Vec<_>) =
        metadata.packages.iter().partition(|each| metadata.workspace_members.contains(&each.id));
    let promised = ours[0].oldest_rust().expect("a rust-version in the workspace");
    for package in ours {
        assert_eq!(package.oldest_rust(), Some(promised), "{}", package.name);
    }
    let too_late = others.iter().filter(|package| package.oldest_rust() > Some(promised));
    let too_late: Vec<_> = too_late.map(|package| &package.id).collect();
    assert!(too_late.is_empty(), "these need more than Rust {promised:?}: {too_late:?}");
}

/// Words that only TensorFlow Serving's own crate, its local stand-in and the wire types know.
const OF_ONE_ENGINE: &[&str] = &[
    "ReloadConfig",
    "GetModelStatus",
    "SavedModel",
    "saved_model",
    "laceholder",
    "SignatureDef",
    "TfServing",
];
/// The front that has the interface of XGBoost Serving, a fork of it: its callers use those words.
const FRONT: &[&str] = &["xgboost_serving", "xgboost_serving.rs"];
/// The crates that may know them, `wiring.rs` aside, which makes the engines.
const ENGINES_OWN: &[&str] = &["tfserving", "engine", "testkit", "proto", "bench", "cli"];

#[test]
fn only_tfserving_knows_tensorflow_serving() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for entry in fs::read_dir(crates).expect("the crates") {
        let path = entry.expect("a crate").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        if path.is_dir() && !ENGINES_OWN.contains(&name.as_str()) {
            sources(&path.join("src"), &mut found);
        }
    }
    assert!(
        found.is_empty(),
        "code that knows one engine belongs in its crate:\n{}",
        found.join("\n")
    );
}

/// Collects the lines of production code in `directory` that have a word of one engine.
fn sources(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("a source").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let is_test = name.ends_with("tests.rs") || name == "tests" || name == "testing.rs";
        let is_front = FRONT.contains(&name);
        if is_test || is_front || name == "wiring.rs" {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).expect("a source file in UTF-8");
            let lines = text.lines().enumerate();
            let knowing =
                lines.filter(|(_, line)| OF_ONE_ENGINE.iter().any(|word| line.contains(word)));
            found
                .extend(knowing.map(|(at, line)| format!("{}:{}: {line}", path.display(), at + 1)));
        }
    }
}
