//! The metadata.json of a SavedModel that comes without one: each input is one feature of the user,
//! and each output has numbers of the user.

use std::path::Path;

use outrigger_core::{DType, ElementType, Failure, Interface, Reason, Shape, TensorSpec};
use serde_json::{Value, json};

use crate::framework::{TENSORFLOW, interface};

/// The signature that is described, which is the one of metadata.json that names none.
const SIGNATURE: &str = "serving_default";

/// Describes the model in `directory` by its signature `serving_default`. Inputs that have a default
/// in the model are left out, and so are outputs that cannot be returned. Blocks.
///
/// # Errors
/// IMAGE_INVALID if the model cannot be read, or not be described so.
pub(crate) fn describe(directory: &Path) -> Result<String, Failure> {
    of_interface(&interface(&directory.into(), SIGNATURE)?)
}

fn of_interface(interface: &Interface) -> Result<String, Failure> {
    let inputs = interface.inputs.iter().filter(|spec| !spec.optional).map(input);
    let outputs: Vec<_> = interface.outputs.iter().filter_map(output).collect();
    if outputs.is_empty() {
        return Err(invalid("no output has a fixed number of numbers for each row".to_owned()));
    }
    let metadata = json!({
        "schema": "outrigger.dev/model/v1",
        "framework": TENSORFLOW.name,
        "inputs": inputs.collect::<Result<Vec<_>, _>>()?,
        "outputs": outputs,
    });
    Ok(metadata.to_string())
}

/// An input of one feature: a number, or a vector.
fn input(spec: &TensorSpec) -> Result<Value, Failure> {
    let (ElementType::Known(dtype), [None, Some(length @ 1..)]) = (&spec.dtype, sizes(&spec.shape))
    else {
        let (name, dtype, shape) = (&spec.name, &spec.dtype, &spec.shape);
        return Err(invalid(format!(
            "its input {name:?} is {dtype} {shape}, not rows of a fixed number of values"
        )));
    };
    let mut feature = json!({"name": &*spec.name, "required": true});
    if *length > 1 {
        feature["length"] = (*length).into();
    }
    Ok(json!({
        "tensor": &*spec.name, "entity": "user", "dtype": dtype.as_str(), "features": [feature]
    }))
}

/// An output of numbers, of which the first one is the score; `None` for another one.
fn output(spec: &TensorSpec) -> Option<Value> {
    let ElementType::Known(dtype) = &spec.dtype else { return None };
    let numbers = [DType::Float32, DType::Float64, DType::Int32, DType::Int64].contains(dtype);
    let width = match sizes(&spec.shape) {
        [None] => 1,
        [None, Some(width @ 1..)] => *width,
        _ => return None,
    };
    let mut output = json!({"tensor": &*spec.name, "name": &*spec.name, "kind": "single"});
    if width > 1 {
        output["width"] = width.into();
        output["score"] = json!({"column": 0});
    }
    numbers.then_some(output)
}

fn sizes(shape: &Shape) -> &[Option<u64>] {
    match shape {
        Shape::Any => &[],
        Shape::Sizes(sizes) => sizes,
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(Reason::ImageInvalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, dtype: DType, sizes: &[i64]) -> TensorSpec {
        TensorSpec::new(name, dtype.into(), Shape::of(sizes))
    }

    #[test]
    fn each_input_is_a_feature_of_the_user() {
        let default = TensorSpec { optional: true, ..spec("temperature", DType::Float32, &[]) };
        let inputs = vec![
            spec("age", DType::Float32, &[-1, 1]),
            spec("words", DType::String, &[-1, 3]),
            default,
        ];
        let outputs = vec![
            spec("classes", DType::String, &[-1, 2]),
            spec("logits", DType::Float32, &[-1, 2]),
            spec("score", DType::Float64, &[-1]),
            spec("tokens", DType::Int64, &[-1, -1]),
        ];
        let text = of_interface(&Interface::new(inputs, outputs)).expect("a description");
        let metadata: Value = serde_json::from_str(&text).expect("JSON");
        let age = json!({"name": "age", "required": true});
        let words = json!({"name": "words", "required": true, "length": 3});
        assert_eq!(
            metadata,
            json!({
                "schema": "outrigger.dev/model/v1",
                "framework": "tensorflow",
                "inputs": [
                    {"tensor": "age", "entity": "user", "dtype": "float32", "features": [age]},
                    {"tensor": "words", "entity": "user", "dtype": "string", "features": [words]},
                ],
                "outputs": [
                    {"tensor": "logits", "name": "logits", "kind": "single", "width": 2,
                     "score": {"column": 0}},
                    {"tensor": "score", "name": "score", "kind": "single"},
                ],
            })
        );
    }

    #[test]
    fn a_model_that_cannot_be_described_so_is_refused_with_the_tensor() {
        let score = spec("score", DType::Float32, &[-1]);
        for (input, output, problem) in [
            (spec("x", DType::Float32, &[-1]), score.clone(), r#""x" is float32 [?], not rows"#),
            (spec("x", DType::Float32, &[-1, -1]), score.clone(), "float32 [?, ?]"),
            (spec("x", DType::Float32, &[4, 2]), score, "float32 [4, 2]"),
            (
                spec("x", DType::Float32, &[-1, 2]),
                spec("label", DType::String, &[-1]),
                "no output has",
            ),
        ] {
            let failure = of_interface(&Interface::new(vec![input], vec![output]));
            let failure = failure.expect_err(problem);
            assert_eq!(failure.reason, Reason::ImageInvalid);
            assert!(failure.message.contains(problem), "{failure}");
        }
    }
}
