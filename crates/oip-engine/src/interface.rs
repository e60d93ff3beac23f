//! The interface of a model as its server describes it.

use outrigger_core::{ElementType, Interface, Shape, TensorSpec};
use outrigger_oip::{
    DataType,
    metadata::{ModelMetadata, TensorMetadata},
};

/// The interface from a server's description, or `declared` for tensors that it leaves out: known
/// servers describe none.
pub(crate) fn described(metadata: &ModelMetadata, declared: Interface) -> Interface {
    let or = |tensors: &[TensorMetadata], declared: Vec<TensorSpec>| match tensors {
        [] => declared,
        tensors => tensors.iter().map(spec).collect(),
    };
    let Interface { inputs, outputs } = declared;
    Interface::new(or(&metadata.inputs, inputs), or(&metadata.outputs, outputs))
}

fn spec(tensor: &TensorMetadata) -> TensorSpec {
    let known = DataType::named(&tensor.datatype).map(DataType::dtype);
    let name = || ElementType::Unsupported(tensor.datatype.to_ascii_lowercase().into());
    let dtype = known.map_or_else(name, ElementType::Known);
    TensorSpec::new(tensor.name.as_str(), dtype, Shape::of(&tensor.shape))
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;

    use super::*;

    fn tensor(name: &str, datatype: &str, shape: &[i64]) -> TensorMetadata {
        TensorMetadata { name: name.into(), datatype: datatype.into(), shape: shape.to_vec() }
    }

    #[test]
    fn a_server_s_description_counts_where_there_is_one() {
        let spec = |name: &str| TensorSpec::new(name, DType::Float32.into(), Shape::Any);
        let declared = Interface::new(vec![spec("x")], vec![spec("y")]);
        let metadata = ModelMetadata {
            inputs: vec![tensor("x", "INT64", &[-1, 2]), tensor("z", "FP8", &[])],
            ..ModelMetadata::default()
        };
        let interface = described(&metadata, declared.clone());
        assert_eq!(interface.outputs, declared.outputs);
        assert_eq!(interface.inputs[0].dtype, ElementType::Known(DType::Int64));
        assert_eq!(interface.inputs[0].shape, Shape::of(&[-1, 2]));
        assert_eq!(interface.inputs[1].dtype.to_string(), "fp8");
        assert_eq!(described(&ModelMetadata::default(), declared.clone()), declared);
    }
}
