//! Metadata, readiness, the repository and statistics.

use outrigger_proto::inference::{
    ModelMetadataRequest, ModelReadyRequest, ModelRepositoryParameter, ModelStatisticsRequest,
    RepositoryIndexRequest, RepositoryModelLoadRequest, RepositoryModelUnloadRequest,
    ServerLiveRequest, ServerMetadataRequest, ServerReadyRequest, StatisticDuration,
    model_repository_parameter::ParameterChoice,
};
use outrigger_testkit::engine::{Predicting, floats};
use tonic::Code;

use super::{ON, features, infer, signature, table, tensors};
use crate::stack::{MODEL, Stack, reason};

#[tokio::test]
async fn metadata_show_the_tensors_of_the_view() {
    let described = async |stack: &Stack| {
        let request = ModelMetadataRequest { name: MODEL.to_owned(), ..Default::default() };
        let metadata = stack.oip().model_metadata(request).await.expect("metadata").into_inner();
        assert_eq!((&*metadata.name, &*metadata.platform), (MODEL, "tensorflow"));
        let [version] = &metadata.versions[..] else { panic!("{metadata:?}") };
        assert!(version.starts_with("sha256:"), "{version}");
        let tensors = metadata.inputs.into_iter().chain(metadata.outputs);
        tensors.map(|it| (it.name, it.datatype, it.shape)).collect::<Vec<_>>()
    };
    let tensor = |name: &str, datatype: &str, shape: &[i64]| {
        (name.to_owned(), datatype.to_owned(), shape.to_vec())
    };
    let expected = [
        tensor("treatment", "FP32", &[-1, -1, 2]),
        tensor("treatment_counts", "INT32", &[-1]),
        tensor("user", "FP32", &[-1, 1]),
        tensor("scores", "FP32", &[-1, -1]),
    ];
    assert_eq!(described(&tensors().await).await, expected);
    let expected = [
        tensor("u0", "FP32", &[-1, 1]),
        tensor("t0", "FP32", &[-1, 1]),
        tensor("t1", "FP32", &[-1, 1]),
        tensor("score", "FP32", &[-1, 1]),
    ];
    assert_eq!(described(&features().await).await, expected);
}

#[tokio::test]
async fn the_server_and_its_models_report_readiness() {
    let stack = tensors().await;
    let mut client = stack.oip();
    assert!(client.server_live(ServerLiveRequest {}).await.expect("live").into_inner().live);
    let server = client.server_metadata(ServerMetadataRequest {}).await.expect("metadata");
    let server = server.into_inner();
    assert_eq!(server.name, "outrigger");
    assert_eq!(server.extensions, ["binary_tensor_data", "model_repository", "statistics"]);
    infer(&stack, signature()).await.expect("an answer");
    assert!(client.server_ready(ServerReadyRequest {}).await.expect("ready").into_inner().ready);

    let mut asked = async |name: &str, version: &str| {
        let (name, version) = (name.to_owned(), version.to_owned());
        client.model_ready(ModelReadyRequest { name, version }).await
    };
    assert!(asked(MODEL, "").await.expect("known").into_inner().ready);
    assert!(asked(MODEL, "latest").await.expect("known").into_inner().ready);
    for (name, version) in [("nobody", ""), (MODEL, "absent")] {
        assert_eq!(asked(name, version).await.unwrap_err().code(), Code::NotFound, "{name}");
    }
}

#[tokio::test]
async fn scores_that_are_not_finite_make_no_model_unready() {
    let stack = features().await;
    let row = || table(&[[0.5, 1.0, 2.0]]);
    infer(&stack, row()).await.expect("an answer");
    stack.engine.on_predict(|_| Predicting::Outputs(vec![floats("scores", &[1, 1], [f32::NAN])]));
    for _ in 0..10 {
        let refused = infer(&stack, row()).await.expect_err("refused");
        assert_eq!(reason(&refused), "SCORES_INVALID");
    }
    let model = ModelReadyRequest { name: MODEL.to_owned(), ..Default::default() };
    assert!(stack.oip().model_ready(model).await.expect("known").into_inner().ready);
}

#[tokio::test]
async fn bad_data_makes_no_model_unready() {
    let stack = tensors().await;
    infer(&stack, signature()).await.expect("an answer");
    let is_ready = async || {
        let model = ModelReadyRequest { name: MODEL.to_owned(), ..Default::default() };
        stack.oip().model_ready(model).await.expect("known").into_inner().ready
    };
    for (code, is_fault) in [(Code::InvalidArgument, false), (Code::Internal, true)] {
        stack.engine.on_predict(move |_| Predicting::Fails(code, "idx=9".to_owned()));
        for _ in 0..10 {
            let refused = infer(&stack, signature()).await.expect_err("refused");
            assert_eq!((refused.code(), is_ready().await || is_fault), (code, true));
        }
        assert_eq!(is_ready().await, !is_fault, "{code:?}");
    }
}

#[tokio::test]
async fn the_index_and_the_statistics_list_the_versions() {
    let stack = tensors().await;
    infer(&stack, signature()).await.expect("an answer");
    let mut wrong = signature();
    wrong.inputs[0].datatype = "INT32".to_owned();
    infer(&stack, wrong).await.expect_err("refused");

    let index = stack.oip().repository_index(RepositoryIndexRequest::default()).await;
    let index = index.expect("an index").into_inner().models;
    let [model] = &index[..] else { panic!("{index:?}") };
    assert_eq!((&*model.name, &*model.state, &*model.reason), (MODEL, "READY", ""));

    let request = ModelStatisticsRequest { name: MODEL.to_owned(), ..Default::default() };
    let statistics = stack.oip().model_statistics(request).await.expect("statistics");
    let statistics = statistics.into_inner().model_stats;
    let [found] = &statistics[..] else { panic!("{statistics:?}") };
    assert_eq!(found.version, model.version);
    assert_eq!((found.inference_count, found.execution_count), (2, 1));
    let durations = found.inference_stats.expect("durations");
    let count = |total: Option<StatisticDuration>| total.expect("a total").count;
    assert_eq!((count(durations.success), count(durations.fail)), (1, 1));
    assert!(durations.compute_infer.expect("a total").ns > 0);
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_on_the_admin_listener_only() {
    let stack = tensors().await;
    let load = || RepositoryModelLoadRequest { model_name: MODEL.to_owned(), ..Default::default() };
    let refused = stack.oip().repository_model_load(load()).await.unwrap_err();
    assert_eq!(reason(&refused), "ADMIN_ONLY");

    let mut admin = stack.oip_admin();
    admin.repository_model_load(load()).await.expect("loaded");
    let ready = ModelReadyRequest { name: MODEL.to_owned(), ..Default::default() };
    assert!(stack.oip().model_ready(ready).await.expect("known").into_inner().ready);

    let mut with_config = load();
    let config = ParameterChoice::StringParam("{}".to_owned());
    let config = ModelRepositoryParameter { parameter_choice: Some(config) };
    with_config.parameters.insert("config".to_owned(), config);
    let refused = admin.repository_model_load(with_config).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);

    let unload = |name: &str| RepositoryModelUnloadRequest {
        model_name: name.to_owned(),
        ..Default::default()
    };
    admin.repository_model_unload(unload(MODEL)).await.expect("unloaded");
    let unknown = admin.repository_model_unload(unload("nobody")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let refused = admin.model_infer(signature()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn without_the_setting_there_is_no_listener_and_no_service() {
    let stack = Stack::start().await;
    assert_eq!(stack.addresses.oip, None);
    let index = stack.oip_admin().repository_index(RepositoryIndexRequest::default()).await;
    assert_eq!(index.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn callers_need_rights() {
    let stack = Stack::with(&[ON, ("auth.anonymous", "[read]")]).await;
    let refused = infer(&stack, signature()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(stack.oip().server_live(ServerLiveRequest {}).await.is_ok());
    let load = RepositoryModelLoadRequest { model_name: MODEL.to_owned(), ..Default::default() };
    let refused = stack.oip_admin().repository_model_load(load).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}
