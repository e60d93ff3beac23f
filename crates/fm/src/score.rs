//! The formulas of factorisation machines (Rendle, 2010), over the features of one row.
//!
//! With `S_f` as the sum of `v_f x` over all features, the cross terms of a row are
//! `0.5 sum_f (S_f^2 - sum (v_f x)^2)`.

use std::ops::{Add, Mul, Sub};

use crate::{
    rows::{Output, Precision},
    table::{Table, Weights},
};

/// The features of a row that the table has: their numbers in it, and their weights in the row.
pub(crate) type Features = Vec<(u32, f32)>;

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
    features: &Features,
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
fn softmax<N: Number>(table: &Table, features: &Features, output: Output, out: &mut [f32]) {
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
fn with_norms(table: &Table, features: &Features) -> f32 {
    let (mut linear, mut cross) = (0.0, 0.0);
    for (feature, x) in features {
        let Weights { weight, norm, .. } = table.weights(*feature, 0);
        linear += x * weight;
        cross -= x * x * norm;
    }
    for_each_factor::<f32>(table, features, 0, |sum, _| cross += sum * sum);
    let cross = f64::from(cross) * 0.5 + f64::from(table.bias[0]);
    (f64::from(linear) + cross) as f32
}

/// The margin of a class, with the operations of alphaFM and alphaFM_softmax in their order.
fn of_class<N: Number>(table: &Table, features: &Features, class: usize) -> N {
    let mut margin = N::from(table.bias[class]);
    for (feature, x) in features {
        margin = margin + N::from(table.weights(*feature, class).weight) * N::from(*x);
    }
    for_each_factor::<N>(table, features, class, |sum, squares| {
        margin = N::nearest(margin.into() + 0.5 * (sum * sum - squares).into());
    });
    margin
}

/// Calls `factor` with the sum and the sum of squares of `v_f x`, for each factor `f`, those of the
/// zeros behind the vectors included.
#[inline]
fn for_each_factor<N: Number>(
    table: &Table,
    features: &Features,
    class: usize,
    mut factor: impl FnMut(N, N),
) {
    let padded = table.shape.padded();
    let mut each = |sums: &[(N, N)]| sums.iter().for_each(|(sum, squares)| factor(*sum, *squares));
    if padded.is_multiple_of(8) {
        (0..padded).step_by(8).for_each(|first| each(&sums::<N, 8>(table, features, class, first)));
    } else {
        (0..padded).step_by(4).for_each(|first| each(&sums::<N, 4>(table, features, class, first)));
    }
}

/// The sums and the sums of squares of `v_f x` for the factors from `first` on. Each is taken in
/// the order of the features.
#[inline]
fn sums<N: Number, const LANES: usize>(
    table: &Table,
    features: &Features,
    class: usize,
    first: usize,
) -> [(N, N); LANES] {
    let (mut sums, mut squares) = ([N::default(); LANES], [N::default(); LANES]);
    for (feature, x) in features {
        let x = N::from(*x);
        let vector = &table.weights(*feature, class).vector[first..first + LANES];
        for lane in 0..LANES {
            let product = N::from(vector[lane]) * x;
            sums[lane] = sums[lane] + product;
            squares[lane] = squares[lane] + product * product;
        }
    }
    std::array::from_fn(|lane| (sums[lane], squares[lane]))
}
