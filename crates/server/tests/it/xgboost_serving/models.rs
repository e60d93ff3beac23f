//! Its ModelService: the states of versions, and the load of models.

use outrigger_proto::tensorflow::serving::{
    GetModelStatusRequest, ModelConfig, ModelConfigList, ModelServerConfig, ModelVersionStatus,
    ReloadConfigRequest, ReloadConfigResponse, ServableVersionPolicy,
    model_server_config::Config,
    model_service_client::ModelServiceClient,
    model_spec::VersionChoice,
    model_version_status::State,
    servable_version_policy::{PolicyChoice, Specific},
};
use outrigger_testkit::package::{Framework, Package};
use tonic::{Code, Status, transport::Channel};

use super::fixture::{TREES, predict, publish, request, spec, start};
use crate::{
    auth::audit,
    logged::logged,
    stack::{Stack, channel, reason},
};

const OPEN: (&str, &str) = ("auth.xgboost_serving", "[change]");

fn client(stack: &Stack) -> ModelServiceClient<Channel> {
    ModelServiceClient::new(channel(stack.addresses.xgboost_serving.expect("a listener")))
}

async fn states(
    stack: &Stack,
    choice: Option<VersionChoice>,
) -> Result<Vec<ModelVersionStatus>, Status> {
    let asked = GetModelStatusRequest { model_spec: Some(spec(TREES, choice)) };
    Ok(client(stack).get_model_status(asked).await?.into_inner().model_version_status)
}

fn numbers(states: &[ModelVersionStatus]) -> Vec<(i64, State)> {
    states.iter().map(|it| (it.version, it.state())).collect()
}

async fn reload(stack: &Stack, configs: Vec<ModelConfig>) -> Result<ReloadConfigResponse, Status> {
    let config = Some(Config::ModelConfigList(ModelConfigList { config: configs }));
    let config = Some(ModelServerConfig { config });
    let request = ReloadConfigRequest { config, ..ReloadConfigRequest::default() };
    Ok(client(stack).handle_reload_config_request(request).await?.into_inner())
}

fn model(name: &str) -> ModelConfig {
    ModelConfig { name: name.to_owned(), ..ModelConfig::default() }
}

fn specific(versions: &[i64]) -> ModelConfig {
    let specific = Specific { versions: versions.to_vec() };
    let policy = ServableVersionPolicy { policy_choice: Some(PolicyChoice::Specific(specific)) };
    ModelConfig { model_version_policy: Some(policy), ..model(TREES) }
}

#[tokio::test]
async fn versions_have_states_by_number_and_by_label() {
    let stack = start(&[OPEN]).await;
    let unknown = states(&stack, None).await.expect_err("nobody asked for it");
    assert_eq!((unknown.code(), &*reason(&unknown)), (Code::NotFound, "MODEL_NOT_FOUND"));
    publish(&stack, TREES, "8", 10).await;
    publish(&stack, TREES, "stable", 20).await;
    reload(&stack, vec![specific(&[7, 8])]).await.expect("loaded");
    let all = states(&stack, None).await.expect("states");
    assert_eq!(numbers(&all), [(8, State::Available), (7, State::Available)]);
    assert!(all.iter().all(|it| it.status.as_ref().is_some_and(|it| it.error_code == 0)));
    let one = states(&stack, Some(VersionChoice::Version(7))).await.expect("a state");
    assert_eq!(numbers(&one), [(7, State::Available)]);

    let label = VersionChoice::VersionLabel("stable".to_owned());
    let status = states(&stack, Some(label.clone())).await.expect_err("nobody asked for it");
    assert_eq!((status.code(), &*reason(&status)), (Code::NotFound, "TAG_NOT_FOUND"));
    let mut asked = request(TREES, &[("xgboost_features", &[])]);
    asked.model_spec = Some(spec(TREES, Some(label.clone())));
    predict(&stack, asked).await.expect("an answer");
    let labelled = states(&stack, Some(label)).await.expect("a state");
    assert_eq!(numbers(&labelled), [(0, State::Available)], "it has no number");
}

#[tokio::test]
async fn names_may_have_capitals() {
    // Other tests of this process write to the same log.
    const LOADED: &str = "ads/trees-capitals";
    let lines = logged();
    let stack = start(&[OPEN]).await;
    publish(&stack, LOADED, "7", 3).await;
    let named = |name: &str| ModelConfig { name: name.to_owned(), ..specific(&[7]) };
    reload(&stack, vec![named("Ads/Trees-Capitals"), named(LOADED)]).await.expect("loaded");
    assert_eq!(audit(&lines, LOADED).len(), 1, "both are the same model");
    let asked = GetModelStatusRequest { model_spec: Some(spec("ADS/TREES-CAPITALS", None)) };
    let found = client(&stack).get_model_status(asked).await.expect("a state").into_inner();
    assert_eq!(numbers(&found.model_version_status), [(7, State::Available)]);
}

#[tokio::test]
async fn a_version_that_cannot_be_loaded_has_an_error() {
    let stack = start(&[OPEN]).await;
    let package = Package { framework: Framework::Xgboost, ..Package::default() };
    let mut files = package.files();
    files.iter_mut().filter(|(path, _)| path.ends_with("model.json")).for_each(|(_, content)| {
        "{}".clone_into(content);
    });
    stack.publish_files("ads/broken", "7", &files).await;
    reload(&stack, vec![model("ads/broken")]).await.expect_err("no trees");
    let asked = GetModelStatusRequest { model_spec: Some(spec("ads/broken", None)) };
    let states = client(&stack).get_model_status(asked).await.expect("a state").into_inner();
    let [state] = &states.model_version_status[..] else { panic!("{states:?}") };
    let status = state.status.clone().unwrap_or_default();
    assert_eq!((state.state(), status.error_code), (State::End, Code::FailedPrecondition as i32));
    assert!(status.error_message.starts_with("IMAGE_INVALID"), "{status:?}");
}

#[tokio::test]
async fn lines_that_a_lenient_model_skips_are_logged_at_its_load() {
    let lines = logged();
    let stack = start(&[OPEN]).await;
    let package = Package { framework: Framework::GbdtFm, ..Package::default() };
    let mut files = package.files();
    files.push(("gbdt_fm/options.json".to_owned(), r#"{"lenient": true}"#.to_owned()));
    let machine = files.iter_mut().find(|(path, _)| path.ends_with("deploy.fm")).expect("there");
    // The other lines have no vectors, and are skipped too.
    machine.1.push_str("7 1 0\nmalformed\n");
    let digest = stack.publish_files("ads/lenient", "7", &files).await;
    reload(&stack, vec![model("ads/lenient")]).await.expect("loaded");
    let all = lines.all();
    let of_version =
        |line: &&serde_json::Value| line["level"] == "WARN" && line["model.digest"] == *digest;
    let found: Vec<_> = all.iter().filter(of_version).collect();
    let [line] = found[..] else { panic!("{found:?}") };
    let message = line["message"].as_str().unwrap_or_default();
    let expected = "; of the first one, the FM file is invalid in line 2: it has 2 fields";
    assert!(message.ends_with(expected), "{line}");
}

#[tokio::test]
async fn a_reload_takes_the_right_to_change() {
    let stack = start(&[("auth.anonymous", "[predict, read]")]).await;
    let status = reload(&stack, vec![model(TREES)]).await.expect_err("anonymous");
    assert_eq!(reason(&status), "UNAUTHENTICATED");
    // The further right holds on this listener alone.
    let stack = start(&[OPEN, ("auth.anonymous", "[predict, read]")]).await;
    reload(&stack, vec![model(TREES)]).await.expect("loaded");
    let load = outrigger_proto::outrigger::v1::LoadModelRequest {
        model: Some(crate::stack::by_name(TREES)),
    };
    let status = stack.admin().load_model(load).await.expect_err("anonymous");
    assert_eq!(reason(&status), "UNAUTHENTICATED");
}

#[tokio::test]
async fn a_version_that_is_named_again_and_again_is_loaded_once() {
    // Other tests of this process write to the same log.
    const REPEATED: &str = "ads/trees-repeated";
    let lines = logged();
    let stack = start(&[OPEN]).await;
    publish(&stack, REPEATED, "7", 3).await;
    let named = |config: ModelConfig| ModelConfig { name: REPEATED.to_owned(), ..config };
    let configs = vec![named(specific(&[7; 1000])), named(specific(&[7])), model(REPEATED)];
    reload(&stack, configs).await.expect("loaded");
    let loads = audit(&lines, REPEATED);
    assert_eq!(loads.len(), 2, "one for the number, one for the default version: {loads:?}");
}

#[tokio::test]
async fn a_reload_loads_what_it_names_and_nothing_else() {
    let stack = start(&[OPEN]).await;
    let response = reload(&stack, vec![specific(&[7])]).await.expect("loaded");
    assert_eq!(response.status.unwrap_or_default().error_code, 0);
    let named = |config: ModelConfig| vec![config];
    let labels = |label: &str, number| ModelConfig {
        version_labels: [(label.to_owned(), number)].into(),
        ..model(TREES)
    };
    reload(&stack, named(labels("7", 7))).await.expect("the label is set");
    for (configs, expected) in [
        (vec![], "REQUEST_MALFORMED"),
        (named(specific(&[])), "REQUEST_MALFORMED"),
        (named(model("")), "REQUEST_MALFORMED"),
        (named(ModelConfig { base_path: "/etc".to_owned(), ..model(TREES) }), "REQUEST_MALFORMED"),
        (named(labels("stable", 7)), "REQUEST_MALFORMED"),
        (named(labels("stable", 9)), "REQUEST_MALFORMED"),
        (named(specific(&[9])), "TAG_NOT_FOUND"),
        (named(model("unknown")), "MODEL_NOT_FOUND"),
    ] {
        let status = reload(&stack, configs).await.expect_err(expected);
        assert_eq!(reason(&status), expected, "{status}");
    }
    let status = client(&stack).handle_reload_config_request(ReloadConfigRequest::default()).await;
    assert_eq!(reason(&status.expect_err("no configuration")), "REQUEST_MALFORMED");
}
