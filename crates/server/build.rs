//! Records the revision of the source and the compiler's version for the metrics.

use std::{
    env,
    process::{Command, Stdio},
};

const UNKNOWN: &str = "unknown";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=OUTRIGGER_REVISION");
    // An image build has no git repository, so it passes the revision in the environment.
    let revision = env::var("OUTRIGGER_REVISION").ok().or_else(head);
    println!("cargo:rustc-env=OUTRIGGER_REVISION={}", revision.as_deref().unwrap_or(UNKNOWN));
    let rustc = env::var("RUSTC").ok().and_then(|rustc| said(&rustc, &["--version"]));
    // The version is the second word, as in `rustc 1.90.0 (1159e78c4 2025-09-14)`.
    let version = rustc.as_deref().and_then(|text| text.split(' ').nth(1));
    println!("cargo:rustc-env=OUTRIGGER_RUSTC={}", version.unwrap_or(UNKNOWN));
}

/// The revision that is checked out; `None` outside of the project's own repository.
fn head() -> Option<String> {
    // A repository that merely surrounds the source does not track this file; its revision would be
    // wrong.
    said("git", &["ls-files", "--error-unmatch", "build.rs"])?;
    // Git writes this log at every change of HEAD, so cargo runs the script again.
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
