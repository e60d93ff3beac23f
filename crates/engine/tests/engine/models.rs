//! Models in addition to those of the test kit, and tensors.

use outrigger_proto::tensorflow::{
    DataType, TensorProto, TensorShapeProto, attr_value::Value, tensor_shape_proto::Dim,
};
use outrigger_testkit::saved_model::{Model, node, saved_model};

/// A tensor without values.
pub(crate) fn tensor(dtype: i32, sizes: &[i64]) -> TensorProto {
    let dim = sizes.iter().map(|&size| Dim { size, name: String::new() }).collect();
    let tensor_shape = Some(TensorShapeProto { dim, unknown_rank: false });
    TensorProto { dtype, tensor_shape, ..TensorProto::default() }
}

/// A float32 column.
pub(crate) fn column(values: &[f32]) -> TensorProto {
    let sizes = [values.len() as i64, 1];
    TensorProto { float_val: values.to_vec(), ..tensor(1, &sizes) }
}

fn dtype(dtype: DataType) -> Value {
    Value::Type(dtype.into())
}

/// `y = x` for any type and shape.
pub(crate) fn identity(of: i32) -> Model {
    let nodes = vec![
        node("x", "Placeholder", &[], [("dtype", Value::Type(of))]),
        node("y", "Identity", &["x"], [("T", Value::Type(of))]),
    ];
    let of = DataType::try_from(of).expect("a type of the subset");
    model(saved_model(nodes, &[("x", of, &[-1])], &[("y", of, &[-1])]))
}

/// `y = x` with every string doubled.
pub(crate) fn twice() -> Model {
    let nodes = vec![
        node("x", "Placeholder", &[], [("dtype", dtype(DataType::DtString))]),
        node(
            "y",
            "StringJoin",
            &["x", "x"],
            [("N", Value::I(2)), ("separator", Value::S("".into()))],
        ),
    ];
    let string = DataType::DtString;
    model(saved_model(nodes, &[("x", string, &[-1])], &[("y", string, &[-1])]))
}

/// `y` is the number of elements of `x`: a scalar.
pub(crate) fn elements() -> Model {
    let attrs = [("T", dtype(DataType::DtFloat)), ("out_type", dtype(DataType::DtInt32))];
    let nodes = vec![
        node("x", "Placeholder", &[], [("dtype", dtype(DataType::DtFloat))]),
        node("y", "Size", &["x"], attrs),
    ];
    let outputs = [("y", DataType::DtInt32, &[][..])];
    model(saved_model(nodes, &[("x", DataType::DtFloat, &[-1])], &outputs))
}

/// Multiplies a matrix of ones, whose size is `x`, with itself four times: the size
/// determines the duration of a run.
pub(crate) fn busy() -> Model {
    let float = || ("T", dtype(DataType::DtFloat));
    let one = TensorProto { float_val: vec![1.0], ..tensor(1, &[]) };
    let mut nodes = vec![
        node("x", "Placeholder", &[], [("dtype", dtype(DataType::DtInt32))]),
        node(
            "one",
            "Const",
            &[],
            [("dtype", dtype(DataType::DtFloat)), ("value", Value::Tensor(one))],
        ),
        node("ones", "Fill", &["x", "one"], [float(), ("index_type", dtype(DataType::DtInt32))]),
    ];
    let mut last = "ones".to_owned();
    for step in 0..4 {
        let name = format!("product{step}");
        nodes.push(node(&name, "MatMul", &[&last, "ones"], [float()]));
        last = name;
    }
    nodes.push(node("y", "Shape", &[&last], [float(), ("out_type", dtype(DataType::DtInt32))]));
    let int = DataType::DtInt32;
    model(saved_model(nodes, &[("x", int, &[2])], &[("y", int, &[2])]))
}

/// The input of [`busy`].
pub(crate) fn size(size: i32) -> TensorProto {
    TensorProto { int_val: vec![size, size], ..tensor(3, &[2]) }
}

/// The input of [`busy`], in requests of one length.
pub(crate) fn content(size: i32) -> TensorProto {
    let content = [size.to_le_bytes(), size.to_le_bytes()].concat().into();
    TensorProto { tensor_content: content, ..tensor(3, &[2]) }
}

fn model(saved_model: outrigger_proto::tensorflow::SavedModel) -> Model {
    Model { saved_model, metadata: Default::default() }
}
