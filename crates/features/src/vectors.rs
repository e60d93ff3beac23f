//! Functions compiled several times, for the vector widths of several generations of
//! processors.
//!
//! Releases run on every x86-64 processor, so the compiler uses only vectors of 16 bytes, which all
//! of them have. Functions for which that is slow are compiled again for vectors of 32 and of 64
//! bytes, and the widest that the processor has are used at run time.
//!
//! `OUTRIGGER_VECTORS=32` or `=16` forces narrower vectors, so that a machine with AVX-512 tests
//! the code for processors without it too.

/// Defines functions that call another function with the same arguments, compiled for each vector
/// width. The called function must be `#[inline(always)]`, so that it is compiled for that width.
macro_rules! widest {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident$(<const $count:ident: usize>)?(
            $($argument:ident: $kind:ty),*
        ) -> $result:ty = $body:path;
    )*) => {$(
        $(#[$attribute])*
        #[inline]
        $visibility fn $name$(<const $count: usize>)?($($argument: $kind),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512vl")]
                fn of_64$(<const $count: usize>)?($($argument: $kind),*) -> $result {
                    $body($($argument),*)
                }
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
                fn of_32$(<const $count: usize>)?($($argument: $kind),*) -> $result {
                    $body($($argument),*)
                }
                match $crate::vectors::width() {
                    // SAFETY: the processor has vectors of this width.
                    $crate::vectors::Width::Of64 => return unsafe { of_64($($argument),*) },
                    // SAFETY: as above.
                    $crate::vectors::Width::Of32 => return unsafe { of_32($($argument),*) },
                    $crate::vectors::Width::Of16 => {}
                }
            }
            $body($($argument),*)
        }
    )*};
}

pub(crate) use widest;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Width, width};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::{arch::is_x86_feature_detected as has, env, sync::LazyLock};

    /// The width of the widest vectors, in bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Width {
        Of16,
        /// With AVX2, as x86-64-v3.
        Of32,
        /// With AVX-512, as x86-64-v4.
        Of64,
    }

    /// The width of this processor's vectors, or the narrower one that `OUTRIGGER_VECTORS` sets.
    #[inline]
    pub(crate) fn width() -> Width {
        static WIDTH: LazyLock<Width> = LazyLock::new(|| detect().min(limit()));
        *WIDTH
    }

    fn limit() -> Width {
        match env::var("OUTRIGGER_VECTORS").as_deref() {
            Ok("16") => Width::Of16,
            Ok("32") => Width::Of32,
            _ => Width::Of64,
        }
    }

    fn detect() -> Width {
        if !(has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt")) {
            Width::Of16
        } else if has!("avx512f") && has!("avx512bw") && has!("avx512vl") {
            Width::Of64
        } else {
            Width::Of32
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn no_vectors_are_wider_than_the_environment_allows() {
            assert!(width() <= limit());
            assert_eq!(width(), detect().min(limit()));
            assert!(limit() == Width::Of64 || env::var_os("OUTRIGGER_VECTORS").is_some());
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
#[path = "../tests/support/vectors.rs"]
mod narrower;
