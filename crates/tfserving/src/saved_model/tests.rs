use std::io::{Cursor, SeekFrom};

use outrigger_core::{DType, Shape, TensorSpec};
use outrigger_proto::tensorflow::{
    DataType, GraphDef, MetaGraphDef, NodeDef, SavedModel, SignatureDef, TensorInfo,
    TensorShapeProto, meta_graph_def::MetaInfoDef, tensor_shape_proto::Dim,
};
use proptest::{collection::vec, prelude::*};
use prost::{Message, encoding::encode_varint};

use super::*;

fn read(model: impl AsRef<[u8]>, signature: &str) -> Result<Interface, SavedModelError> {
    read_interface(Cursor::new(model), signature)
}

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
    assert_eq!(read(&model, "serving_default"), Ok(expected()));
    let missing = read(&model, "rank").expect_err("no such signature");
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
        read(saved_model(&[&["train"]]), "serving_default"),
        Err(SavedModelError::NotServable { found })
    );
    assert_eq!(
        read(b"", "serving_default"),
        Err(SavedModelError::NotServable { found: Vec::new() })
    );
}

#[test]
fn a_model_cut_short_is_unreadable_wherever_it_is_cut() {
    let model = saved_model(&[&["serve"]]);
    for length in 3..model.len() {
        let error = read(&model[..length], "serving_default").expect_err("cut short");
        assert!(matches!(error, SavedModelError::Unreadable(_)), "{length}: {error}");
    }
}

#[test]
fn the_graph_is_not_decoded() {
    let mut model = saved_model(&[&["serve"]]);
    let graph = model.windows(4).position(|bytes| bytes == b"nnnn").expect("the node's name");
    model[graph..graph + 1000].fill(0xff);
    assert_eq!(read(&model, "serving_default"), Ok(expected()));
}

/// A file that counts the bytes read from it.
struct Counted<'a>(Cursor<Vec<u8>>, &'a mut usize);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(buffer)?;
        *self.1 += count;
        Ok(count)
    }
}

impl Seek for Counted<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn the_graph_is_not_read() {
    let mut model = SavedModel::decode(&*saved_model(&[&["serve"]])).expect("a model");
    let graph = model.meta_graphs[0].graph_def.as_mut().expect("a graph");
    graph.node[0].name = "n".repeat(16 << 20);
    let mut count = 0;
    let file = Counted(Cursor::new(model.encode_to_vec()), &mut count);
    assert_eq!(read_interface(file, "serving_default"), Ok(expected()));
    assert!(count < 64 << 10, "{count} bytes of 16 MiB were read");
}

#[test]
fn tags_and_signatures_are_read_within_a_limit() {
    let model = |name: usize, tags: usize| {
        let mut model = SavedModel::decode(&*saved_model(&[&["serve"]])).expect("a model");
        let graph = &mut model.meta_graphs[0];
        graph.signature_def.insert("s".repeat(name), signature());
        graph.meta_info_def.as_mut().expect("it has tags").tags.extend(vec![String::new(); tags]);
        model.encode_to_vec()
    };
    assert_eq!(read(model(256 << 10, 0), "serving_default"), Ok(expected()));
    for large in [model(512 << 10, 0), model(0, 256 << 10)] {
        let error = read(large, "serving_default").expect_err("too large");
        assert_eq!(error, SavedModelError::TooLarge { limit: 512 << 10 });
    }
}

#[test]
fn a_signature_that_is_nested_too_deeply_is_refused() {
    let model = SavedModel::decode(&*saved_model(&[&["serve"]])).expect("a model");
    let delimited = |key: u8, content: Vec<u8>| {
        let mut message = vec![key];
        encode_varint(content.len() as u64, &mut message);
        [message, content].concat()
    };
    // The entry has no name, and its value has groups in groups.
    let groups = |depth| {
        let value = [vec![0x4b; depth], vec![0x4c; depth]].concat();
        let entry = delimited(0x2a, delimited(0x12, value));
        delimited(0x12, [model.meta_graphs[0].encode_to_vec(), entry].concat())
    };
    assert_eq!(read(groups(90), ""), Ok(Interface::default()));
    let error = read(groups(100_000), "").expect_err("nested too deeply");
    assert!(error.to_string().contains("recursion limit"), "{error}");
}

#[test]
fn groups_are_skipped_and_must_end() {
    let mut model = saved_model(&[&["serve"]]);
    // Field 9 as a group with a varint, a text and a group in it.
    let group = [0x4b, 0x08, 0x01, 0x12, 0x01, b'x', 0x53, 0x54, 0x4c];
    model.extend(group);
    assert_eq!(read(&model, "serving_default"), Ok(expected()));
    for wrong in [&group[..8], &[0x4c], &[0x4b; 200]] {
        let model = [saved_model(&[&["serve"]]), wrong.to_vec()].concat();
        let error = read(model, "serving_default").expect_err("malformed");
        assert!(matches!(error, SavedModelError::Unreadable(_)), "{error}");
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes, "serving_default");
    }
}
