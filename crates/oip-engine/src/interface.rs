//! The interface of a model as its server describes it.

use outrigger_core::{ElementType, Interface, Shape, TensorSpec};
use outrigger_oip::{
    DataType,
    metadata::{ModelMetadata, TensorMetadata},
};

use crate::framework::Package;

/// The interface of a model: that which its server describes, as far as it does. Of the outputs that
/// metadata.json names, sizes that differ from its are left open, as it counts first: a run shows which
/// are right.
pub(crate) fn described(mut metadata: ModelMetadata, package: &Package) -> Interface {
    if package.remote.row_by_row {
        metadata.add_rows();
    }
    let Interface { inputs, outputs } = package.interface();
    let is_described = |it: &TensorSpec| metadata.outputs.iter().any(|of| *of.name == *it.name);
    let undescribed = outputs.into_iter().filter(|it| !is_described(it));
    let output = |tensor: &TensorMetadata| {
        let stated = package.outputs.iter().find(|it| *it.tensor == *tensor.name);
        let is_open = stated.is_some_and(|it| !it.fits(&tensor.shape));
        let spec = spec(tensor);
        TensorSpec { shape: if is_open { Shape::Any } else { spec.shape.clone() }, ..spec }
    };
    let outputs = metadata.outputs.iter().map(output).chain(undescribed).collect();
    let inputs = match &metadata.inputs[..] {
        [] => inputs,
        inputs => inputs.iter().map(input).collect(),
    };
    Interface::new(inputs, outputs)
}

/// An input as its server describes it. [-1] says nothing about a row of one value.
fn input(tensor: &TensorMetadata) -> TensorSpec {
    let spec = spec(tensor);
    let shape = if let [_] = tensor.shape[..] { Shape::Any } else { spec.shape.clone() };
    TensorSpec { shape, ..spec }
}

/// A tensor as its server describes it. A shape that does not begin with any number of rows says nothing
/// about them.
fn spec(tensor: &TensorMetadata) -> TensorSpec {
    let known = DataType::named(&tensor.datatype).map(DataType::dtype);
    let name = || ElementType::Unsupported(tensor.datatype.to_ascii_lowercase().into());
    let dtype = known.map_or_else(name, ElementType::Known);
    let has_rows = tensor.shape.first() == Some(&-1);
    let shape = if has_rows { Shape::of(&tensor.shape) } else { Shape::Any };
    TensorSpec::new(tensor.name.as_str(), dtype, shape)
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;

    use super::*;

    fn tensor(name: &str, datatype: &str, shape: &[i64]) -> TensorMetadata {
        TensorMetadata { name: name.into(), datatype: datatype.into(), shape: shape.to_vec() }
    }

    fn package(remote: &str) -> Package {
        let text = format!(
            r#"{{"remote": {remote}, "inputs": [{{"tensor": "x", "dtype": "float32"}}],
                "outputs": [{{"tensor": "y", "width": 2}}]}}"#
        );
        serde_json::from_str(&text).expect("a package")
    }

    fn described(
        inputs: &[(&str, &str, &[i64])],
        outputs: &[(&str, &str, &[i64])],
        remote: &str,
    ) -> Interface {
        let tensors = |all: &[(&str, &str, &[i64])]| {
            all.iter().map(|(name, datatype, shape)| tensor(name, datatype, shape)).collect()
        };
        let inputs = tensors(inputs);
        let outputs = tensors(outputs);
        let metadata = ModelMetadata { inputs, outputs, ..ModelMetadata::default() };
        super::described(metadata, &package(remote))
    }

    const MODEL: &str = r#"{"model": "m"}"#;

    #[test]
    fn a_server_s_description_counts_where_there_is_one() {
        let declared = package(MODEL).interface();
        let inputs: [(&str, &str, &[i64]); 2] = [("x", "INT64", &[-1, 2]), ("z", "FP8", &[])];
        let interface = described(&inputs, &[], MODEL);
        assert_eq!(interface.outputs, declared.outputs);
        assert_eq!(interface.inputs[0].dtype, ElementType::Known(DType::Int64));
        assert_eq!(interface.inputs[0].shape, Shape::of(&[-1, 2]));
        assert_eq!(interface.inputs[1].dtype.to_string(), "fp8");
        assert_eq!(described(&[], &[], MODEL), declared);
    }

    #[test]
    fn what_metadata_json_says_about_outputs_counts_before_a_description() {
        for (shape, expected) in [
            (&[-1, 2][..], Shape::of(&[-1, 2])),
            (&[-1, -1], Shape::of(&[-1, -1])),
            (&[2, 1], Shape::Any),
            (&[-1, 1], Shape::Any),
            (&[-1], Shape::Any),
        ] {
            let interface =
                described(&[], &[("y", "FP64", shape), ("other", "INT64", &[-1, 7])], MODEL);
            let [other, y] = &interface.outputs[..] else { panic!("two outputs") };
            assert_eq!((&y.shape, &y.dtype), (&expected, &ElementType::Known(DType::Float64)));
            assert_eq!(other.shape, Shape::of(&[-1, 7]));
        }
        let other = described(&[], &[("other", "INT64", &[-1, 7])], MODEL);
        assert!(other.output("y").is_some());
    }

    #[test]
    fn the_tensors_of_a_model_of_one_row_get_a_dimension_for_rows() {
        let of_row = r#"{"model": "m", "row_by_row": true}"#;
        let interface = described(&[("x", "INT64", &[1])], &[("y", "FP32", &[-1])], of_row);
        assert_eq!(interface.inputs[0].shape, Shape::of(&[-1, 1]));
        assert_eq!(interface.outputs[0].shape, Shape::of(&[-1, -1]));
        // Otherwise such a shape says nothing about rows.
        for shape in [&[1][..], &[-1], &[2, 1]] {
            let interface = described(&[("x", "INT64", shape)], &[], MODEL);
            assert_eq!(interface.inputs[0].shape, Shape::Any, "{shape:?}");
        }
    }
}
