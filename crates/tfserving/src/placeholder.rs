//! The smallest model an engine loads.

use std::collections::HashMap;

use bytes::Bytes;
use outrigger_proto::tensorflow::{
    AttrValue, DataType, GraphDef, MetaGraphDef, NodeDef, SavedModel, SignatureDef, TensorInfo,
    TensorShapeProto, VersionDef, attr_value::Value, meta_graph_def::MetaInfoDef,
    tensor_shape_proto::Dim,
};
use prost::Message as _;

/// The contents of the `saved_model.pb` of a placeholder: a model that returns its one input, `x`,
/// as `y` (float, any number of values). It has no variables, and loads in about a millisecond.
///
/// An engine's reload waits until a name it has not seen has loaded something, so a new name loads
/// this placeholder first.
pub fn placeholder() -> Bytes {
    let info = MetaInfoDef { tags: vec!["serve".to_owned()], ..Default::default() };
    let graph = GraphDef {
        node: vec![node("x", "Placeholder", &[], "dtype"), node("y", "Identity", &["x"], "T")],
        // A GraphDef version that TensorFlow 2.x of any age reads.
        versions: Some(VersionDef { producer: 1000, min_consumer: 0 }),
    };
    let signature = SignatureDef {
        inputs: HashMap::from([("x".to_owned(), tensor_info("x:0"))]),
        outputs: HashMap::from([("y".to_owned(), tensor_info("y:0"))]),
        method_name: "tensorflow/serving/predict".to_owned(),
        ..Default::default()
    };
    let meta_graph = MetaGraphDef {
        meta_info_def: Some(info),
        graph_def: Some(graph),
        signature_def: HashMap::from([("serving_default".to_owned(), signature)]),
    };
    let model = SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta_graph] };
    model.encode_to_vec().into()
}

fn node(name: &str, op: &str, inputs: &[&str], type_attr: &str) -> NodeDef {
    let float = AttrValue { value: Some(Value::Type(DataType::DtFloat.into())) };
    NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|&input| input.to_owned()).collect(),
        attr: HashMap::from([(type_attr.to_owned(), float)]),
        ..Default::default()
    }
}

fn tensor_info(name: &str) -> TensorInfo {
    let dim = Dim { size: -1, ..Default::default() };
    TensorInfo {
        name: name.to_owned(),
        dtype: DataType::DtFloat.into(),
        tensor_shape: Some(TensorShapeProto { dim: vec![dim], unknown_rank: false }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_placeholder_is_a_small_saved_model_with_one_consistent_signature() {
        let bytes = placeholder();
        assert!(bytes.len() < 400, "{} bytes", bytes.len());
        let model = SavedModel::decode(bytes).expect("decodes");
        let [meta_graph] = &model.meta_graphs[..] else { panic!("one meta graph") };
        assert_eq!(meta_graph.meta_info_def.as_ref().expect("info").tags, ["serve"]);
        let nodes = &meta_graph.graph_def.as_ref().expect("graph").node;
        let signature = &meta_graph.signature_def["serving_default"];
        for info in signature.inputs.values().chain(signature.outputs.values()) {
            let node = info.name.strip_suffix(":0").expect("a first output");
            assert!(nodes.iter().any(|known| known.name == node), "{}", info.name);
        }
    }
}
