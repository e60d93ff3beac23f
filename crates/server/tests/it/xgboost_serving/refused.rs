//! Values that a model refuses although its metadata.json allows them: the fault is the caller's.

use outrigger_proto::outrigger::v1::{PredictRequest, SparseList, Treatment, Value, value::Kind};
use serde_json::json;
use tonic::Code;

use super::fixture::{BIAS, MACHINE, ONE, Row, TREES, publish_changed};
use crate::stack::{Stack, by_name, reason};

/// A request of outrigger.v1 with these rows for the input `feature`.
fn asked(model: &str, feature: &str, rows: &[Row<'_>]) -> PredictRequest {
    let treatment = |row: &Row<'_>| {
        let (ids, weights) = row.iter().copied().unzip();
        let kind = Some(Kind::Sparse(SparseList { ids, weights, names: Vec::new() }));
        Treatment {
            features: [(feature.to_owned(), Value { kind })].into(),
            ..Treatment::default()
        }
    };
    PredictRequest {
        model: Some(by_name(model)),
        treatments: rows.iter().map(treatment).collect(),
        ..PredictRequest::default()
    }
}

#[tokio::test]
async fn a_weight_that_is_not_finite_is_the_callers_fault() {
    let stack = Stack::start().await;
    for name in [TREES, MACHINE] {
        let allow = |metadata: &mut serde_json::Value| {
            for input in metadata["inputs"].as_array_mut().expect("inputs") {
                input["features"][0]["allow_non_finite"] = json!(true);
            }
        };
        publish_changed(&stack, name, "latest", BIAS, allow).await;
    }
    let (of_trees, of_machine) = ("xgboost_features", "fm_features");
    for (model, feature, id, weight) in [
        (TREES, of_trees, 1, f32::INFINITY),
        (MACHINE, of_trees, 1, f32::NEG_INFINITY),
        (MACHINE, of_trees, ONE, f32::NAN),
        (MACHINE, of_machine, ONE, f32::NAN),
        (MACHINE, of_machine, ONE, f32::INFINITY),
    ] {
        let rows: [Row<'_>; 2] = [&[(1, 2.0)], &[(id, weight)]];
        let status = stack.predictions().predict(asked(model, feature, &rows)).await;
        let status = status.expect_err("refused");
        let expected = (Code::InvalidArgument, "FEATURE_NOT_FINITE".to_owned());
        assert_eq!((status.code(), reason(&status)), expected, "{model}: {feature}: {status}");
        // Infinite weights are refused before the model sees them.
        let place = if weight.is_nan() { "row 1: the " } else { "treatments[1]." };
        assert!(status.message().contains(place), "{status}");
    }
    // NaN is a missing value of the trees, and the machine has no such feature.
    for (model, feature) in [(TREES, of_trees), (MACHINE, of_trees), (MACHINE, of_machine)] {
        let rows: [Row<'_>; 1] = [&[(1, f32::NAN)]];
        let response = stack.predictions().predict(asked(model, feature, &rows)).await;
        response.expect("an answer");
    }
}
