//! Converts TensorFlow's description of a model into an [`Interface`].

use outrigger_core::{DType, ElementType, Interface, Shape, TensorSpec};
use outrigger_proto::tensorflow::{DataType, SignatureDef, TensorInfo, TensorShapeProto};

/// The type number of a TF1 reference type is that of its base type plus this.
const REFERENCE: i32 = 100;

/// Converts a signature into an interface.
pub fn interface(signature: &SignatureDef) -> Interface {
    let input = |(name, info): (&String, &TensorInfo)| TensorSpec {
        optional: signature.defaults.contains_key(name),
        ..spec(name, info)
    };
    let outputs = signature.outputs.iter().map(|(name, info)| spec(name, info));
    Interface::new(signature.inputs.iter().map(input).collect(), outputs.collect())
}

fn spec(name: &str, info: &TensorInfo) -> TensorSpec {
    // Sparse tensors and composites have no node name: other fields describe them.
    let dtype = if info.name.is_empty() { ElementType::Composite } else { element(info.dtype) };
    TensorSpec::new(name, dtype, shape(info.tensor_shape.as_ref()))
}

fn element(number: i32) -> ElementType {
    let base = if number > REFERENCE { number - REFERENCE } else { number };
    if let Some(known) = DType::ALL.into_iter().find(|dtype| dtype.tensorflow() == base) {
        return known.into();
    }
    let name = DataType::try_from(base).map_or_else(
        |_| format!("of unknown type {number}"),
        |dtype| dtype.as_str_name().trim_start_matches("DT_").to_lowercase(),
    );
    ElementType::Unsupported(name.into())
}

fn shape(shape: Option<&TensorShapeProto>) -> Shape {
    let Some(shape) = shape.filter(|shape| !shape.unknown_rank) else { return Shape::Any };
    Shape::of(&shape.dim.iter().map(|dim| dim.size).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use outrigger_proto::tensorflow::{TensorProto, tensor_shape_proto::Dim};

    use super::*;

    fn info(dtype: i32, sizes: &[i64]) -> TensorInfo {
        let dim = sizes.iter().map(|size| Dim { size: *size, ..Dim::default() }).collect();
        let tensor_shape = Some(TensorShapeProto { dim, unknown_rank: false });
        TensorInfo { name: "op:0".into(), dtype, tensor_shape }
    }

    fn one(info: TensorInfo) -> TensorSpec {
        let inputs = [("x".to_owned(), info)].into();
        interface(&SignatureDef { inputs, ..SignatureDef::default() }).inputs.remove(0)
    }

    #[test]
    fn types_and_shapes_become_ours() {
        let found = one(info(DataType::DtFloat.into(), &[-1, 5]));
        assert_eq!(found, TensorSpec::new("x", DType::Float32.into(), Shape::of(&[-1, 5])));
        assert_eq!(one(info(DataType::DtUint8.into(), &[])).dtype.to_string(), "uint8");
        assert_eq!(one(info(-7, &[])).dtype.to_string(), "of unknown type -7");
        assert_eq!(one(info(999, &[])).dtype.to_string(), "of unknown type 999");
        for dtype in DType::ALL {
            assert_eq!(one(info(dtype.tensorflow(), &[])).dtype, dtype.into());
        }
    }

    #[test]
    fn reference_types_count_as_their_base() {
        assert_eq!(one(info(101, &[])).dtype, DType::Float32.into());
    }

    #[test]
    fn an_unknown_rank_is_any_shape() {
        let unknown = TensorShapeProto { dim: Vec::new(), unknown_rank: true };
        assert_eq!(
            one(TensorInfo { tensor_shape: Some(unknown), ..info(1, &[]) }).shape,
            Shape::Any
        );
        assert_eq!(one(TensorInfo { tensor_shape: None, ..info(1, &[]) }).shape, Shape::Any);
    }

    #[test]
    fn a_tensor_without_a_node_is_composite() {
        let sparse = TensorInfo { name: String::new(), ..info(1, &[-1]) };
        assert_eq!(one(sparse).dtype, ElementType::Composite);
    }

    #[test]
    fn an_input_with_a_default_is_optional_and_all_are_sorted() {
        let infos = ["b", "a"].map(|name| (name.to_owned(), info(1, &[])));
        let signature = SignatureDef {
            inputs: infos.clone().into(),
            outputs: infos.into(),
            defaults: [("b".to_owned(), TensorProto::default())].into(),
            ..SignatureDef::default()
        };
        let Interface { inputs, outputs } = interface(&signature);
        let seen = |specs: &[TensorSpec]| -> Vec<_> {
            specs.iter().map(|spec| (spec.name.to_string(), spec.optional)).collect()
        };
        assert_eq!(seen(&inputs), [("a".to_owned(), false), ("b".to_owned(), true)]);
        assert_eq!(seen(&outputs), [("a".to_owned(), false), ("b".to_owned(), false)]);
    }
}
