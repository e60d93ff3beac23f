//! Compiles the .proto files to Rust, without protoc.

#[path = "src/shown/fields.rs"]
#[allow(unreachable_pub)]
mod fields;

use std::{env, fs, path::PathBuf};

use prost::Message as _;
use tonic_build::manual;
use tonic_prost_build::Builder;

use fields::{MESSAGES, OMITTED, RENAMED, SHOWN_BY};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PUBLIC: [&str; 4] = [
    "outrigger/v1/prediction.proto",
    "outrigger/v1/model.proto",
    "outrigger/v1/canary.proto",
    "outrigger/v1/validation.proto",
];
const ENGINE: [&str; 3] =
    ["tensorflow/tensor.proto", "tensorflow/saved_model.proto", "tensorflow/serving/serving.proto"];
const INFERENCE: [&str; 1] = ["inference/inference.proto"];

fn main() -> Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed={}", root.display());

    let public = protox::compile(PUBLIC, [&root])?;
    fs::write(out.join("outrigger.v1.bin"), public.encode_to_vec())?;

    let inference = protox::compile(INFERENCE, [&root])?;
    fs::write(out.join("inference.bin"), inference.encode_to_vec())?;

    let all = protox::compile(PUBLIC.iter().chain(&ENGINE).chain(&INFERENCE), [&root])?;
    shown(tonic_prost_build::configure())
        .build_transport(false)
        .bytes(".tensorflow")
        .bytes(".inference")
        .btree_map(".inference")
        .bytes(".outrigger.v1.Matrix")
        .bytes(".outrigger.v1.ExplainedTensor")
        .compile_fds(all)?;

    manual::Builder::new().build_transport(false).compile(&[outrigger_raw(), engine_raw()]);
    Ok(())
}

/// Lets the messages serialise as the HTTP surface shows them.
fn shown(mut builder: Builder) -> Builder {
    for message in MESSAGES {
        let path = format!(".outrigger.v1.{message}");
        builder = builder.message_attribute(path, "#[derive(serde::Serialize)]");
    }
    for (by, fields) in SHOWN_BY {
        let attribute = format!("#[serde(serialize_with = \"crate::shown::{by}\")]");
        for field in fields {
            builder = builder.field_attribute(format!(".outrigger.v1.{field}"), &attribute);
        }
    }
    for (field, key) in RENAMED {
        let attribute = format!("#[serde(rename = \"{key}\")]");
        builder = builder.field_attribute(format!(".outrigger.v1.{field}"), attribute);
    }
    for field in OMITTED {
        builder = builder.field_attribute(format!(".outrigger.v1.{field}"), "#[serde(skip)]");
    }
    builder
}

/// The prediction service with undecoded messages, for servers that read requests in
/// place.
fn outrigger_raw() -> manual::Service {
    let service = manual::Service::builder().name("PredictionService").package("outrigger.v1");
    service
        .method(raw_method("predict", "Predict"))
        .method(raw_method("batch_predict", "BatchPredict"))
        .method(raw_method("explain", "Explain"))
        .build()
}

/// The engine's Predict method with undecoded messages.
fn engine_raw() -> manual::Service {
    let service =
        manual::Service::builder().name("PredictionService").package("tensorflow.serving");
    service.method(raw_method("predict", "Predict")).build()
}

fn raw_method(name: &str, route: &str) -> manual::Method {
    manual::Method::builder()
        .name(name)
        .route_name(route)
        .input_type("bytes::Bytes")
        .output_type("bytes::Bytes")
        .codec_path("crate::raw::RawCodec")
        .build()
}
