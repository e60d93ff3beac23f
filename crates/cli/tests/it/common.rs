//! The binary as a process, and packages for it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use outrigger_testkit::saved_model::{Linear, Model, package_dir};
use serde_json::Value;

pub(crate) fn outrigger(arguments: &[&str]) -> Output {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger"));
    command.args(arguments);
    if std::env::var_os("OUTRIGGER_TENSORFLOW").is_none() {
        command.env("OUTRIGGER_TENSORFLOW", workspace.join(".venv"));
    }
    if let Some(engine) = std::env::var_os("OUTRIGGER_TESTENV_ENGINE") {
        command.env("OUTRIGGER_ENGINE", engine);
    }
    command.output().expect("the binary runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

pub(crate) fn linear() -> Linear {
    Linear { user: vec![1.0], treatment: vec![2.0, 4.0], bias: 0.5 }
}

/// Writes a package of `model` whose golden case expects `score` for (1, 1, 1).
pub(crate) fn package(scratch: &Path, model: &Model, score: f32) -> PathBuf {
    let directory = scratch.join("package");
    package_dir(&directory, model).expect("a package");
    let golden = serde_json::json!({
        "request": {"user": {"u0": 1}, "treatments": [{"features": {"t0": 1, "t1": 1}}]},
        "expected": {"scores": [score]}, "rtol": 0, "atol": 0,
    });
    fs::write(directory.join("golden.jsonl"), golden.to_string()).expect("golden cases");
    directory
}
