use outrigger_core::{DType, Failure, Reason};
use outrigger_proto::outrigger::v1::{
    OnTreatmentError, PredictRequest, ResponseOptions, ValueOrigin, predict_response::Output,
};
use prost::Message;

use super::*;
use crate::{
    fixtures::{joined, number, output, pack, text, treatment, user, wide_joined},
    limits::Limits,
    metadata::Entity,
    reference::Reference,
    sent::Sent,
};

fn vector(values: [f32; 2]) -> outrigger_proto::outrigger::v1::value::Kind {
    use outrigger_proto::outrigger::v1::{NumberList, value::Kind};
    Kind::Numbers(NumberList { values: values.into() })
}

/// A request of two treatments, the second without its product.
fn first() -> PredictRequest {
    PredictRequest {
        request_id: "a".into(),
        user: Some(user([
            ("embedding", vector([0.5, 1.5])),
            ("visits", number(3.0)),
            ("channel", text("phone")),
        ])),
        treatments: vec![
            treatment("t0", [("discount", number(0.25)), ("product", text("shoes"))]),
            treatment("t1", [("discount", number(0.75))]),
        ],
        ..PredictRequest::default()
    }
}

/// A request of three treatments; the middle one lacks a required feature.
fn second() -> PredictRequest {
    let skip = OnTreatmentError::Skip.into();
    let options = ResponseOptions { on_treatment_error: skip, ..ResponseOptions::default() };
    PredictRequest {
        request_id: "b".into(),
        user: Some(user([("embedding", vector([7.0, 8.0])), ("recency_months", number(1.0))])),
        treatments: vec![
            treatment("u0", [("discount", number(1.0))]),
            treatment("u1", []),
            treatment("u2", [("discount", number(2.0)), ("product", text("hats"))]),
        ],
        options: Some(options),
        ..PredictRequest::default()
    }
}

fn numbers_in(tensor: &Tensor) -> Vec<f32> {
    let Content::Bytes(bytes) = &tensor.content else { panic!("expected numbers") };
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn texts_in(tensor: &Tensor) -> Vec<String> {
    let Content::Strings(texts) = &tensor.content else { panic!("expected strings") };
    texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

#[test]
fn every_treatment_has_a_row_with_its_user_s_features() {
    let packed = pack(&joined(), &[first(), second()]).expect("packs");
    assert_eq!((packed.users[0].kept(), packed.users[1].kept()), (2, 2));
    let [numbers, words] = &packed.tensors[..] else { panic!("two tensors") };
    assert_eq!((&*numbers.name, &numbers.shape[..]), ("numbers", &[4, 5][..]));
    let rows = numbers_in(numbers);
    assert_eq!(rows[..10], [6.0, 0.5, 1.5, 0.25, 3.0, 6.0, 0.5, 1.5, 0.75, 3.0]);
    assert_eq!(rows[10..14], [1.0, 7.0, 8.0, 1.0]);
    assert_eq!(rows[15..19], [1.0, 7.0, 8.0, 2.0]);
    assert!(rows[14].is_nan() && rows[19].is_nan());
    assert_eq!(words.shape, [4, 2]);
    let expected = ["shoes", "phone", "none", "phone", "none", "web", "hats", "web"];
    assert_eq!(texts_in(words), expected);
}

#[test]
fn columns_and_maps_and_the_plain_way_give_the_same_tensors() {
    use outrigger_proto::outrigger::v1::{Matrix, TextColumn, TreatmentTable};
    let plan = joined();
    let values: Vec<u8> = [0.25f32, 0.75].iter().flat_map(|value| value.to_le_bytes()).collect();
    let numbers =
        Matrix { names: vec!["discount".into()], values: values.into(), ..Matrix::default() };
    let product = TextColumn {
        name: "product".into(),
        values: vec!["shoes".into(), String::new()],
        validity: vec![1],
        ..TextColumn::default()
    };
    let table = TreatmentTable {
        ids: vec!["t0".into(), "t1".into()],
        numbers: Some(numbers),
        texts: vec![product],
        ..TreatmentTable::default()
    };
    let columnar =
        PredictRequest { treatments: Vec::new(), treatment_table: Some(table), ..first() };
    let maps = pack(&plan, &[first()]).expect("packs");
    assert_eq!(pack(&plan, &[columnar]).expect("packs").tensors, maps.tensors);
    let limits = Limits::default();
    let plain = Reference::new(&plan).pack(&[&first().encode_to_vec()], &limits).expect("packs");
    assert_eq!(plain.tensors, maps.tensors);
}

#[test]
fn no_treatments_are_no_rows() {
    let request = PredictRequest { treatments: Vec::new(), ..first() };
    let packed = pack(&joined(), &[request]).expect("packs");
    assert_eq!(packed.tensors[0].shape, [0, 5]);
    assert!(!packed.needs_engine());
}

#[test]
fn the_size_is_that_of_the_rows() {
    let (plan, request) = (joined(), first().encode_to_vec());
    let text = size_of::<Bytes>();
    let limits = |max_tensor_bytes| Limits { max_tensor_bytes, ..Limits::default() };
    assert!(plan.pack(&[&request], &limits(2 * (5 * 4 + 2 * text))).is_ok());
    let failure = plan.pack(&[&request], &limits(2 * (5 * 4 + 2 * text) - 1)).expect_err("larger");
    assert_eq!(failure.reason, Reason::TooLarge);
}

#[test]
fn scores_go_to_the_users_whose_rows_they_are() {
    let plan = joined();
    let packed = pack(&plan, &[first(), second()]).expect("packs");
    let answer = |shape: &[i64], scores: &[f32]| {
        let outputs = [output("scores", shape, scores)];
        let answer = plan.answer_batch(&packed, &outputs, &[], "").map(|answer| answer.to_vec());
        answer.map(|bytes| {
            use outrigger_proto::outrigger::v1::BatchPredictResponse;
            let response = BatchPredictResponse::decode(bytes.as_slice()).expect("a response");
            let scores = response.responses.into_iter().map(|response| match response.output {
                Some(Output::Scores(list)) => list.values,
                other => panic!("expected scores, found {other:?}"),
            });
            scores.collect::<Vec<_>>()
        })
    };
    let scores = [0.1, 0.2, 0.3, 0.4];
    let expected = Ok(vec![vec![0.1, 0.2], vec![0.3, 0.4]]);
    assert_eq!(answer(&[4], &scores), expected);
    assert_eq!(answer(&[4, 1], &scores), expected);
    let failure = answer(&[2, 2], &scores).expect_err("padded");
    assert_eq!(failure.reason, Reason::ScoresInvalid);
    // The requests leave out treatments that cannot be scored.
    let kept = answer(&[4], &[0.0, 0.0, 0.0, f32::NAN]);
    assert_eq!(kept, Ok(vec![vec![0.0, 0.0], vec![0.0]]));
}

#[test]
fn outputs_of_several_columns_go_to_the_users_by_whole_rows() {
    use outrigger_proto::outrigger::v1::BatchPredictResponse;
    let plan = Plan::compile(wide_joined());
    let options = ResponseOptions { top_k: 1, ..ResponseOptions::default() };
    let mut ranked = PredictRequest { options: Some(options), ..second() };
    ranked.treatments.truncate(1);
    let packed = pack(&plan, &[first(), ranked]).expect("packs");
    let answer = |shape: &[i64], values: &[f32]| -> Result<Vec<_>, Failure> {
        let outputs = [output("scores", shape, values)];
        let bytes = plan.answer_batch(&packed, &outputs, &[], "")?.to_vec();
        Ok(BatchPredictResponse::decode(bytes.as_slice()).expect("a response").responses)
    };
    let mut values: Vec<_> = (0..9).map(|at| at as f32).collect();
    let responses = answer(&[3, 3], &values).expect("answers");
    let lists = responses.into_iter().map(|response| match response.output {
        Some(Output::Scores(list)) => (list.values, list.width, list.score_column, list.indices),
        other => panic!("expected scores, found {other:?}"),
    });
    assert_eq!(
        lists.collect::<Vec<_>>(),
        [(values[..6].to_vec(), 3, 2, vec![]), (values[6..].to_vec(), 3, 2, vec![0])]
    );
    let failure = answer(&[9], &values).expect_err("one column");
    assert_eq!(failure.reason, Reason::ScoresInvalid);
    values[7] = f32::NAN;
    let failure = answer(&[3, 3], &values).expect_err("not finite");
    assert!(failure.message.ends_with("the value at [2, 1] is NaN"), "{}", failure.message);
}

#[test]
fn explain_shows_each_user_its_rows() {
    let plan = joined();
    let requests = [first(), second()].map(|request| request.encode_to_vec());
    let requests = [requests[0].as_slice(), &requests[1]];
    let explained = plan.explain(&requests, &Limits::default()).expect("packs");
    let packed = plan.pack(&requests, &Limits::default()).expect("packs");
    let Content::Bytes(numbers) = &packed.tensors[0].content else { panic!("expected numbers") };
    for (user, explained) in explained.iter().enumerate() {
        let numbers_of = &explained.tensors[0];
        assert_eq!(numbers_of.shape, [2, 5]);
        assert_eq!(numbers_of.content, numbers.slice(user * 40..(user + 1) * 40));
        let columns = numbers_of.columns.iter().map(|column| (&*column.feature, column.offset));
        let expected = [("recency_months", 0), ("embedding", 1), ("discount", 3), ("visits", 4)];
        assert_eq!(columns.collect::<Vec<_>>(), expected);
    }
    use ValueOrigin::{Default, Missing, Request};
    let origins: Vec<_> = explained[1].tensors[0].origins().collect();
    assert_eq!(origins, [Request, Request, Request, Missing].repeat(2));
    let origins: Vec<_> = explained[0].tensors[1].origins().collect();
    assert_eq!(origins, [Request, Request, Default, Request]);
}

#[test]
fn sent_values_are_read_from_a_random_row() {
    let plan = joined();
    let slot = |entity, name| plan.slot(entity, name).expect("a single number");
    let slots = [slot(Entity::User, "visits"), slot(Entity::Treatment, "discount")];
    let request = bytes::Bytes::from(first().encode_to_vec());
    for (random, discount) in [(0, 0.25), (1, 0.75)] {
        let sent =
            plan.sent(&request.clone().into(), &slots, random, &Limits::default()).expect("packs");
        assert_eq!(sent, Some(vec![Sent::Number(3.0), Sent::Number(discount)]));
    }
}

#[test]
fn a_made_up_request_packs() {
    let packed = pack(&joined(), &[joined().smoke_request()]).expect("packs");
    assert_eq!(packed.tensors[0].dtype, DType::Float32);
    assert_eq!(packed.tensors[0].shape, [1, 5]);
}
