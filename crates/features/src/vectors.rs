//! Functions compiled several times, for the vector widths of several generations of
//! processors.
//!
//! Without wider ones the compiler uses only vectors of 16 bytes, which every x86-64 processor has.
//! Functions for which that is slow are compiled again for vectors of 32 and of 64 bytes.
//! [`outrigger_vectors::width`] chooses.

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
                match outrigger_vectors::width() {
                    // SAFETY: the processor has vectors of this width.
                    outrigger_vectors::Width::Of64 => return unsafe { of_64($($argument),*) },
                    // SAFETY: as above.
                    outrigger_vectors::Width::Of32 => return unsafe { of_32($($argument),*) },
                    outrigger_vectors::Width::Of16 => {}
                }
            }
            $body($($argument),*)
        }
    )*};
}

pub(crate) use widest;
#[cfg(all(test, target_arch = "x86_64"))]
#[path = "../tests/support/vectors.rs"]
mod narrower;
