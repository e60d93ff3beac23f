//! The way from the sums of leaves to margins and values, for the libraries that compute in f64.
//!
//! The formulas are those of LightGBM (`src/objective`) and CatBoost, in their order of operations.

use std::ops::Range;

/// The way from sums to values in f64.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Double {
    /// The factor of the sums.
    pub(crate) scale: f64,
    /// The bias of each output. It is part of the first iteration.
    pub(crate) bias: Vec<f64>,
    /// True if a value is that of the mean of the iterations. LightGBM's random forests have that,
    /// and their margins are sums nevertheless.
    pub(crate) averaged: bool,
    pub(crate) transform: Transform,
}

/// The transformation of margins into values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Transform {
    Identity,
    /// With the factor of the margin.
    Sigmoid(f64),
    Exponential,
    /// A probability for each output.
    Softmax,
    /// The square, with the sign of the margin.
    SignedSquare,
    /// The logarithm of 1 plus the exponential.
    Softplus,
    /// A mean, and the logarithm of a standard deviation in place of which comes the variance.
    Variance,
}

impl Double {
    /// Sums that are margins.
    pub(crate) fn plain(transform: Transform) -> Self {
        Self { scale: 1.0, bias: Vec::new(), averaged: false, transform }
    }

    /// Turns the sums of one row over `iterations` into margins.
    pub(crate) fn margins(&self, row: &mut [f64], iterations: &Range<u32>) {
        row.iter_mut().for_each(|sum| *sum *= self.scale);
        if iterations.start == 0 {
            row.iter_mut().zip(&self.bias).for_each(|(sum, bias)| *sum += bias);
        }
    }

    /// Turns the margins of one row over `iterations` into values.
    pub(crate) fn values(&self, row: &mut [f64], iterations: &Range<u32>) {
        if self.averaged && !iterations.is_empty() {
            row.iter_mut()
                .for_each(|margin| *margin /= f64::from(iterations.end - iterations.start));
        }
        self.transform.apply(row);
    }

    /// Bytes held outside of the structure.
    pub(crate) fn memory(&self) -> usize {
        size_of::<f64>() * self.bias.capacity()
    }
}

impl Transform {
    fn apply(self, row: &mut [f64]) {
        let each = |of: &dyn Fn(f64) -> f64, row: &mut [f64]| {
            row.iter_mut().for_each(|margin| *margin = of(*margin));
        };
        match self {
            Self::Identity => {}
            Self::Sigmoid(factor) => each(&|x| 1.0 / (1.0 + (-factor * x).exp()), row),
            Self::Exponential => each(&f64::exp, row),
            Self::SignedSquare => each(&|x| x.signum() * x * x, row),
            Self::Softplus => each(&|x| x.exp().ln_1p(), row),
            Self::Variance => {
                if let [_, deviation, ..] = row {
                    *deviation = (2.0 * *deviation).exp();
                }
            }
            Self::Softmax => {
                let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                each(&|x| (x - largest).exp(), row);
                let sum: f64 = row.iter().sum();
                each(&|x| x / sum, row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(transform: Transform, row: &[f64]) -> Vec<f64> {
        let mut row = row.to_vec();
        Double::plain(transform).values(&mut row, &(0..1));
        row
    }

    #[test]
    fn values_of_each_transformation() {
        assert_eq!(values(Transform::Identity, &[-2.0]), [-2.0]);
        assert_eq!(values(Transform::Sigmoid(1.0), &[0.0]), [0.5]);
        assert_eq!(values(Transform::Sigmoid(2.0), &[1.0]), [1.0 / (1.0 + (-2.0_f64).exp())]);
        assert_eq!(values(Transform::Exponential, &[0.0, 1.0]), [1.0, 1.0_f64.exp()]);
        assert_eq!(values(Transform::SignedSquare, &[-3.0, 3.0, 0.0]), [-9.0, 9.0, 0.0]);
        assert_eq!(values(Transform::Softplus, &[0.0]), [2.0_f64.ln()]);
        assert_eq!(values(Transform::Softmax, &[700.0, 700.0]), [0.5, 0.5]);
        assert_eq!(values(Transform::Variance, &[3.0, 0.0]), [3.0, 1.0]);
    }

    #[test]
    fn a_bias_is_part_of_the_first_iteration() {
        let double = Double { scale: 2.0, bias: vec![0.5], ..Double::plain(Transform::Identity) };
        for (iterations, margin) in [(0..2, 6.5), (1..2, 6.0)] {
            let mut row = [3.0];
            double.margins(&mut row, &iterations);
            assert_eq!(row, [margin], "{iterations:?}");
        }
    }

    #[test]
    fn values_may_be_means() {
        let double = Double { averaged: true, ..Double::plain(Transform::Identity) };
        let mut row = [6.0];
        double.values(&mut row, &(1..4));
        assert_eq!(row, [2.0]);
        double.values(&mut row, &(2..2));
        assert_eq!(row, [2.0]);
    }
}
