//! Runs the tests of a binary again for each vector width that is narrower than this processor's.

use std::{
    arch::is_x86_feature_detected as has,
    env,
    io::{Write as _, stderr},
    process::Command,
};

use outrigger_vectors::VARIABLE;

#[test]
fn narrower_vectors_pass_the_same_tests() {
    if env::var_os(VARIABLE).is_some() {
        return;
    }
    report_untested_paths();
    for bytes in ["32", "16"] {
        let mut tests = Command::new(env::current_exe().expect("this binary"));
        tests.env(VARIABLE, bytes).args(["--skip", "narrower_vectors_pass_the_same_tests"]);
        let done = tests.output().expect("this binary runs");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "with vectors of {bytes} bytes: {said}");
        assert!(said.contains("test result: ok") && !said.contains(" 0 passed"), "{said}");
    }
}

/// Prints the paths that no test takes on this processor.
fn report_untested_paths() {
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512vl");
    for (name, present) in [
        ("AVX2", has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt")),
        ("AVX-512", avx512),
        ("AVX-512 VBMI2", avx512 && has!("avx512vbmi2")),
    ] {
        if !present {
            // Written to stderr directly: the test harness would capture the output of print
            // macros.
            let _ = writeln!(stderr(), "NOT TESTED: this processor has no {name}");
        }
    }
}
