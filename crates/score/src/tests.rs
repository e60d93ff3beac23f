//! Tests of the outputs that a run requests.

use std::{cell::Cell, sync::Mutex, time::Duration};

use arc_swap::ArcSwap;

use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::{ModelName, Reason, ServableName, Version};
use outrigger_features::Metadata;
use outrigger_proto::outrigger::v1::{PredictRequest, ResponseOptions};
use outrigger_run::RunError;
use prost::Message as _;
use serde_json::json;

use super::*;

/// Records the calls, and fails them.
#[derive(Default)]
struct Recorded(Mutex<Vec<Call>>);

impl Run for Recorded {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        self.0.lock().expect("no panic").push(call);
        async { Err(RunError::Overloaded) }.boxed()
    }
}

/// An engine that has ended: each call is lost, as on a connection that does not show its end yet.
struct Ended;

impl Run for Ended {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        let Call { inputs, .. } = call;
        async { Err(RunError::Lost { inputs, source: "the connection was closed".into() }) }.boxed()
    }
}

fn scorer() -> (Scorer, Arc<Recorded>) {
    let metadata = json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "tensorflow",
        "deterministic": false,
        "inputs": [
            {"tensor": "offers", "entity": "treatment", "dtype": "float32",
             "features": [{"name": "price", "missing": "nan"}]},
            {"tensor": "counts", "entity": "treatment_count", "dtype": "int32"},
        ],
        "outputs": [
            {"tensor": "scores", "name": "score", "kind": "per_treatment"},
            {"tensor": "chances", "name": "chance", "kind": "per_treatment", "role": "propensity"},
        ],
    });
    let plan = Plan::compile(Metadata::parse(metadata.to_string().as_bytes()).expect("valid"));
    let model: ModelName = "m".parse().expect("a valid name");
    let id = ServableId { name: ServableName::of(&model), version: Version(1) };
    let run = Arc::new(Recorded::default());
    let limits = Arc::new(ArcSwap::from_pointee(Limits { max_treatments: 2, ..Limits::default() }));
    (
        Scorer {
            id,
            plan: Arc::new(plan),
            run: Arc::clone(&run) as Arc<_>,
            batches: false,
            limits,
            flight: Arc::default(),
        },
        run,
    )
}

fn names(tensors: &[Tensor]) -> Vec<Arc<str>> {
    tensors.iter().map(|tensor| Arc::clone(&tensor.name)).collect()
}

#[tokio::test]
async fn a_target_knows_the_names_of_a_usual_call() {
    let (scorer, run) = scorer();
    let mut packed = scorer.pack(&scorer.plan.smoke_request().encode_to_vec()).expect("a request");
    let failure = scorer.score(&mut packed, Instant::now()).await.expect_err("it fails");
    assert_eq!(failure.reason, Reason::Overloaded);
    let target = target(scorer.id.clone(), &scorer.plan);
    let calls = run.0.lock().expect("no panic");
    assert_eq!((target.inputs, &target.outputs), (names(&calls[0].inputs), &calls[0].outputs));
}

#[tokio::test]
async fn a_score_is_observed_and_has_the_propensity_that_the_caller_left_out() {
    let (scorer, run) = scorer();
    let options = ResponseOptions { outputs: vec!["score".to_owned()], ..Default::default() };
    let request = PredictRequest { options: Some(options), ..scorer.plan.smoke_request() };
    let stages = StageTimes::recorded();
    for propensity in [false, true] {
        let mut packed = scorer.pack(&request.encode_to_vec()).expect("a request");
        let ended = Cell::new(None);
        let (deadline, stages) = (Instant::now(), stages.clone());
        let conditions = Conditions { deadline, propensity, stages };
        let begin = |_: &Packed, headers: &mut HeaderMap| {
            headers.insert("traceparent", "00".parse().expect("a valid value"));
            |result: &Result<_, Failure>| ended.set(Some(result.is_ok()))
        };
        scorer.score_observed(&mut packed, conditions, begin).await.expect_err("it fails");
        assert_eq!(ended.get(), Some(false));
    }
    let calls = run.0.lock().expect("no panic");
    let outputs: Vec<_> = calls.iter().map(|call| call.outputs.join(" ")).collect();
    assert_eq!(outputs, ["scores", "scores chances"]);
    assert!(calls.iter().all(|call| call.headers.contains_key("traceparent")));
    calls.iter().for_each(|call| call.stages.add("a stage", Duration::from_secs(1)));
    assert_eq!(stages.get("a stage"), Some(Duration::from_secs(2)), "the times of both calls");
}

#[tokio::test]
async fn the_engine_is_not_called_in_vain_nor_over_the_limits() {
    let (scorer, run) = scorer();
    let mut request = scorer.plan.smoke_request();
    let treatment = request.treatments.pop().expect("a treatment");
    request.treatments.clear();
    let mut packed = scorer.pack(&request.encode_to_vec()).expect("a request");
    assert_eq!(scorer.score(&mut packed, Instant::now()).await, Ok(Vec::new()));
    request.treatments = vec![treatment; 3];
    let failure = scorer.pack(&request.encode_to_vec()).expect_err("too many");
    assert_eq!(failure.reason, Reason::TooManyTreatments);
    assert!(run.0.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn of_calls_in_turns_the_engine_had_only_the_first_lost_one() {
    let turns = Arc::<Turns>::default();
    turns.set(Phase::Apart);
    let suspects = [0, 1].map(|_| {
        let flight = Flight::new(Arc::clone(&turns));
        flight.suspect(true);
        Scorer { run: Arc::new(Ended), flight: Arc::new(flight), ..scorer().0 }
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    for suspect in &suspects {
        let request = suspect.plan.smoke_request().encode_to_vec();
        let mut packed = suspect.pack(&request).expect("a request");
        suspect.score(&mut packed, deadline).await.expect_err("it is lost");
    }
    let were_lost = suspects.map(|suspect| suspect.flight.take_cuts().lost.is_some());
    assert_eq!(were_lost, [true, false], "the second call was sent after the engine's end");
}

#[tokio::test]
async fn an_engine_without_contributions_refuses_to_explain() {
    let (scorer, recorded) = scorer();
    let request = PredictRequest::default().encode_to_vec();
    let mut packed = scorer.pack(&request).expect("packs");
    let by = Instant::now() + Duration::from_secs(1);
    for refused in [scorer.contributions().err(), scorer.explain(&mut packed, by).await.err()] {
        assert_eq!(refused.expect("refused").reason, Reason::ContributionsUnsupported);
    }
    assert!(recorded.0.lock().expect("no panic").is_empty(), "the model is not run");
}
