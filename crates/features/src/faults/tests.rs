use std::ops::Range;

use bytes::Bytes;
use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::{Matrix, PredictRequest, Treatment, TreatmentTable};
use serde_json::json;

use super::*;
use crate::{
    fixtures::{embedding, fields, number, pack, plan, request, text, treatment, user},
    json,
    limits::Limits,
    reference::Reference,
};

fn faults(numbers: Range<usize>) -> impl Iterator<Item = Failure> {
    numbers.map(|number| {
        let field = number.to_string();
        Failure::new(Reason::FeatureMissing, field.clone()).violation(field, "required")
    })
}

/// The failure of requests, which the reference implementation refuses alike.
fn failure(requests: &[PredictRequest]) -> Failure {
    let plan = plan();
    let failure = pack(&plan, requests).expect_err("it has faults");
    let encoded: Vec<_> = requests.iter().map(crate::fixtures::encoded).collect();
    let expected = Reference::new(&plan).pack(&encoded, &Limits::default());
    assert_eq!(failure, expected.expect_err("it has faults"));
    failure
}

#[test]
fn the_first_ten_are_reported_with_the_message_of_the_first() {
    let mut all = Faults::default();
    all.extend(faults(0..1));
    all.extend(faults(1..20));
    assert_eq!(all.room(), 0);
    let failure = all.check().unwrap_err();
    assert_eq!(fields(&failure), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!((failure.reason, failure.message.as_str()), (Reason::FeatureMissing, "0"));
}

#[test]
fn another_failure_is_reported_alone_or_not_at_all() {
    let malformed = || Failure::new(Reason::RequestMalformed, "malformed");
    let mut all = Faults::default();
    all.end(malformed());
    all.extend(faults(0..2));
    assert_eq!(all.check(), Err(malformed()));
    let mut all = Faults::default();
    all.extend(faults(0..2));
    all.end(malformed());
    all.extend(faults(2..3));
    assert_eq!(fields(&all.check().unwrap_err()), ["0", "1"]);
    assert_eq!(Faults::default().check(), Ok(()));
}

/// A request with a fault in each feature of the user, and in some of two treatments.
fn faulty() -> PredictRequest {
    let wrong =
        [("channel", number(1.5)), ("embedding", number(1.0)), ("recency_months", text("x"))];
    let treatments = vec![Treatment::default(), treatment("b", [("days_live", text("x"))])];
    PredictRequest { user: Some(user(wrong)), treatments, ..request(&[]) }
}

const FAULTY: [&str; 6] = [
    r#"user["recency_months"]"#,
    r#"user["embedding"]"#,
    r#"user["channel"]"#,
    r#"treatments[0].features["discount"]"#,
    r#"treatments[1].features["discount"]"#,
    r#"treatments[1].features["days_live"]"#,
];

#[test]
fn faults_of_users_and_treatments_are_reported_in_the_order_of_the_request_and_metadata() {
    let failure = failure(&[faulty()]);
    assert_eq!(fields(&failure), FAULTY);
    assert_eq!(failure.reason, Reason::FeatureType);
    assert!(failure.message.starts_with(FAULTY[0]), "{failure}");
    assert_eq!(failure.violations[1].description, "expected 4 values, found 1");
}

#[test]
fn json_reports_the_same_faults() {
    let body = json!({
        "model": {"name": "churn"},
        "user": {"channel": 1.5, "embedding": 1, "recency_months": "x"},
        "treatments": [{}, {"id": "b", "features": {"days_live": "x"}}],
    });
    let request = json::Request::read(Bytes::from(body.to_string())).expect("JSON");
    let found = plan().pack_json(&request, &Limits::default()).expect_err("it has faults");
    assert_eq!(fields(&found), FAULTY);
    assert_eq!(found, failure(&[faulty()]));
}

#[test]
fn a_long_list_of_faults_ends() {
    let mut many = request(&[0.1; 20]);
    many.treatments.iter_mut().for_each(|treatment| treatment.features.clear());
    let first = |count| (0..count).map(|it| format!(r#"treatments[{it}].features["discount"]"#));
    assert_eq!(fields(&failure(std::slice::from_ref(&many))), first(10).collect::<Vec<_>>());
    many.user = None;
    let expected: Vec<_> =
        [r#"user["embedding"]"#.to_owned()].into_iter().chain(first(9)).collect();
    assert_eq!(fields(&failure(&[many])), expected);
}

#[test]
fn tables_and_batches_report_several_faults() {
    let numbers = Matrix {
        names: vec!["days_live".to_owned()],
        values: [1.0f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect(),
        ..Matrix::default()
    };
    let table = TreatmentTable { count: 2, numbers: Some(numbers), ..TreatmentTable::default() };
    let tabled = PredictRequest { treatment_table: Some(table), ..request(&[]) };
    let alone = failure(std::slice::from_ref(&tabled));
    let expected = [r#"treatment_table["discount"][0]"#, r#"treatment_table["discount"][1]"#];
    assert_eq!(fields(&alone), expected);
    let userless = PredictRequest { user: None, ..request(&[0.1]) };
    let good = PredictRequest { user: Some(user([("embedding", embedding())])), ..request(&[0.2]) };
    let expected = [
        r#"requests[0].treatment_table["discount"][0]"#,
        r#"requests[0].treatment_table["discount"][1]"#,
        r#"requests[2].user["embedding"]"#,
    ];
    assert_eq!(fields(&failure(&[tabled, good, userless])), expected);
}
