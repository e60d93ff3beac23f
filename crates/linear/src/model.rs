//! One linear model.

use bytes::{BufMut as _, BytesMut};
use outrigger_core::{Content, DType, Interface, Shape, Tensor, TensorSpec};
use outrigger_run::{Call, RunError, local};
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
        let user = input(&call, "user")?;
        let treatment = input(&call, "treatment")?;
        let &[users, treatments, _] = &treatment.shape[..] else {
            return Err(failed("treatment must have three dimensions".to_owned()));
        };
        let (user, treatment) = (floats(user)?, floats(treatment)?);
        let mut scores =
            BytesMut::with_capacity(4 * usize::try_from(users * treatments).unwrap_or(0));
        let per_user = rows(&treatment, self.treatment.len()).collect::<Vec<_>>();
        let per_user = rows(&per_user, usize::try_from(treatments).unwrap_or(0));
        for (user, treatments) in rows(&user, self.user.len()).zip(per_user) {
            let base = self.bias + dot(user, &self.user);
            treatments.iter().for_each(|row| scores.put_f32_le(base + dot(row, &self.treatment)));
        }
        let scores = Tensor {
            name: "scores".into(),
            dtype: DType::Float32,
            shape: vec![users, treatments],
            content: Content::Bytes(scores.freeze()),
        };
        Ok(vec![scores])
    }
}

fn input<'a>(call: &'a Call, name: &str) -> Result<&'a Tensor, RunError> {
    let found = call.inputs.iter().find(|tensor| &*tensor.name == name);
    found.ok_or_else(|| failed(format!("there is no input {name}")))
}

fn floats(tensor: &Tensor) -> Result<Vec<f32>, RunError> {
    let Content::Bytes(bytes) = &tensor.content else {
        return Err(failed(format!("{} must be float32", tensor.name)));
    };
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Ok(bytes.chunks_exact(4).map(value).collect())
}

/// Splits `values` into rows of `width`. For a width of zero the number of rows is unknown, and
/// none are returned.
fn rows<T>(values: &[T], width: usize) -> impl Iterator<Item = &[T]> {
    values.chunks_exact(width.max(1))
}

fn dot(values: &[f32], weights: &[f32]) -> f32 {
    values.iter().zip(weights).map(|(value, weight)| value * weight).sum()
}

fn failed(message: String) -> RunError {
    RunError::Failed { code: "InvalidArgument".to_owned(), message }
}

#[cfg(test)]
mod tests {
    use outrigger_run::local::Model as _;
    use std::time::Duration;

    use super::*;

    fn tensor(name: &str, shape: &[i64], values: &[f32]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let content = Content::Bytes(bytes.into());
        Tensor { name: name.into(), dtype: DType::Float32, shape: shape.to_vec(), content }
    }

    #[tokio::test]
    async fn scores_are_dot_products_and_the_bias() {
        let model = Model { user: vec![1.0], treatment: vec![0.5, 2.0], bias: 3.0 };
        let inputs = vec![
            tensor("user", &[2, 1], &[1.0, 10.0]),
            tensor("treatment", &[2, 2, 2], &[2.0, 1.0, 0.0, 0.0, 4.0, 0.0, 0.0, 1.0]),
        ];
        let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
        let call = Call { inputs, outputs: vec![], deadline, headers: Default::default() };
        let outputs = model.run(call).expect("scores");
        assert_eq!(outputs, [tensor("scores", &[2, 2], &[7.0, 4.0, 15.0, 15.0])]);
    }

    #[test]
    fn a_missing_input_is_named() {
        let model = Model { user: vec![], treatment: vec![1.0], bias: 0.0 };
        let deadline = tokio::time::Instant::now();
        let call = Call { inputs: vec![], outputs: vec![], deadline, headers: Default::default() };
        let error = model.run(call).expect_err("no inputs").to_string();
        assert!(error.contains("there is no input user"), "{error}");
    }
}
