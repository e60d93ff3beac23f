//! A server with the listener of XGBoost Serving's interface, and models that take sparse rows.

use std::collections::HashMap;

use outrigger_proto::{
    tensorflow::{
        TensorProto,
        serving::{ModelSpec, model_spec::VersionChoice},
    },
    xgboost_serving::{
        FeatureScore, FeatureScoreVector, PredictRequest, PredictResponse,
        prediction_service_client::PredictionServiceClient,
    },
};
use outrigger_testkit::package::{Framework, Package};
use serde_json::{Value, json};
use tonic::{Status, transport::Channel};

use crate::stack::{Stack, channel};

/// Trees whose margin is 3 and the sum of the weights of the ids 1 and 2.
pub(crate) const TREES: &str = "ads/trees";
/// As `TREES`, with a factorisation machine whose feature [`ONE`] adds 1 for each unit of weight.
pub(crate) const MACHINE: &str = "ads/machine";
/// A feature of the factorisation machine alone.
pub(crate) const ONE: u64 = 1036;
pub(crate) const BIAS: u16 = 3;

/// A row: ids with their weights.
pub(crate) type Row<'a> = &'a [(u64, f32)];

/// A server with the listener, and both models under the tag `7`.
pub(crate) async fn start(settings: &[(&str, &str)]) -> Stack {
    let listener = [("server.xgboost_serving", "127.0.0.1:0"), ("images.default_tag", "7")];
    let stack = Stack::with(&[&listener[..], settings].concat()).await;
    publish(&stack, TREES, "7", BIAS).await;
    publish(&stack, MACHINE, "7", BIAS).await;
    stack
}

/// Publishes [`TREES`] or [`MACHINE`] with a bias; returns the digest. Those of different tags differ.
pub(crate) async fn publish(stack: &Stack, name: &str, tag: &str, bias: u16) -> String {
    publish_changed(stack, name, tag, bias, |_| ()).await
}

/// As [`publish`], with a change of metadata.json. Other names are those of trees.
pub(crate) async fn publish_changed(
    stack: &Stack,
    name: &str,
    tag: &str,
    bias: u16,
    change: impl FnOnce(&mut Value),
) -> String {
    let (framework, mut metadata) = match name {
        MACHINE => (Framework::GbdtFm, machine_metadata()),
        _ => (Framework::Xgboost, trees_metadata()),
    };
    metadata["annotations"] = json!({"tag": tag});
    change(&mut metadata);
    let mut files = Package { framework, bias, ..Package::default() }.files();
    for (path, content) in &mut files {
        if path == "metadata.json" {
            *content = metadata.to_string();
        }
    }
    stack.publish_files(name, tag, &files).await
}

fn input(name: &str) -> Value {
    json!({
        "tensor": name, "weights": format!("{name}_weights"), "lengths": format!("{name}_lengths"),
        "entity": "joined", "dtype": "int64",
        "features": [{"name": name, "entity": "treatment", "max": 100, "default": []}],
    })
}

fn output(tensor: &str) -> Value {
    json!({"tensor": tensor, "name": tensor, "kind": "per_treatment"})
}

pub(crate) fn trees_metadata() -> Value {
    let leaf = json!({"tensor": "leaf", "name": "leaf", "kind": "per_treatment", "width": 2,
        "score": {"column": 0}});
    json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "xgboost",
        "signature": "sparse",
        "inputs": [input("xgboost_features")],
        "outputs": [output("value"), output("margin"), leaf],
    })
}

fn machine_metadata() -> Value {
    json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "gbdt_fm",
        "inputs": [input("xgboost_features"), input("fm_features")],
        "outputs": [output("score")],
    })
}

pub(crate) fn client(stack: &Stack) -> PredictionServiceClient<Channel> {
    let address = stack.addresses.xgboost_serving.expect("a listener");
    PredictionServiceClient::new(channel(address))
}

pub(crate) fn spec(name: &str, version_choice: Option<VersionChoice>) -> ModelSpec {
    ModelSpec { name: name.to_owned(), version_choice, ..ModelSpec::default() }
}

fn vector(rows: &[Row<'_>]) -> FeatureScoreVector {
    let row = |row: &Row<'_>| {
        let (id, score) = row.iter().copied().unzip();
        FeatureScore { id, score }
    };
    FeatureScoreVector { feature_score: rows.iter().map(row).collect() }
}

/// A request for the default version of a model.
pub(crate) fn request(name: &str, inputs: &[(&str, &[Row<'_>])]) -> PredictRequest {
    let input = |(name, rows): &(&str, &[Row<'_>])| ((*name).to_owned(), vector(rows));
    PredictRequest {
        model_spec: Some(spec(name, None)),
        inputs: inputs.iter().map(input).collect::<HashMap<_, _>>(),
        ..PredictRequest::default()
    }
}

/// The only output of a response, by its key, and the version that answered.
pub(crate) fn output_of(response: PredictResponse) -> (String, TensorProto, Option<VersionChoice>) {
    let outputs: Vec<_> = response.outputs.into_iter().collect();
    let [(key, tensor)] = outputs.try_into().expect("one output");
    (key, tensor, response.model_spec.and_then(|spec| spec.version_choice))
}

/// The values of the only output, which has this shape.
pub(crate) fn floats(response: PredictResponse, shape: &[i64]) -> Vec<f32> {
    let (_, tensor, _) = output_of(response);
    assert_eq!(sizes(&tensor), shape);
    tensor.float_val
}

pub(crate) fn sizes(tensor: &TensorProto) -> Vec<i64> {
    tensor.tensor_shape.iter().flat_map(|shape| &shape.dim).map(|dim| dim.size).collect()
}

pub(crate) async fn predict(
    stack: &Stack,
    request: PredictRequest,
) -> Result<PredictResponse, Status> {
    Ok(client(stack).predict(request).await?.into_inner())
}
