//! Gauss-Legendre quadrature.

use std::f64::consts::PI;

/// Steps of Newton's method. It doubles the exact digits with each.
const STEPS: usize = 12;

/// Points and weights for integrals from 0 to 1.
#[derive(Debug)]
pub(super) struct Quadrature {
    pub(super) points: Vec<f64>,
    pub(super) weights: Vec<f64>,
}

impl Quadrature {
    /// The quadrature with the fewest points that is exact for polynomials of this degree.
    pub(super) fn exact_to(degree: usize) -> Self {
        let count = degree / 2 + 1;
        let (mut points, mut weights) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for at in 0..count {
            // The zeros of the Legendre polynomial are near those of a cosine.
            let mut x = (PI * (at as f64 + 0.75) / (count as f64 + 0.5)).cos();
            for _ in 0..STEPS {
                let (value, slope) = legendre(count, x);
                x -= value / slope;
            }
            let (_, slope) = legendre(count, x);
            points.push((1.0 + x) / 2.0);
            weights.push(1.0 / ((1.0 - x * x) * slope * slope));
        }
        Self { points, weights }
    }
}

/// The Legendre polynomial of this degree at `x`, and its slope there.
fn legendre(degree: usize, x: f64) -> (f64, f64) {
    let (mut before, mut value) = (1.0, x);
    for at in 2..=degree {
        let n = at as f64;
        (before, value) = (value, ((2.0 * n - 1.0) * x * value - (n - 1.0) * before) / n);
    }
    (value, degree as f64 * (x * value - before) / (x * x - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integrals_of_polynomials_are_exact() {
        for degree in [0, 1, 2, 3, 7, 20, 101, 255] {
            let quadrature = Quadrature::exact_to(degree);
            assert_eq!(quadrature.points.len(), degree / 2 + 1);
            assert!(quadrature.points.iter().all(|point| (0.0..1.0).contains(point)));
            for power in 0..=degree {
                let terms = quadrature.points.iter().zip(&quadrature.weights);
                let found: f64 =
                    terms.map(|(point, weight)| weight * point.powi(power as i32)).sum();
                let expected = 1.0 / (power + 1) as f64;
                assert!((found - expected).abs() < 1e-13, "{degree} {power}: {found}");
            }
        }
    }
}
