//! Notes which revision this is and what compiles it, for the metrics.

use std::{
    env,
    process::{Command, Stdio},
};

const UNKNOWN: &str = "unknown";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=OUTRIGGER_REVISION");
    // An image is built where there is no repository: it says so itself.
    let revision = env::var("OUTRIGGER_REVISION").ok().or_else(head);
    println!("cargo:rustc-env=OUTRIGGER_REVISION={}", revision.as_deref().unwrap_or(UNKNOWN));
    let rustc = env::var("RUSTC").ok().and_then(|rustc| said(&rustc, &["--version"]));
    // As in `rustc 1.90.0 (1159e78c4 2025-09-14)`.
    let version = rustc.as_deref().and_then(|text| text.split(' ').nth(1));
    println!("cargo:rustc-env=OUTRIGGER_RUSTC={}", version.unwrap_or(UNKNOWN));
}

/// The revision that is checked out.
fn head() -> Option<String> {
    // Not that of a repository which merely surrounds the source.
    said("git", &["ls-files", "--error-unmatch", "build.rs"])?;
    // It is written to by whatever moves the head.
    let log = said("git", &["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={log}");
    said("git", &["rev-parse", "--short=12", "HEAD"])
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(done.stdout).ok()?;
    let text = text.trim();
    (done.status.success() && !text.is_empty()).then(|| text.to_owned())
}
