//! One linear model.

use outrigger_core::{DType, Interface, Shape, Tensor, TensorSpec};
use outrigger_run::{
    Call, RunError,
    local::{self, floats, malformed, tensor},
};
use serde::Deserialize;

/// The only signature.
const SIGNATURE: &str = "serving_default";

/// A linear model: a weight for each feature, and a bias.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The weights of the user's features.
    pub user: Vec<f32>,
    /// The weights of a treatment's features.
    pub treatment: Vec<f32>,
    /// The score of a treatment whose features are all zero.
    pub bias: f32,
}

impl local::Model for Model {
    fn interface(&self, signature: &str) -> Option<Interface> {
        let float = |name: &str, sizes: &[i64]| {
            TensorSpec::new(name, DType::Float32.into(), Shape::of(sizes))
        };
        let width = |weights: &[f32]| i64::try_from(weights.len()).unwrap_or(i64::MAX);
        let inputs = vec![
            float("user", &[-1, width(&self.user)]),
            float("treatment", &[-1, -1, width(&self.treatment)]),
            TensorSpec::new("treatment_counts", DType::Int32.into(), Shape::of(&[-1])),
        ];
        (signature == SIGNATURE).then(|| Interface::new(inputs, vec![float("scores", &[-1, -1])]))
    }

    fn run(&self, call: Call) -> Result<Vec<Tensor>, RunError> {
        let (user, treatment) = (call.input("user")?, call.input("treatment")?);
        let &[users, treatments, _] = &treatment.shape[..] else {
            return Err(malformed("treatment must have three dimensions".to_owned()));
        };
        let (user, treatment) = (floats(user)?, floats(treatment)?);
        let mut scores = Vec::with_capacity(usize::try_from(users * treatments).unwrap_or(0));
        let per_user = rows(&treatment, self.treatment.len()).collect::<Vec<_>>();
        let per_user = rows(&per_user, usize::try_from(treatments).unwrap_or(0));
        for (user, treatments) in rows(&user, self.user.len()).zip(per_user) {
            let base = self.bias + dot(user, &self.user);
            scores.extend(treatments.iter().map(|row| base + dot(row, &self.treatment)));
        }
        Ok(vec![tensor("scores".into(), vec![users, treatments], &scores)])
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + size_of::<f32>() * (self.user.len() + self.treatment.len())
    }
}

/// Splits `values` into rows of `width`. For a width of zero the number of rows is unknown, and
/// none are returned.
fn rows<T>(values: &[T], width: usize) -> impl Iterator<Item = &[T]> {
    values.chunks_exact(width.max(1))
}

fn dot(values: &[f32], weights: &[f32]) -> f32 {
    values.iter().zip(weights).map(|(value, weight)| value * weight).sum()
}

#[cfg(test)]
mod tests {
    use outrigger_run::local::Model as _;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn scores_are_dot_products_and_the_bias() {
        let model = Model { user: vec![1.0], treatment: vec![0.5, 2.0], bias: 3.0 };
        let inputs = vec![
            tensor("user".into(), vec![2, 1], &[1.0, 10.0]),
            tensor("treatment".into(), vec![2, 2, 2], &[2.0, 1.0, 0.0, 0.0, 4.0, 0.0, 0.0, 1.0]),
        ];
        let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
        let call = Call::new(inputs, vec![], deadline);
        let outputs = model.run(call).expect("scores");
        assert_eq!(outputs, [tensor("scores".into(), vec![2, 2], &[7.0, 4.0, 15.0, 15.0])]);
    }

    #[test]
    fn a_missing_input_is_named() {
        let model = Model { user: vec![], treatment: vec![1.0], bias: 0.0 };
        let deadline = tokio::time::Instant::now();
        let call = Call::new(vec![], vec![], deadline);
        let error = model.run(call).expect_err("no inputs").to_string();
        assert!(error.contains("there is no input user"), "{error}");
    }
}
