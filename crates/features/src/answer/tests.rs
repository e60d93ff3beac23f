use bytes::Bytes;
use outrigger_core::{Content, DType};
use outrigger_proto::outrigger::v1::{
    Arm, BatchPredictResponse, Degraded, OnTreatmentError, PredictRequest, ResponseOptions,
    ScoreList, ServedModel, predict_response::Output,
};

use super::*;
use crate::fixtures::{doubles, everything, floats, ints, longs, output, pack, plan, request};

mod wide;

fn answer(requests: &[PredictRequest], tensor: Tensor) -> Result<Vec<PredictResponse>, Failure> {
    let plan = plan();
    let packed = pack(&plan, requests).expect("packs");
    let tensor = [tensor];
    let written = plan.answer_batch(&packed, &tensor, &[], "")?.to_vec();
    let response = BatchPredictResponse::decode(written.as_slice()).expect("a response");
    Ok(response.responses)
}

fn scores(response: &PredictResponse) -> &ScoreList {
    match &response.output {
        Some(Output::Scores(list)) => list,
        other => panic!("expected scores, found {other:?}"),
    }
}

fn with_options(discounts: &[f32], options: ResponseOptions) -> PredictRequest {
    PredictRequest { options: Some(options), ..request(discounts) }
}

#[test]
fn scores_are_trimmed_to_each_users_treatments() {
    let requests = [request(&[0.1]), request(&[0.2, 0.3]), request(&[])];
    // The content of the padding is ignored, even when it is NaN.
    let values = [1.0, f32::NAN, 2.0, 3.0, f32::INFINITY, f32::NAN];
    for shape in [&[3, 2][..], &[3, 2, 1]] {
        let responses = answer(&requests, output("scores", shape, &values)).expect("answers");
        let values: Vec<_> = responses.iter().map(|one| scores(one).values.clone()).collect();
        assert_eq!(values, [vec![1.0], vec![2.0, 3.0], vec![]]);
        assert_eq!(responses[0].request_id, "r");
        assert!(scores(&responses[0]).indices.is_empty());
        assert!(scores(&responses[0]).treatment_ids.is_empty());
    }
}

#[test]
fn every_type_of_number_is_cast() {
    let tensors = [(DType::Float32, floats(&[-1.5, 2.0])), (DType::Float64, doubles(&[-1.5, 2.0]))];
    for (dtype, content) in tensors {
        let tensor = Tensor { dtype, content, ..output("scores", &[1, 2], &[]) };
        let responses = answer(&[request(&[0.1, 0.2])], tensor).expect("answers");
        assert_eq!(scores(&responses[0]).values, [-1.5, 2.0]);
    }
    for (dtype, content) in [(DType::Int32, ints(&[-1, 2])), (DType::Int64, longs(&[-1, 2]))] {
        let tensor = Tensor { dtype, content, ..output("scores", &[1, 2], &[]) };
        let responses = answer(&[request(&[0.1, 0.2])], tensor).expect("answers");
        assert_eq!(scores(&responses[0]).values, [-1.0, 2.0]);
    }
}

#[test]
fn outputs_that_are_not_as_declared_are_refused() {
    let good = || output("scores", &[1, 2], &[1.0, 2.0]);
    let strings = Content::Strings(vec![Bytes::new(); 2]);
    let cases = [
        (output("other", &[1, 2], &[1.0, 2.0]), "did not return it"),
        (output("scores", &[1, 3], &[1.0; 3]), "expected shape [1, 2] or [1, 2, 1]"),
        (output("scores", &[2], &[1.0; 2]), "returned [2]"),
        (output("scores", &[1, 2, 2], &[1.0; 4]), "returned [1, 2, 2]"),
        (output("scores", &[1, -2], &[1.0; 2]), "returned [1, -2]"),
        (output("scores", &[1, 2], &[1.0]), "expected 8 bytes, the engine returned 4"),
        (Tensor { dtype: DType::Bool, ..good() }, "returned bool"),
        (Tensor { dtype: DType::String, content: strings.clone(), ..good() }, "returned string"),
        (Tensor { content: strings, ..good() }, "returned strings"),
        (output("scores", &[1, 2], &[1.0, f32::NAN]), "the value at [0, 1] is NaN"),
        (
            Tensor { dtype: DType::Float64, content: doubles(&[1e300, 0.0]), ..good() },
            "the value at [0, 0] is inf",
        ),
    ];
    for (tensor, message) in cases {
        let failure = answer(&[request(&[0.1, 0.2])], tensor).expect_err(message);
        assert_eq!(failure.reason, Reason::ScoresInvalid);
        assert!(failure.message.starts_with("output \"score\": "), "{failure}");
        assert!(failure.message.contains(message), "{failure}");
    }
}

#[test]
fn the_best_come_first_and_ties_keep_their_order() {
    let options = ResponseOptions { top_k: 3, treatment_ids: true, ..ResponseOptions::default() };
    let values = [1.0, 5.0, 3.0, 5.0, 3.0, -0.0, 0.0];
    let asked = with_options(&[0.0; 7], options.clone());
    let responses = answer(&[asked], output("scores", &[1, 7], &values)).expect("answers");
    let list = scores(&responses[0]);
    assert_eq!(list.values, [5.0, 5.0, 3.0]);
    assert_eq!(list.indices, [1, 3, 2]);
    assert_eq!(list.treatment_ids, ["t1", "t3", "t2"]);

    let all = with_options(&[0.0; 7], ResponseOptions { top_k: 100, ..options });
    let responses = answer(&[all], output("scores", &[1, 7], &values)).expect("answers");
    assert_eq!(scores(&responses[0]).indices, [1, 3, 2, 4, 0, 5, 6]);
}

#[test]
fn indices_identify_the_treatments_left_out() {
    let options = ResponseOptions {
        on_treatment_error: OnTreatmentError::Skip.into(),
        treatment_ids: true,
        ..ResponseOptions::default()
    };
    let asked = with_options(&[f32::NAN, 0.1, f32::INFINITY, 0.2], options);
    let tensor = output("scores", &[1, 2], &[1.0, 2.0]);
    let responses = answer(std::slice::from_ref(&asked), tensor.clone()).expect("answers");
    let list = scores(&responses[0]);
    assert_eq!((list.indices.as_slice(), list.values.as_slice()), (&[1, 3][..], &[1.0, 2.0][..]));
    assert_eq!(list.treatment_ids, ["t1", "t3"]);
    let left_out: Vec<_> = responses[0].treatment_errors.iter().map(|error| error.index).collect();
    assert_eq!(left_out, [0, 2]);

    let mut ranked = asked;
    ranked.options.as_mut().expect("set above").top_k = 1;
    let responses = answer(&[ranked], tensor).expect("answers");
    assert_eq!(scores(&responses[0]).indices, [3], "positions are those of the request");
}

#[test]
fn treatments_whose_scores_are_not_finite_are_left_out_too() {
    let options = ResponseOptions {
        on_treatment_error: OnTreatmentError::Skip.into(),
        treatment_ids: true,
        ..ResponseOptions::default()
    };
    let mut asked = with_options(&[f32::NAN, 0.1, 0.2, 0.3, 0.4], options);
    let tensor = output("scores", &[1, 4], &[1.0, f32::NAN, 3.0, f32::INFINITY]);
    let responses = answer(std::slice::from_ref(&asked), tensor.clone()).expect("answers");
    let list = scores(&responses[0]);
    assert_eq!((&list.indices[..], &list.values[..]), (&[1, 3][..], &[1.0, 3.0][..]));
    assert_eq!(list.treatment_ids, ["t1", "t3"]);
    let errors = &responses[0].treatment_errors;
    let left_out: Vec<_> = errors.iter().map(|error| (error.index, &*error.id)).collect();
    assert_eq!(left_out, [(0, "t0"), (2, "t2"), (4, "t4")]);
    assert_eq!(errors[1].reason, Reason::ScoresInvalid.as_str());
    assert_eq!(errors[2].message, "output \"score\": the value is inf");

    asked.options.as_mut().expect("set above").top_k = 1;
    let responses = answer(std::slice::from_ref(&asked), tensor).expect("answers");
    assert_eq!(scores(&responses[0]).indices, [3], "NaN and infinity have no rank");
    let none = output("scores", &[1, 4], &[f32::NAN; 4]);
    let responses = answer(&[asked], none).expect("answers");
    assert!(scores(&responses[0]).values.is_empty() && responses[0].treatment_errors.len() == 5);
}

#[test]
fn single_outputs_are_one_score_or_a_list_of_one() {
    let plan = everything();
    let tensors = vec![
        output("scores", &[1, 1], &[0.5]),
        output("risk", &[1, 1], &[0.25]),
        output("p", &[1, 1, 1], &[0.75]),
        output("ignored", &[9], &[]),
    ];
    let ask = |outputs: &[&str]| {
        let outputs = outputs.iter().map(|name| (*name).to_owned()).collect();
        let options = ResponseOptions { outputs, ..ResponseOptions::default() };
        let request = PredictRequest { options: Some(options), ..plan.smoke_request() };
        let packed = pack(&plan, &[request]).expect("packs");
        plan.response(&packed, &tensors).expect("answers")
    };
    let all = ask(&[]);
    assert_eq!(scores(&all).values, [0.5]);
    assert_eq!(all.additional_outputs["risk"].values, [0.25]);
    assert_eq!(all.additional_outputs["propensity"].values, [0.75]);
    let risk = ask(&["risk", "score"]);
    assert_eq!(risk.output, Some(Output::Score(0.25)));
    assert_eq!(risk.additional_outputs.len(), 1);
    assert_eq!(risk.additional_outputs["score"].values, [0.5]);
}

#[test]
fn the_propensity_is_that_of_the_best_treatment() {
    let plan = everything();
    let treatment = plan.smoke_request().treatments[0].clone();
    let asked = PredictRequest { treatments: vec![treatment; 3], ..plan.smoke_request() };
    let packed = pack(&plan, &[asked]).expect("packs");
    let scores = output("scores", &[1, 3], &[0.1, 0.7, 0.2]);
    let propensities = output("p", &[1, 3], &[0.25, 0.5, 0.75]);
    assert_eq!(plan.propensity(&packed, &[scores.clone(), propensities], 0), Some(0.5));
    assert_eq!(plan.propensity(&packed, &[scores], 0), None);
    assert_eq!(crate::fixtures::plan().propensity(&packed, &[], 0), None, "it gives none");
}

#[test]
fn without_treatments_the_lists_are_empty_and_no_output_is_needed() {
    let plan = plan();
    let packed = pack(&plan, &[request(&[])]).expect("packs");
    let response = plan.response(&packed, &[]).expect("answers");
    assert_eq!(scores(&response).values, [0f32; 0]);
}

#[test]
fn every_response_names_the_version_that_answered() {
    let plan = plan();
    let model = ServedModel { name: "churn".into(), arm: Arm::Live.into(), ..Default::default() };
    let named = model.encode_to_vec();
    let tensor = [output("scores", &[1, 1], &[0.5])];

    let packed = pack(&plan, &[request(&[0.1])]).expect("packs");
    let written = plan.answer(&packed, &tensor, &named).expect("answers").to_vec();
    let response = PredictResponse::decode(written.as_slice()).expect("a response");
    assert_eq!(response.model.as_ref(), Some(&model));

    let written = plan.answer_batch(&packed, &tensor, &named, "b").expect("answers").to_vec();
    let batch = BatchPredictResponse::decode(written.as_slice()).expect("a response");
    assert_eq!((batch.responses, batch.request_id.as_str()), (vec![response], "b"));
}

#[test]
fn one_response_is_not_made_of_several_requests() {
    let plan = plan();
    let packed = pack(&plan, &[request(&[0.1]), request(&[0.1])]).expect("packs");
    let tensor = [output("scores", &[2, 1], &[0.5, 0.5])];
    let failure = plan.answer(&packed, &tensor, &[]).expect_err("two requests");
    assert_eq!(failure.reason, Reason::Internal);
}

#[test]
fn a_response_may_be_marked_as_degraded() {
    let plan = plan();
    let packed = pack(&plan, &[request(&[0.1])]).expect("packs");
    let tensor = [output("scores", &[1, 1], &[0.5])];
    let degraded = Degraded { reason: "DEADLINE".to_owned(), used: "live".to_owned() };
    let encoded = degraded.encode_to_vec();
    let written = plan.answer(&packed, &tensor, &[]).expect("answers").degraded(&encoded).to_vec();
    let response = PredictResponse::decode(written.as_slice()).expect("a response");
    assert_eq!(response.degraded, Some(degraded));
    assert_eq!(scores(&response).values, [0.5]);
}

#[test]
fn a_score_drawn_at_random_stands_for_a_call() {
    let plan = plan();
    let packed = pack(&plan, &[request(&[0.1, 0.2])]).expect("packs");
    let sample = |tensor: Tensor, random| plan.sample(&packed, &[tensor], 0, random);
    let scores = || output("scores", &[1, 2], &[1.0, 2.0]);
    let drawn = [0, 1, u64::MAX].map(|random| sample(scores(), random));
    assert_eq!(drawn, [1.0, 2.0, 2.0].map(|score| Ok(Sample::Score(score))));
    let broken = output("scores", &[1, 2], &[1.0, f32::NAN]);
    assert_eq!(sample(broken, 0), Ok(Sample::NotFinite));
    assert!(sample(output("scores", &[1, 3], &[1.0; 3]), 0).is_err());
    let nobody = pack(&plan, &[request(&[])]).expect("packs");
    assert_eq!(plan.sample(&nobody, &[], 0, 0), Ok(Sample::Nothing));
}

#[test]
fn any_user_of_a_call_may_be_sampled() {
    let plan = plan();
    let packed = pack(&plan, &[request(&[0.1]), request(&[0.1, 0.2])]).expect("packs");
    let outputs = [output("scores", &[2, 2], &[f32::NAN, 9.0, 3.0, 4.0])];
    let sampled = |user| plan.sample(&packed, &outputs, user, 1);
    assert_eq!(sampled(0), Ok(Sample::NotFinite));
    assert_eq!(sampled(1), Ok(Sample::Score(4.0)));
    assert_eq!(sampled(2), Ok(Sample::Nothing), "there is no such user");
    assert_eq!(plan.best(&packed, &outputs, 1), Ok(Some(Best { position: 1, score: 4.0 })));
    assert!(plan.best(&packed, &outputs, 0).is_err());
}

#[test]
fn the_best_treatment_is_named_by_its_position_in_the_request() {
    let plan = plan();
    let best = |requests: &[PredictRequest], values: &[f32]| {
        let packed = pack(&plan, requests).expect("packs");
        let shape = [1, i64::try_from(values.len()).unwrap()];
        let outputs = [output("scores", &shape, values)];
        let at = |position| plan.score_at(&packed, &outputs, position);
        (plan.best(&packed, &outputs, 0), [at(0), at(1), at(2)])
    };
    let (found, scores) = best(&[request(&[0.1, 0.2, 0.3])], &[1.0, 5.0, 5.0]);
    assert_eq!(found, Ok(Some(Best { position: 1, score: 5.0 })));
    assert_eq!(scores, [Some(1.0), Some(5.0), Some(5.0)]);
    let skip =
        ResponseOptions { on_treatment_error: OnTreatmentError::Skip.into(), ..Default::default() };
    let (found, scores) = best(&[with_options(&[0.1, f32::NAN, 0.3], skip)], &[1.0, 2.0]);
    assert_eq!(found, Ok(Some(Best { position: 2, score: 2.0 })));
    assert_eq!(scores, [Some(1.0), None, Some(2.0)]);
    assert_eq!(best(&[request(&[])], &[]).0, Ok(None));
    let (found, scores) = best(&[request(&[0.1, 0.2])], &[1.0, f32::NAN]);
    assert_eq!((found.unwrap_err().reason, scores[0]), (Reason::ScoresInvalid, None));
}
