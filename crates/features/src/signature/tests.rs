use outrigger_proto::tensorflow::{
    DataType, GraphDef, MetaGraphDef, NodeDef, SavedModel, SignatureDef, TensorInfo, TensorProto,
    TensorShapeProto, meta_graph_def::MetaInfoDef, tensor_shape_proto::Dim,
};
use prost::Message;

use super::*;
use crate::Metadata;

const METADATA: &[u8] = include_bytes!("../../tests/metadata/good/architecture.json");

fn shape(sizes: &[i64]) -> TensorShapeProto {
    let dim = sizes.iter().map(|size| Dim { size: *size, ..Dim::default() }).collect();
    TensorShapeProto { dim, unknown_rank: false }
}

fn info(dtype: DataType, sizes: &[i64]) -> TensorInfo {
    let (dtype, tensor_shape) = (dtype.into(), Some(shape(sizes)));
    TensorInfo { name: "op:0".into(), dtype, tensor_shape }
}

/// The signature that the architecture's example metadata describes.
fn signature() -> SignatureDef {
    let inputs = [
        ("user_numeric", info(DataType::DtFloat, &[-1, 5])),
        ("user_segment", info(DataType::DtInt64, &[-1, 1])),
        ("treatment_numeric", info(DataType::DtFloat, &[-1, -1, 2])),
        ("treatment_counts", info(DataType::DtInt32, &[-1])),
    ];
    SignatureDef {
        inputs: inputs.map(|(name, info)| (name.to_owned(), info)).into(),
        outputs: [("scores".to_owned(), info(DataType::DtFloat, &[-1, -1]))].into(),
        ..SignatureDef::default()
    }
}

fn check(signature: &SignatureDef) -> Result<(), String> {
    let metadata = Metadata::parse(METADATA).expect("valid");
    metadata.check_signature(signature).map_err(|error| error.to_string())
}

fn change_input(name: &str, info: TensorInfo) -> Result<(), String> {
    let mut changed = signature();
    changed.inputs.insert(name.to_owned(), info);
    check(&changed)
}

fn change_output(info: TensorInfo) -> Result<(), String> {
    let mut changed = signature();
    changed.outputs.insert("scores".to_owned(), info);
    check(&changed)
}

fn saved_model(tags: &[&[&str]]) -> Vec<u8> {
    let node = NodeDef { name: "n".repeat(1000), ..NodeDef::default() };
    let graph = |tags: &&[&str]| MetaGraphDef {
        meta_info_def: Some(MetaInfoDef {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..MetaInfoDef::default()
        }),
        graph_def: Some(GraphDef { node: vec![node.clone()], ..GraphDef::default() }),
        signature_def: [
            ("serving_default".to_owned(), signature()),
            (INIT.to_owned(), SignatureDef::default()),
        ]
        .into(),
    };
    let meta_graphs = tags.iter().map(graph).collect();
    SavedModel { saved_model_schema_version: 1, meta_graphs }.encode_to_vec()
}

#[test]
fn a_signature_is_found_in_the_serving_graph() {
    let model = saved_model(&[&["serve", "gpu"], &["serve"]]);
    assert_eq!(read(&model, "serving_default"), Ok(signature()));
    let missing = read(&model, "rank").expect_err("no such signature").to_string();
    assert_eq!(
        missing,
        r#"metadata.json names signature "rank"; the model has ["serving_default"]"#
    );
}

#[test]
fn a_model_without_a_serving_graph_is_refused() {
    let found = vec![vec!["train".to_owned()]];
    assert_eq!(
        read(&saved_model(&[&["train"]]), "serving_default"),
        Err(SignatureError::NotServable { found })
    );
    assert_eq!(
        read(b"", "serving_default"),
        Err(SignatureError::NotServable { found: Vec::new() })
    );
}

#[test]
fn a_model_cut_short_is_unreadable_wherever_it_is_cut() {
    let model = saved_model(&[&["serve"]]);
    for length in 3..model.len() {
        let error = read(&model[..length], "serving_default").expect_err("cut short");
        assert!(matches!(error, SignatureError::Unreadable(_)), "{length}: {error}");
    }
}

#[test]
fn the_graph_is_not_decoded() {
    let mut model = saved_model(&[&["serve"]]);
    let graph = model.windows(4).position(|bytes| bytes == b"nnnn").expect("the node's name");
    model[graph..graph + 1000].fill(0xff);
    assert_eq!(read(&model, "serving_default"), Ok(signature()));
}

#[test]
fn metadata_that_agrees_is_accepted() {
    assert_eq!(check(&signature()), Ok(()));
    let unknown = TensorShapeProto { dim: Vec::new(), unknown_rank: true };
    let any = TensorInfo { tensor_shape: Some(unknown), ..info(DataType::DtFloat, &[]) };
    assert_eq!(change_input("user_numeric", any.clone()), Ok(()));
    assert_eq!(change_input("treatment_numeric", info(DataType::DtFloat, &[-1, -1, -1])), Ok(()));
    assert_eq!(change_output(any), Ok(()));
    assert_eq!(change_output(info(DataType::DtInt64, &[-1, -1, 1])), Ok(()));
}

#[test]
fn reference_types_count_as_their_base() {
    let reference = TensorInfo { dtype: 101, ..info(DataType::DtFloat, &[-1, -1]) };
    assert_eq!(change_output(reference), Ok(()));
}

#[test]
fn contradictions_tell_both_sides() {
    let cases = [
        (
            change_input("user_segment", info(DataType::DtString, &[-1, 1])),
            r#"inputs[1].dtype: metadata.json says "user_segment" is int64; the model says it is string"#,
        ),
        (
            change_input("user_numeric", info(DataType::DtFloat, &[-1, 6])),
            r#"inputs[0]: metadata.json says "user_numeric" is [B, 5] (2 user features, width 5); the model says it is [?, 6]"#,
        ),
        (
            change_input("treatment_numeric", info(DataType::DtFloat, &[-1, 2])),
            r#"inputs[2]: metadata.json says "treatment_numeric" is [B, T, 2] (2 treatment features, width 2); the model says it is [?, 2]"#,
        ),
        (
            change_input("treatment_counts", info(DataType::DtInt32, &[8])),
            r#"inputs[3]: metadata.json says "treatment_counts" is [B] (treatment_count); the model says it is [8]"#,
        ),
        (
            change_input("extra", info(DataType::DtFloat, &[-1])),
            r#"inputs: metadata.json says that its inputs are ["user_numeric", "user_segment", "treatment_numeric", "treatment_counts"]; the model says it also needs ["extra"]"#,
        ),
        (
            change_output(info(DataType::DtString, &[-1, -1])),
            r#"outputs[0]: metadata.json says "scores" is an output of numbers (float32, float64, int32 or int64); the model says it is string"#,
        ),
        (
            change_output(info(DataType::DtFloat, &[-1, -1, 2])),
            r#"outputs[0].kind: metadata.json says "scores" is per_treatment: [B, T] or [B, T, 1]; the model says it is [?, ?, 2]"#,
        ),
        (
            change_output(TensorInfo { name: String::new(), ..info(DataType::DtFloat, &[-1, -1]) }),
            r#"outputs[0].tensor: metadata.json says "scores" is a dense tensor; the model says it is sparse or composite"#,
        ),
    ];
    for (result, message) in cases {
        assert_eq!(result, Err(message.to_owned()));
    }
}

#[test]
fn tensors_the_model_does_not_have_are_named() {
    let mut without = signature();
    without.inputs.remove("user_numeric");
    let message = check(&without).expect_err("not there");
    assert!(
        message.contains(r#"input "user_numeric" is fed; the model says its inputs are"#),
        "{message}"
    );
    let mut without = signature();
    without.outputs.clear();
    let message = check(&without).expect_err("not there");
    assert!(message.ends_with("the model says its outputs are []"), "{message}");
}

#[test]
fn an_input_with_a_default_of_its_own_need_not_be_fed() {
    let mut extra = signature();
    extra.inputs.insert("temperature".into(), info(DataType::DtFloat, &[]));
    assert!(check(&extra).is_err());
    extra.defaults.insert("temperature".into(), TensorProto::default());
    assert_eq!(check(&extra), Ok(()));
}
