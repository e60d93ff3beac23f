//! The input as a saved_model.pb, whose signatures are read without the graph. The same are found
//! when prost decodes the whole file.
#![no_main]

use std::io::Cursor;

use outrigger_proto::tensorflow::SavedModel;
use outrigger_tfserving::{SavedModelError, interface, read_interface};
use prost::Message as _;

const SIGNATURE: &str = "serving_default";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let found = read_interface(Cursor::new(bytes), SIGNATURE);
    let Ok(model) = SavedModel::decode(bytes) else { return };
    let tags = |graph: &outrigger_proto::tensorflow::MetaGraphDef| {
        graph.meta_info_def.as_ref().map(|info| info.tags.clone()).unwrap_or_default()
    };
    let serving = model.meta_graphs.iter().find(|graph| tags(graph) == ["serve"]);
    let signature = serving.and_then(|graph| graph.signature_def.get(SIGNATURE));
    match (found, signature) {
        (Ok(found), Some(signature)) => assert_eq!(found, interface(signature)),
        (Ok(_), None) => panic!("a signature was found that the file does not have"),
        (Err(SavedModelError::Missing { .. } | SavedModelError::NotServable { .. }), Some(_)) => {
            panic!("the signature was not found")
        }
        (Err(_), _) => {}
    }
});
