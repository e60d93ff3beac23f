//! The formulas of factorisation machines (Rendle, 2010), over the features of one row.
//!
//! With `S_f` as the sum of `v_f x` over all features, the cross terms of a row are
//! `0.5 sum_f (S_f^2 - sum (v_f x)^2)`.

use std::ops::{Add, Mul, Sub};

use crate::{
    rows::{Output, Precision},
    table::{NO_FEATURE, Table, Weights},
};

/// The features of a row that the table has.
#[derive(Clone, Copy)]
pub(crate) struct Features<'a> {
    /// Numbers in the table, and weights in the row.
    pub(crate) weighted: &'a [(u32, f32)],
    /// Numbers of the features of leaves, whose weight is 1, and [`NO_FEATURE`] for those of
    /// unmapped leaves.
    pub(crate) leaves: &'a [u32],
}

/// f32 or f64, in which sums are taken.
trait Number:
    Copy
    + Default
    + PartialOrd
    + From<f32>
    + Into<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    /// The nearest number.
    fn nearest(number: f64) -> Self;
}

impl Number for f32 {
    fn nearest(number: f64) -> Self {
        number as Self
    }
}

impl Number for f64 {
    fn nearest(number: f64) -> Self {
        number
    }
}

/// Scores one row. `out` has an element for each class.
pub(crate) fn score(
    table: &Table,
    features: Features<'_>,
    output: Output,
    precision: Precision,
    out: &mut [f32],
) {
    match (table.shape.softmax, precision) {
        (false, Precision::Single) => {
            out[0] = binary(f64::from(with_norms(table, features)), output)
        }
        (false, Precision::Double) => out[0] = binary(of_class(table, features, 0), output),
        (true, Precision::Single) => softmax::<f32>(table, features, output, out),
        (true, Precision::Double) => softmax::<f64>(table, features, output, out),
    }
}

/// The output of a binary model.
fn binary(margin: f64, output: Output) -> f32 {
    match output {
        Output::Margin => margin as f32,
        Output::Value => (1.0 / (1.0 + (-margin).exp())) as f32,
    }
}

/// The outputs of a softmax model.
fn softmax<N: Number>(table: &Table, features: Features<'_>, output: Output, out: &mut [f32]) {
    let mut margins = Vec::with_capacity(out.len());
    margins.extend((0..out.len()).map(|class| of_class::<N>(table, features, class)));
    if output == Output::Value {
        let larger = |a: N, b: &N| if *b > a { *b } else { a };
        let largest = margins.iter().fold(N::nearest(f64::from(f32::MIN)), larger);
        let exponential = |margin: N| N::nearest((margin - largest).into().exp());
        margins.iter_mut().for_each(|margin| *margin = exponential(*margin));
        let sum = margins.iter().fold(N::default(), |sum, value| sum + *value);
        margins.iter_mut().for_each(|value| *value = N::nearest((*value).into() / sum.into()));
    }
    for (out, margin) in out.iter_mut().zip(margins) {
        *out = margin.into() as f32;
    }
}

/// The margin of a binary model in f32, with the operations of XGBoost Serving in their order. The
/// squares of a feature are taken together, from the norm of its vector.
fn with_norms(table: &Table, features: Features<'_>) -> f32 {
    let mut sums = WithNorms { linear: 0.0, cross: 0.0 };
    add(table, features, 0, &mut sums);
    let cross = f64::from(sums.cross) * 0.5 + f64::from(table.bias[0]);
    (f64::from(sums.linear) + cross) as f32
}

/// The margin of a class, with the operations of alphaFM and alphaFM_softmax in their order.
fn of_class<N: Number>(table: &Table, features: Features<'_>, class: usize) -> N {
    let mut margin = Margin(N::from(table.bias[class]));
    add(table, features, class, &mut margin);
    margin.0
}

/// The parts of a margin, in the order in which they are added.
trait Parts<N> {
    /// A feature with its weight `x` in the row.
    fn feature(&mut self, weights: &Weights<'_>, x: f32);

    /// A factor `f`, with the sum and the sum of squares of `v_f x`. They come after all features.
    fn factor(&mut self, sum: N, squares: N);
}

struct WithNorms {
    linear: f32,
    cross: f32,
}

impl Parts<f32> for WithNorms {
    #[inline(always)]
    fn feature(&mut self, weights: &Weights<'_>, x: f32) {
        self.linear += x * weights.weight;
        self.cross -= x * x * weights.norm;
    }

    #[inline(always)]
    fn factor(&mut self, sum: f32, _: f32) {
        self.cross += sum * sum;
    }
}

struct Margin<N>(N);

impl<N: Number> Parts<N> for Margin<N> {
    #[inline(always)]
    fn feature(&mut self, weights: &Weights<'_>, x: f32) {
        self.0 = self.0 + N::from(weights.weight) * N::from(x);
    }

    #[inline(always)]
    fn factor(&mut self, sum: N, squares: N) {
        self.0 = N::nearest(self.0.into() + 0.5 * (sum * sum - squares).into());
    }
}

/// Adds all features and factors, those of the zeros behind the vectors included. The first pass
/// over the features adds them beside the sums of the first factors, because each sum waits for its
/// last addition and they wait together.
#[inline]
fn add<N: Number>(table: &Table, features: Features<'_>, class: usize, to: &mut impl Parts<N>) {
    match table.shape.padded() {
        0 => pass::<N, 0>(table, features, class, 0, to),
        4 => pass::<N, 4>(table, features, class, 0, to),
        padded => {
            let firsts = (0..padded).step_by(8);
            firsts.for_each(|first| pass::<N, 8>(table, features, class, first, to));
        }
    }
}

/// Adds the factors from `first` on, and before them all features if `first` is 0. Each sum is taken
/// in the order of the features.
#[inline]
fn pass<N: Number, const LANES: usize>(
    table: &Table,
    features: Features<'_>,
    class: usize,
    first: usize,
    to: &mut impl Parts<N>,
) {
    let mut sums = Sums { sums: [N::default(); LANES], squares: [N::default(); LANES] };
    for (feature, x) in features.weighted {
        sums.add(table.weights(*feature, class), *x, first, to);
    }
    for feature in features.leaves {
        if *feature != NO_FEATURE {
            sums.add(table.weights(*feature, class), 1.0, first, to);
        }
    }
    for lane in 0..LANES {
        to.factor(sums.sums[lane], sums.squares[lane]);
    }
}

/// The sums of some factors, and those of their squares.
struct Sums<N, const LANES: usize> {
    sums: [N; LANES],
    squares: [N; LANES],
}

impl<N: Number, const LANES: usize> Sums<N, LANES> {
    /// Adds a feature with its weight `x` in the row to the sums of the factors from `first` on.
    #[inline(always)]
    fn add(&mut self, weights: Weights<'_>, x: f32, first: usize, to: &mut impl Parts<N>) {
        if first == 0 {
            to.feature(&weights, x);
        }
        // A reference to an array makes the compiler take all lanes at once.
        let vector: &[f32; LANES] = weights.vector[first..].first_chunk().expect("a whole step");
        let x = N::from(x);
        for (lane, value) in vector.iter().enumerate() {
            let product = N::from(*value) * x;
            self.sums[lane] = self.sums[lane] + product;
            self.squares[lane] = self.squares[lane] + product * product;
        }
    }
}
