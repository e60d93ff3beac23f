//! Four numbers that are added and multiplied at once.

use std::ops::{Add, Mul, Sub};

/// f32 or f64, in which sums are taken.
pub(crate) trait Number:
    Copy
    + Default
    + PartialOrd
    + From<f32>
    + Into<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    /// Four of them.
    type Quad: Quad<Number = Self>;

    /// The nearest number.
    fn nearest(number: f64) -> Self;
}

/// Four numbers. Each operation rounds as for single numbers.
pub(crate) trait Quad: Copy + Add<Output = Self> + Mul<Output = Self> {
    type Number;

    fn of(numbers: [f32; 4]) -> Self;

    fn to_array(self) -> [Self::Number; 4];
}

impl Number for f32 {
    type Quad = Single;

    fn nearest(number: f64) -> Self {
        number as Self
    }
}

impl Number for f64 {
    type Quad = Double;

    fn nearest(number: f64) -> Self {
        number
    }
}

pub(crate) use single::Single;

/// Vectors that every x86-64 processor has. Of arrays, the compiler keeps sums in memory.
#[cfg(target_arch = "x86_64")]
mod single {
    use std::arch::x86_64::{__m128, _mm_add_ps, _mm_mul_ps, _mm_setr_ps, _mm_storeu_ps};

    use super::{Add, Mul, Quad};

    #[derive(Clone, Copy)]
    pub(crate) struct Single(__m128);

    impl Quad for Single {
        type Number = f32;

        #[inline(always)]
        fn of([a, b, c, d]: [f32; 4]) -> Self {
            // SAFETY: every x86-64 processor has SSE.
            Self(unsafe { _mm_setr_ps(a, b, c, d) })
        }

        #[inline(always)]
        fn to_array(self) -> [f32; 4] {
            let mut numbers = [0.0; 4];
            // SAFETY: as above, and the array has the length of the vector.
            unsafe { _mm_storeu_ps(numbers.as_mut_ptr(), self.0) };
            numbers
        }
    }

    impl Add for Single {
        type Output = Self;

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm_add_ps(self.0, other.0) })
        }
    }

    impl Mul for Single {
        type Output = Self;

        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm_mul_ps(self.0, other.0) })
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod single {
    pub(crate) type Single = super::Array<f32>;
}

pub(crate) type Double = Array<f64>;

/// Numbers that the compiler makes vectors of.
#[derive(Clone, Copy)]
pub(crate) struct Array<N>([N; 4]);

impl<N: Copy + From<f32> + Add<Output = N> + Mul<Output = N>> Quad for Array<N> {
    type Number = N;

    #[inline(always)]
    fn of(numbers: [f32; 4]) -> Self {
        Self(numbers.map(N::from))
    }

    #[inline(always)]
    fn to_array(self) -> [N; 4] {
        self.0
    }
}

impl<N: Copy + Add<Output = N>> Add for Array<N> {
    type Output = Self;

    #[inline(always)]
    fn add(self, Self(other): Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] + other[at]))
    }
}

impl<N: Copy + Mul<Output = N>> Mul for Array<N> {
    type Output = Self;

    #[inline(always)]
    fn mul(self, Self(other): Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] * other[at]))
    }
}
