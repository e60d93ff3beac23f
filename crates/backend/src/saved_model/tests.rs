use outrigger_core::{DType, Shape, TensorSpec};
use outrigger_proto::tensorflow::{
    DataType, GraphDef, MetaGraphDef, NodeDef, SavedModel, TensorInfo, TensorShapeProto,
    meta_graph_def::MetaInfoDef, tensor_shape_proto::Dim,
};
use proptest::{collection::vec, prelude::*};
use prost::Message;

use super::*;

fn signature() -> SignatureDef {
    let dim = vec![Dim { size: -1, ..Dim::default() }];
    let tensor_shape = Some(TensorShapeProto { dim, unknown_rank: false });
    let info = TensorInfo { name: "op:0".into(), dtype: DataType::DtFloat.into(), tensor_shape };
    SignatureDef {
        inputs: [("x".to_owned(), info.clone())].into(),
        outputs: [("y".to_owned(), info)].into(),
        ..SignatureDef::default()
    }
}

fn expected() -> Interface {
    let spec = |name: &str| TensorSpec::new(name, DType::Float32.into(), Shape::of(&[-1]));
    Interface::new(vec![spec("x")], vec![spec("y")])
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
fn an_interface_is_found_in_the_serving_graph() {
    let model = saved_model(&[&["serve", "gpu"], &["serve"]]);
    assert_eq!(read_interface(&model, "serving_default"), Ok(expected()));
    let missing = read_interface(&model, "rank").expect_err("no such signature");
    assert_eq!(missing.reason(), Reason::ImageInvalid);
    assert_eq!(
        missing.to_string(),
        r#"metadata.json names signature "rank"; the model has ["serving_default"]"#
    );
}

#[test]
fn a_model_without_a_serving_graph_is_refused() {
    let found = vec![vec!["train".to_owned()]];
    assert_eq!(
        read_interface(&saved_model(&[&["train"]]), "serving_default"),
        Err(SavedModelError::NotServable { found })
    );
    assert_eq!(
        read_interface(b"", "serving_default"),
        Err(SavedModelError::NotServable { found: Vec::new() })
    );
}

#[test]
fn a_model_cut_short_is_unreadable_wherever_it_is_cut() {
    let model = saved_model(&[&["serve"]]);
    for length in 3..model.len() {
        let error = read_interface(&model[..length], "serving_default").expect_err("cut short");
        assert!(matches!(error, SavedModelError::Unreadable(_)), "{length}: {error}");
    }
}

#[test]
fn the_graph_is_not_decoded() {
    let mut model = saved_model(&[&["serve"]]);
    let graph = model.windows(4).position(|bytes| bytes == b"nnnn").expect("the node's name");
    model[graph..graph + 1000].fill(0xff);
    assert_eq!(read_interface(&model, "serving_default"), Ok(expected()));
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..300)) {
        let _ = read_interface(&bytes, "serving_default");
    }
}
