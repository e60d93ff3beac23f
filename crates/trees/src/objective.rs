//! Objectives: the way from a margin to a value, and from a base score to a margin.
//!
//! The formulas are those of XGBoost (`src/objective` and `src/common/math.h`), in the same
//! precision and order of operations, so that results are equal in every bit where both use the
//! same mathematical library.

/// The smallest difference that XGBoost distinguishes (`kRtEps`).
const EPSILON: f32 = 1e-6;

/// The transformation of margins into values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transform {
    Identity,
    Sigmoid,
    Exponential,
    Hinge,
    /// The class with the largest margin, as a number.
    Class,
    /// A probability for each class.
    Softmax,
    /// The margins of a row in ascending order.
    Sorted,
    /// Each output is at least as large as the one before.
    Expectiles,
}

/// The transformation of a base score into a margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Identity,
    Logit,
    Logarithm,
    Expectiles,
}

/// An objective. One that is not known has margins for values, as a custom objective does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Objective {
    pub(crate) transform: Transform,
    link: Link,
}

impl Objective {
    /// The objective of this name, as the library of this version (major, minor) understands it.
    pub(crate) fn named(name: &str, version: (u32, u32)) -> Self {
        let (transform, link) = match name {
            "binary:logistic" | "reg:logistic" => (Transform::Sigmoid, Link::Logit),
            "binary:hinge" => (Transform::Hinge, Link::Identity),
            "count:poisson" | "reg:gamma" | "reg:tweedie" | "survival:cox" | "survival:aft" => {
                (Transform::Exponential, Link::Logarithm)
            }
            "multi:softmax" => (Transform::Class, Link::Identity),
            "multi:softprob" => (Transform::Softmax, Link::Identity),
            "reg:quantileerror" if version >= (3, 4) => (Transform::Sorted, Link::Identity),
            "reg:expectileerror" => (Transform::Expectiles, Link::Expectiles),
            _ => (Transform::Identity, Link::Identity),
        };
        Self { transform, link }
    }

    /// Turns the base scores of all outputs into margins.
    pub(crate) fn base_margins(self, base: &mut [f32]) {
        match self.link {
            Link::Identity => {}
            Link::Logit => base.iter_mut().for_each(|base| {
                let probability = base.clamp(EPSILON, 1.0 - EPSILON);
                *base = -(1.0 / probability - 1.0).ln();
            }),
            Link::Logarithm => base.iter_mut().for_each(|base| *base = base.ln()),
            Link::Expectiles => {
                for at in (1..base.len()).rev() {
                    base[at] = inverse_softplus(base[at] - base[at - 1] - EPSILON);
                }
            }
        }
    }

    /// Turns the margins of one row into values, in place. The value of [`Transform::Class`] is
    /// the first.
    pub(crate) fn values(self, row: &mut [f32]) {
        match self.transform {
            Transform::Identity => {}
            Transform::Sigmoid => row.iter_mut().for_each(|margin| *margin = sigmoid(*margin)),
            Transform::Exponential => row.iter_mut().for_each(|margin| *margin = margin.exp()),
            Transform::Hinge => row.iter_mut().for_each(|margin| {
                *margin = if *margin > 0.0 { 1.0 } else { 0.0 };
            }),
            Transform::Class => {
                if let Some(class) = largest(row) {
                    row[0] = class as f32;
                }
            }
            Transform::Softmax => softmax(row),
            Transform::Sorted => row.sort_unstable_by(f32::total_cmp),
            Transform::Expectiles => expectiles(row),
        }
    }
}

fn sigmoid(margin: f32) -> f32 {
    // The bound keeps the exponential finite; the last term keeps XGBoost's order of operations.
    1.0 / ((-margin).min(88.7).exp() + 1.0 + 1e-16)
}

/// The index of the first largest margin.
fn largest(row: &[f32]) -> Option<usize> {
    let mut indices = 0..row.len();
    let first = indices.next()?;
    Some(indices.fold(first, |best, at| if row[at] > row[best] { at } else { best }))
}

/// Exponentials in f32, their sum in f64, narrowed before the division.
fn softmax(row: &mut [f32]) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0_f64;
    for margin in &mut *row {
        *margin = (*margin - largest).exp();
        sum += f64::from(*margin);
    }
    row.iter_mut().for_each(|margin| *margin /= sum as f32);
}

fn expectiles(row: &mut [f32]) {
    let mut value = row.first().copied().unwrap_or_default();
    for margin in row.iter_mut().skip(1) {
        value += EPSILON + softplus(*margin);
        *margin = value;
    }
}

fn softplus(x: f32) -> f32 {
    if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() }
}

fn inverse_softplus(x: f32) -> f32 {
    let x = x.max(EPSILON);
    x + (-(-x).exp_m1()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str, row: &[f32]) -> Vec<f32> {
        let mut row = row.to_vec();
        Objective::named(name, (3, 4)).values(&mut row);
        row
    }

    #[test]
    fn base_scores_are_probabilities_or_responses() {
        let base = |name: &str, base: f32| {
            let mut base = [base];
            Objective::named(name, (3, 0)).base_margins(&mut base);
            base[0]
        };
        assert_eq!(base("binary:logistic", 0.5), 0.0);
        assert!((base("binary:logistic", 0.25) + 3.0_f32.ln()).abs() < 1e-6);
        assert!(base("binary:logistic", 0.0).is_finite());
        assert_eq!(base("reg:tweedie", 1.0), 0.0);
        assert_eq!(base("reg:squarederror", 0.25), 0.25);
        assert_eq!(base("binary:logitraw", 0.25), 0.25);
        assert_eq!(base("somebody:else", 0.25), 0.25);
    }

    #[test]
    fn values_of_each_objective() {
        assert_eq!(values("binary:logistic", &[0.0]), [0.5]);
        assert_eq!(values("binary:logistic", &[-1e30]), [1.0 / 88.7_f32.exp()]);
        assert_eq!(values("binary:hinge", &[0.0, 0.1]), [0.0, 1.0]);
        assert_eq!(values("count:poisson", &[0.0, 1.0]), [1.0, 1.0_f32.exp()]);
        assert_eq!(values("multi:softmax", &[1.0, 3.0, 3.0])[0], 1.0);
        assert_eq!(values("multi:softprob", &[7.0, 7.0]), [0.5, 0.5]);
        assert_eq!(values("reg:quantileerror", &[2.0, 1.0]), [1.0, 2.0]);
        assert_eq!(values("rank:pairwise", &[2.0, 1.0]), [2.0, 1.0]);
    }

    #[test]
    fn quantiles_of_older_libraries_are_not_sorted() {
        let mut row = [2.0, 1.0];
        Objective::named("reg:quantileerror", (3, 3)).values(&mut row);
        assert_eq!(row, [2.0, 1.0]);
    }

    #[test]
    fn expectiles_are_the_base_scores_again() {
        let objective = Objective::named("reg:expectileerror", (3, 4));
        let mut row = [1.0, 1.5, 4.0];
        objective.base_margins(&mut row);
        objective.values(&mut row);
        assert!(row.iter().zip([1.0, 1.5, 4.0]).all(|(a, b)| (a - b).abs() < 1e-5), "{row:?}");
    }
}
