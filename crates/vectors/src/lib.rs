//! The width of the processor's vectors that functions may use.
//!
//! Releases run on every x86-64 processor, so functions that gain by wider vectors are compiled for
//! several generations of processors, and the best for this one are chosen at run time.
//! `OUTRIGGER_VECTORS=32` or `=16` (bytes) forces narrower vectors, so that a machine with AVX-512
//! tests the code for processors without it too.

use std::{env, sync::LazyLock};

/// The variable of the environment that limits the width.
pub const VARIABLE: &str = "OUTRIGGER_VECTORS";

/// The width of vectors, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// As every processor has them.
    Of16,
    /// With AVX2, as x86-64-v3.
    Of32,
    /// With AVX-512, as x86-64-v4.
    Of64,
}

/// The width of this processor's vectors, or the narrower one that the environment sets.
#[inline]
pub fn width() -> Width {
    static WIDTH: LazyLock<Width> = LazyLock::new(|| detect().min(limit()));
    *WIDTH
}

/// The widest vectors that the environment allows.
pub fn limit() -> Width {
    match env::var(VARIABLE).as_deref() {
        Ok("16") => Width::Of16,
        Ok("32") => Width::Of32,
        _ => Width::Of64,
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Width {
    use std::arch::is_x86_feature_detected as has;

    if !(has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt")) {
        Width::Of16
    } else if has!("avx512f") && has!("avx512bw") && has!("avx512vl") {
        Width::Of64
    } else {
        Width::Of32
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Width {
    Width::Of16
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_environment_limits_the_width() {
        assert_eq!(width(), detect().min(limit()));
        match env::var(VARIABLE).as_deref() {
            Err(_) => assert_eq!(limit(), Width::Of64),
            Ok(bytes) => {
                let expected = if bytes == "16" { Width::Of16 } else { Width::Of32 };
                return assert_eq!(limit(), expected);
            }
        }
        for bytes in ["16", "32"] {
            let mut test = Command::new(env::current_exe().expect("this binary"));
            let done = test.env(VARIABLE, bytes).output().expect("this binary runs");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        }
    }
}
