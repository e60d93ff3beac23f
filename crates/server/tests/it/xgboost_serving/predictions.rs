//! Its predictions over gRPC.

use outrigger_proto::{
    tensorflow::serving::model_spec::VersionChoice,
    xgboost_serving::{FeatureScore, PredictRequest},
};
use tonic::{Code, Status};

use super::fixture::{
    BIAS, MACHINE, ONE, Row, TREES, client, floats, output_of, predict, publish, request, sizes,
    spec, start,
};
use crate::stack::{MODEL, reason};

const ROWS: &[Row<'_>] = &[&[(1, 2.0), (2, 0.5)], &[(2, -1.0), (1, 4.0)]];
/// The margins of [`ROWS`] without the bias.
const SUMS: [f32; 2] = [2.5, 3.0];

fn trees(rows: &[Row<'_>]) -> PredictRequest {
    request(TREES, &[("xgboost_features", rows)])
}

fn machine(rows: &[Row<'_>], alone: &[Row<'_>]) -> PredictRequest {
    request(MACHINE, &[("xgboost_features", rows), ("fm_features", alone)])
}

#[tokio::test]
async fn rows_are_scored_by_trees() {
    let stack = start(&[]).await;
    for (option_mask, key) in [(0, "value"), (1, "margin")] {
        let response = predict(&stack, PredictRequest { option_mask, ..trees(ROWS) }).await;
        let (found, tensor, version) = output_of(response.expect("an answer"));
        assert_eq!((&*found, tensor.dtype), (key, 1));
        assert_eq!(tensor.float_val, SUMS.map(|sum| sum + f32::from(BIAS)));
        assert_eq!((sizes(&tensor), version), (vec![2], Some(VersionChoice::Version(7))));
    }
}

#[tokio::test]
async fn a_request_may_limit_the_trees() {
    let stack = start(&[]).await;
    for (ntree_limit, sums) in [(1, [2.0, 4.0]), (2, SUMS), (9, SUMS)] {
        let response = predict(&stack, PredictRequest { ntree_limit, ..trees(ROWS) }).await;
        let scores = floats(response.expect("an answer"), &[2]);
        assert_eq!(scores, sums.map(|sum| sum + f32::from(BIAS)), "{ntree_limit}");
    }
}

#[tokio::test]
async fn leaves_are_numbers_of_nodes() {
    let stack = start(&[]).await;
    let response = predict(&stack, PredictRequest { option_mask: 2, ..trees(ROWS) }).await;
    let (key, tensor, _) = output_of(response.expect("an answer"));
    assert_eq!((&*key, tensor.dtype, sizes(&tensor)), ("index", 22, vec![4]));
    // 64 leaves from node 63 on, a quarter apart from -8.
    let leaf = |value: f32| 63 + ((value + 8.0) / 0.25) as u32;
    let all = [leaf(2.0), leaf(0.5), leaf(4.0), leaf(-1.0)];
    assert_eq!(tensor.uint32_val, all);
    for (ntree_limit, leaves) in [(1, vec![all[0], all[2]]), (2, all.into()), (9, all.into())] {
        let limited = PredictRequest { option_mask: 2, ntree_limit, ..trees(ROWS) };
        let (_, tensor, _) = output_of(predict(&stack, limited).await.expect("an answer"));
        assert_eq!(sizes(&tensor), [leaves.len() as i64], "{ntree_limit}");
        assert_eq!(tensor.uint32_val, leaves, "{ntree_limit}");
    }
}

#[tokio::test]
async fn rows_are_scored_by_trees_with_a_factorisation_machine() {
    let stack = start(&[]).await;
    let alone: &[Row<'_>] = &[&[(ONE, 2.0)], &[]];
    let response = client(&stack).predict_alphafm(machine(ROWS, alone)).await.expect("an answer");
    let scores = floats(response.into_inner(), &[2]);
    let margins = [SUMS[0] + f32::from(BIAS) + 2.0, SUMS[1] + f32::from(BIAS)];
    for (score, margin) in scores.iter().zip(margins) {
        assert!((score - 1.0 / (1.0 + (-margin).exp())).abs() < 1e-6, "{score} of {margin}");
    }
    let other = client(&stack).predict_alphafm_softmax(machine(ROWS, alone)).await;
    let other = other.expect_err("its method is another one");
    assert_eq!((other.code(), &*reason(&other)), (Code::InvalidArgument, "REQUEST_MALFORMED"));
    assert!(other.message().contains("the method is PredictAlphafm "), "{other}");
}

#[tokio::test]
async fn nan_is_a_missing_value_unless_the_machine_has_its_feature() {
    let stack = start(&[]).await;
    let rows: &[Row<'_>] = &[&[(1, f32::NAN), (2, 0.5)]];
    let score = |request| async { client(&stack).predict_alphafm(request).await };
    let missing = score(machine(rows, &[&[]])).await.expect("an answer").into_inner();
    let absent = score(machine(&[&[(2, 0.5)]], &[&[]])).await.expect("an answer").into_inner();
    assert_eq!(floats(missing, &[1]), floats(absent, &[1]));
    let rows: &[Row<'_>] = &[&[(1, 2.0)], &[(ONE, f32::NAN)]];
    let status = score(machine(rows, &[&[], &[]])).await.expect_err("the score would be NaN");
    let expected = (Code::InvalidArgument, "FEATURE_NOT_FINITE".to_owned());
    assert_eq!((status.code(), reason(&status)), expected, "{status}");
    assert!(status.message().contains(&format!("row 1: the weight of the feature {ONE}")));
}

/// XGBoost Serving ends here by a division by zero.
#[tokio::test]
async fn no_rows_are_no_scores() {
    let stack = start(&[]).await;
    assert_eq!(floats(predict(&stack, trees(&[])).await.expect("an answer"), &[0]), [] as [f32; 0]);
    let response = client(&stack).predict_alphafm(machine(&[], &[])).await.expect("an answer");
    assert_eq!(floats(response.into_inner(), &[0]), [] as [f32; 0]);
}

#[tokio::test]
async fn an_id_beyond_the_columns_is_ignored_and_the_last_of_equal_ids_counts() {
    let stack = start(&[]).await;
    let rows: &[Row<'_>] =
        &[&[(1, 2.0), (2, 0.5), (3, 1.0), (u64::MAX, 1.0)], &[(1, 9.0), (2, -1.0), (1, 4.0)]];
    let scores = floats(predict(&stack, trees(rows)).await.expect("an answer"), &[2]);
    assert_eq!(scores, SUMS.map(|sum| sum + f32::from(BIAS)));
    // Nothing of an empty row is known: it takes the direction for missing values.
    predict(&stack, trees(&[&[]])).await.expect("an answer");
}

#[tokio::test]
async fn a_version_is_a_tag() {
    let stack = start(&[]).await;
    publish(&stack, TREES, "8", 10).await;
    publish(&stack, TREES, "stable", 20).await;
    for (choice, bias, answered) in [
        (VersionChoice::Version(7), f32::from(BIAS), Some(7)),
        (VersionChoice::Version(8), 10.0, Some(8)),
        (VersionChoice::VersionLabel("stable".into()), 20.0, None),
    ] {
        let model_spec = Some(spec(TREES, Some(choice)));
        let response = predict(&stack, PredictRequest { model_spec, ..trees(ROWS) }).await;
        let (_, tensor, version) = output_of(response.expect("an answer"));
        assert_eq!(tensor.float_val, SUMS.map(|sum| sum + bias));
        assert_eq!(version, answered.map(VersionChoice::Version));
    }
    let model_spec = Some(spec(TREES, Some(VersionChoice::Version(9))));
    let status = predict(&stack, PredictRequest { model_spec, ..trees(ROWS) }).await;
    assert_eq!(reason(&status.expect_err("no such version")), "TAG_NOT_FOUND");
}

/// A client of XGBoost Serving may call its model `CTR_Model`.
#[tokio::test]
async fn names_may_have_capitals_and_are_echoed() {
    let stack = start(&[]).await;
    let asked = TREES.to_ascii_uppercase();
    for choice in [None, Some(VersionChoice::Version(7))] {
        let model_spec = Some(spec(&asked, choice));
        let response = predict(&stack, PredictRequest { model_spec, ..trees(ROWS) }).await;
        let response = response.expect("an answer");
        let answered = Some(spec(&asked, Some(VersionChoice::Version(7))));
        assert_eq!(response.model_spec, answered);
        assert_eq!(floats(response, &[2]), SUMS.map(|sum| sum + f32::from(BIAS)));
    }
    let mut mixed = machine(ROWS, &[&[], &[]]);
    mixed.model_spec = Some(spec("Ads/Machine", None));
    let response = client(&stack).predict_alphafm(mixed).await.expect("an answer").into_inner();
    assert_eq!(response.model_spec.map(|spec| spec.name).as_deref(), Some("Ads/Machine"));
}

/// The tag of [`MODEL`].
fn latest() -> VersionChoice {
    VersionChoice::VersionLabel("latest".to_owned())
}

/// The statuses of XGBoost Serving, and our reasons.
#[tokio::test]
async fn requests_that_are_not_valid_are_refused_as_there() {
    let stack = start(&[]).await;
    let ids = |id: &[u64], score: &[f32]| {
        let mut request = trees(&[]);
        let row = FeatureScore { id: id.to_vec(), score: score.to_vec() };
        request.inputs.get_mut("xgboost_features").expect("rows").feature_score.push(row);
        request
    };
    let with = |change: fn(&mut PredictRequest)| {
        let mut request = trees(ROWS);
        change(&mut request);
        request
    };
    let malformed = (Code::InvalidArgument, "REQUEST_MALFORMED");
    for (request, (code, expected)) in [
        (with(|request| request.model_spec = None), malformed),
        (with(|request| request.model_spec = Some(spec("", None))), malformed),
        (with(|request| request.inputs.clear()), malformed),
        (with(|request| request.option_mask = 3), malformed),
        (with(|request| request.option_mask = -1), malformed),
        (ids(&[1], &[1.0, 2.0]), malformed),
        (ids(&[1], &[f32::INFINITY]), (Code::InvalidArgument, "FEATURE_NOT_FINITE")),
        (
            with(|request| request.model_spec = Some(spec("unknown", None))),
            (Code::NotFound, "MODEL_NOT_FOUND"),
        ),
        // Its model takes named features.
        (with(|request| request.model_spec = Some(spec(MODEL, Some(latest())))), malformed),
        // It takes `fm_features` too.
        (with(|request| request.model_spec = Some(spec(MACHINE, None))), malformed),
    ] {
        let status = predict(&stack, request).await.expect_err(expected);
        assert_eq!((status.code(), &*reason(&status)), (code, expected), "{status}");
    }
    // XGBoost Serving frees a handle there that it has not set.
    for weight in [f32::INFINITY, f32::NEG_INFINITY] {
        for request in [
            machine(&[&[(1, weight)]], &[&[]]),
            machine(&[&[]], &[&[(ONE, weight)]]),
            machine(&[&[]], &[&[(ONE, f32::NAN)]]),
        ] {
            let expected = (Code::InvalidArgument, "FEATURE_NOT_FINITE");
            let status = client(&stack).predict_alphafm(request.clone()).await;
            let status = status.expect_err("refused");
            assert_eq!((status.code(), &*reason(&status)), expected, "{status}");
            let status = client(&stack).predict_alphafm_softmax(request).await;
            let status = status.expect_err("refused");
            assert_eq!((status.code(), &*reason(&status)), expected, "{status}");
        }
    }
    let message = |status: Status| status.message().to_owned();
    let no_spec = PredictRequest { model_spec: None, ..trees(ROWS) };
    assert_eq!(message(predict(&stack, no_spec).await.expect_err("none")), "Missing ModelSpec");
    for request in [machine(ROWS, &[&[]]), trees(ROWS)] {
        let status = client(&stack).predict_alphafm(request).await.expect_err("refused");
        assert_eq!(reason(&status), "REQUEST_MALFORMED");
    }
}
