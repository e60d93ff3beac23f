use outrigger_core::Reason;
use outrigger_features::Metadata;
use outrigger_proto::outrigger::v1::{
    FeatureMap, IntegerList, PredictRequest, Value, predict_request::User, value::Kind,
};
use prost::Message as _;

use outrigger_tables::Kind as ColumnKind;

use super::*;
use crate::memory::Memory;

const METADATA: &[u8] = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
    "inputs": [
      {"tensor": "u", "entity": "user", "dtype": "float32", "features": [
        {"name": "x", "default": 0}, {"name": "home.zip", "default": 0}]},
      {"tensor": "t", "entity": "treatment", "dtype": "float32", "features": [
        {"name": "a", "required": true}]}],
    "outputs": [{"tensor": "s", "name": "score", "kind": "per_treatment"}]}"#;

fn known() -> Features {
    Features::of(&Metadata::parse(METADATA).expect("metadata"))
}

/// The groups of rows, each of which is a JSON object; a row that is not one is malformed.
fn groups_with(options: &Options, features: Features, rows: &[&str]) -> Vec<Group> {
    groups_of(Grouping::new(features, options, None), rows)
}

fn groups_of(mut grouping: Grouping, rows: &[&str]) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut done = |group| groups.push(group);
    for (number, row) in (1..).zip(rows) {
        let mut row = match Cell::parse(row.as_bytes(), 1 << 20) {
            Ok(Cell::Object(members)) => {
                let names = members.iter().map(|(name, _)| Arc::from(name.as_str())).collect();
                let cells = members.into_iter().map(|(_, cell)| cell).collect();
                Ok(Row { number, names, cells })
            }
            _ => Err(Malformed { number, message: "malformed".to_owned() }),
        };
        grouping.add(row.as_mut().map_err(|malformed| malformed.clone()), &mut done);
    }
    grouping.close(&mut done);
    groups
}

fn groups(features: Features, rows: &[&str]) -> Vec<Group> {
    groups_with(&Options::default(), features, rows)
}

fn numbers(groups: &[Group]) -> Vec<Vec<u64>> {
    groups.iter().map(|group| group.rows.iter().map(|row| row.number).collect()).collect()
}

fn request(group: &Group) -> PredictRequest {
    assert!(group.is_sent());
    let request = PredictRequest::decode(group.request.as_slice()).expect("a request");
    assert_eq!(request.treatments.len(), group.treatments);
    request
}

fn failure(row: &GroupRow) -> String {
    row.failure.as_ref().expect("a failure").to_string()
}

fn kind(features: &std::collections::HashMap<String, Value>, name: &str) -> Option<Kind> {
    features.get(name).and_then(|value| value.kind.clone())
}

fn user(request: &PredictRequest) -> &FeatureMap {
    match &request.user {
        Some(User::UserFeatures(features)) => features,
        other => panic!("{other:?}"),
    }
}

#[test]
fn consecutive_rows_of_one_user_are_one_request() {
    let rows = [
        r#"{"user": 7, "treatment": "t1", "x": 2, "a": 1}"#,
        r#"{"x": 2, "user": 7, "treatment": "t2", "a": 0.5, "other": "ignored"}"#,
        r#"{"user": 8, "x": 2, "a": 1}"#,
        r#"{"user": 7, "x": 2, "a": 1}"#,
        r#"{"a": 1}"#,
        r#"{"a": 1}"#,
    ];
    let groups = groups(known(), &rows);
    assert_eq!(numbers(&groups), [vec![1, 2], vec![3], vec![4], vec![5], vec![6]]);
    let request = request(&groups[0]);
    assert_eq!((request.request_id.as_str(), request.routing_key.as_str()), ("7", "7"));
    assert_eq!(kind(&user(&request).features, "x"), Some(Kind::Integer(2)));
    assert_eq!(request.treatments[1].id, "t2");
    assert_eq!(request.treatments[1].features.len(), 1);
    assert_eq!(kind(&request.treatments[1].features, "a"), Some(Kind::Real(0.5)));
}

#[test]
fn a_row_that_cannot_be_scored_stays_among_the_rows_of_its_user() {
    let rows = [
        r#"{"user": "u", "x": 1, "a": 1}"#,
        "not an object",
        r#"{"user": "u", "x": 2, "a": 1}"#,
        r#"{"user": "u", "x": 1, "a": [1, "b"]}"#,
        r#"{"user": "u", "x": 1, "a": 2}"#,
    ];
    let groups = groups(known(), &rows);
    assert_eq!(numbers(&groups), [[1, 2, 3, 4, 5]]);
    let rows = &groups[0].rows;
    assert_eq!(failure(&rows[1]), "REQUEST_MALFORMED: malformed");
    assert_eq!(failure(&rows[2]), "REQUEST_MALFORMED: the user has other features than in row 1");
    assert!(failure(&rows[3]).contains("a: a list of"), "{}", failure(&rows[3]));
    assert_eq!(request(&groups[0]).treatments.len(), 2);
}

#[test]
fn a_user_with_too_many_treatments_fails_once() {
    let options = Options { max_treatments: 2, ..Options::default() };
    let row = r#"{"user": "u", "a": 1}"#;
    let rows = [row, row, row, "malformed", row, r#"{"user": "v", "a": 1}"#];
    let groups = groups_with(&options, known(), &rows);
    assert_eq!(numbers(&groups), [vec![1, 2, 3], vec![4], vec![5], vec![6]]);
    let counts = groups[..4].iter().flat_map(|group| &group.rows).map(|row| row.shares_failure);
    assert_eq!(counts.collect::<Vec<_>>(), [false, true, true, false, true, false]);
    for row in [0, 2].iter().flat_map(|group| &groups[*group].rows) {
        assert!(failure(row).starts_with("TOO_MANY_TREATMENTS: "), "{}", failure(row));
    }
    assert!(!groups[0].is_sent() && groups[3].is_sent());
}

#[test]
fn unknown_features_go_to_both_entities() {
    let rows = [r#"{"user": "u", "x": 1, "a": 2}"#, r#"{"user": "u", "x": 3, "a": 4}"#];
    let groups = groups(Features::unknown([]), &rows);
    let request = request(&groups[0]);
    assert_eq!(user(&request).features.len(), 2);
    assert_eq!(kind(&request.treatments[1].features, "x"), Some(Kind::Integer(3)));
}

#[test]
fn a_list_of_treatments_need_not_be_a_feature_of_the_user() {
    let rows =
        [r#"{"user": "u", "treatment": ["t", "v"], "x": 1, "a": [2, null], "b": [[1], [2]]}"#];
    let groups = groups(Features::unknown([]), &rows);
    let request = request(&groups[0]);
    assert_eq!(user(&request).features.len(), 1, "x");
    assert_eq!(kind(&request.treatments[0].features, "a"), Some(Kind::Integer(2)));
    assert_eq!(kind(&request.treatments[1].features, "a"), None);
    let vector = Kind::Integers(IntegerList { values: vec![2] });
    assert_eq!(kind(&request.treatments[1].features, "b"), Some(vector));
}

#[test]
fn a_list_has_a_value_for_each_treatment() {
    let rows = [
        r#"{"user": "u", "x": 1, "home": {"zip": 5}, "treatment": ["t", "v"], "a": [1, 2]}"#,
        r#"{"user": "u", "expected": [0.5], "a": [3]}"#,
        r#"{"user": "u", "treatment": ["t", "v"], "a": [1]}"#,
        r#"{"user": "u", "treatment": ["t"], "a": 1}"#,
        r#"{"user": "u", "treatment": "t", "expected": [1], "a": [1]}"#,
    ];
    let groups = groups(known(), &rows);
    let first = request(&groups[0]);
    assert_eq!(kind(&user(&first).features, "home.zip"), Some(Kind::Integer(5)));
    assert_eq!(first.treatments[1].id, "v");
    assert_eq!(kind(&first.treatments[1].features, "a"), Some(Kind::Integer(2)));
    assert_eq!(request(&groups[1]).treatments.len(), 1);
    let failures = groups[2..].iter().map(|group| failure(&group.rows[0]));
    let expected = [
        "REQUEST_MALFORMED: a: 1 values for 2 treatments",
        "REQUEST_MALFORMED: a: not a list with a value for each treatment",
        "REQUEST_MALFORMED: treatment: not a list, although expected is one",
    ];
    assert_eq!(failures.collect::<Vec<_>>(), expected);
}

#[test]
fn a_request_has_the_http_form() {
    let rows = [
        r#"{"model": {"name": "m"}, "request_id": "r", "routing_key": "k", "expected": [1, 2],
            "user": {"x": 1, "home": {"zip": 5}},
            "treatments": [{"id": "t", "features": {"a": 1}}, {"features": {"a": 2}}]}"#,
        r#"{"user": {"x": 1}}"#,
        r#"{"user": {"x": 1}, "options": {"top_k": 1}}"#,
        r#"{"treatments": [{"id": "t", "a": 1}]}"#,
        r#"{"user": "u", "treatments": []}"#,
        r#"{"treatments": [], "x": 1}"#,
    ];
    let groups = groups(known(), &rows);
    let first = request(&groups[0]);
    assert_eq!((first.request_id.as_str(), first.routing_key.as_str()), ("r", "k"));
    assert_eq!(first.model, None);
    assert_eq!(user(&first).features.len(), 2);
    assert_eq!(kind(&first.treatments[1].features, "a"), Some(Kind::Integer(2)));
    let row = &groups[0].rows[0];
    assert!(row.is_list && row.user == Cell::Text("k".to_owned()));
    assert_eq!(row.treatment, Cell::List(vec![Cell::Text("t".to_owned()), Cell::Absent]));
    assert_eq!(request(&groups[1]).treatments.len(), 0);
    for (group, part) in groups[2..].iter().zip(["options", "treatments[0]: a", "user", "x"]) {
        let failure = failure(&group.rows[0]);
        assert!(failure.starts_with(&format!("REQUEST_MALFORMED: {part}: ")), "{failure}");
    }
}

#[test]
fn failed_rows_of_one_user_are_passed_on_before_the_end_of_the_file() {
    let row = |x| format!(r#"{{"user": 7, "treatment": "t", "x": {x}, "a": 1}}"#);
    let rows: Vec<_> = (0..250).map(row).collect();
    let groups = groups(known(), &rows.iter().map(String::as_str).collect::<Vec<_>>());
    let most = groups.iter().map(|group| group.rows.len()).max();
    assert_eq!(most, Some(102), "the first row, as many errors as are allowed, and one more");
}

#[test]
fn lists_and_requests_have_as_many_treatments_as_a_request_may_have() {
    let options = Options { max_treatments: 2, ..Options::default() };
    let rows = [
        r#"{"user": 7, "treatment": ["a", "b"], "a": [1, 2]}"#,
        r#"{"user": 7, "treatment": ["a", "b", "c"], "a": [1, 2, 3]}"#,
        r#"{"treatments": [{"features": {"a": 1}}, {"features": {"a": 1}}]}"#,
        r#"{"treatments": [{"features": {"a": 1}}, {}, {}]}"#,
    ];
    let groups = groups_with(&options, known(), &rows);
    let reasons: Vec<_> =
        groups.iter().map(|group| group.rows[0].failure.as_ref().map(|it| it.reason)).collect();
    let refused = Some(Reason::TooManyTreatments);
    assert_eq!(reasons, [None, refused, None, refused]);
}

#[test]
fn rows_of_one_user_take_a_limited_number_of_bytes() {
    let memory = Memory { request: 1000, ..Memory::default() };
    let options = Options { memory, max_errors: usize::MAX, ..Options::default() };
    let ids =
        [r#"{"user": 7, "treatment": "ID", "x": 1, "a": 1}"#, r#"{"user": 7, "a": ["ID", 1]}"#];
    for row in ids.map(|row| row.replace("ID", &"t".repeat(150))) {
        let rows = vec![row.as_str(); 20];
        let most = groups_with(&options, known(), &rows).iter().map(|it| it.rows.len()).max();
        assert!((2..20).contains(&most.unwrap_or_default()), "{most:?}: {row}");
    }
}

#[test]
fn the_form_of_a_file_with_typed_columns_holds_for_rows_without_values() {
    let list = |of| ColumnKind::List(Box::new(of));
    let columns = [
        ("user", ColumnKind::Integer),
        ("expected", list(ColumnKind::Real)),
        ("a", list(ColumnKind::Real)),
    ]
    .map(|(name, kind)| Column::new(name, kind));
    let rows = [
        r#"{"user": 7, "x": 1, "expected": [1, 2], "a": [1, 2]}"#,
        r#"{"user": 7, "x": 1, "expected": null, "a": [1, 2, 3]}"#,
        r#"{"user": 7, "x": 1, "expected": null, "a": null}"#,
    ];
    let grouping = Grouping::new(known(), &Options::default(), Some(&columns));
    let groups = groups_of(grouping, &rows);
    assert_eq!(numbers(&groups), [[1], [2], [3]], "not the rows of one user");
    assert!(groups.iter().all(|group| group.rows[0].is_list));
    assert_eq!(groups.iter().map(|group| group.treatments).collect::<Vec<_>>(), [2, 3, 0]);
}

#[test]
fn a_feature_may_be_called_like_the_treatments_of_a_request() {
    let groups = groups(known(), &[r#"{"user": 7, "treatments": 3, "a": 1}"#]);
    assert_eq!(request(&groups[0]).treatments.len(), 1);
}

#[test]
fn a_column_with_the_name_of_a_feature_is_read_or_refused() {
    let names = |names: &[&str]| names.iter().copied().map(Arc::from).collect();
    let checked = |columns: &[&str], left_out: &[&str]| {
        let mut grouping = Grouping::new(known(), &Options::default(), Some(&[]));
        let of = "Date32".to_owned();
        let left_out: Vec<_> =
            left_out.iter().map(|name| LeftOut { name: (*name).into(), of: of.clone() }).collect();
        grouping.check_left_out(&left_out)?;
        grouping.take_columns(&names(columns));
        grouping.check_features()?;
        Ok::<_, Failure>(grouping.ignored.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(checked(&["user", "a", "b"], &["day"]), Ok(vec!["b".to_owned(), "day".to_owned()]));
    assert_eq!(checked(&["home", "home.zip"], &[]), Ok(vec!["home".to_owned()]));
    for (columns, left_out, reason, text) in [
        (&["x"][..], &["a"][..], Reason::FeatureType, "\"a\" is Date32"),
        (&["x"], &["home"], Reason::FeatureType, "\"home\" is Date32"),
        (&["x"], &["expected"], Reason::FeatureType, "\"expected\" is Date32"),
        (&["a;id"], &[], Reason::FeatureMissing, "it has \"a;id\""),
        (&["home"], &[], Reason::FeatureMissing, "it has \"home\""),
        (&["user", "treatment"], &[], Reason::FeatureMissing, "it has none"),
        (&[], &[], Reason::FeatureMissing, "it has none"),
    ] {
        let failure = checked(columns, left_out).expect_err(text);
        assert_eq!(failure.reason, reason);
        assert!(failure.message.contains(text), "{failure}");
    }
}

#[test]
fn a_reserved_column_is_no_feature_of_the_model() {
    let options = Options {
        reserved: Reserved { treatment: "a".to_owned(), ..Reserved::default() },
        ..Options::default()
    };
    let checked = |names: &[&str]| {
        let mut grouping = Grouping::new(known(), &options, Some(&[]));
        grouping.take_columns(&names.iter().copied().map(Arc::from).collect());
        grouping.check_features()
    };
    let failure = checked(&["x", "a"]).expect_err("both");
    assert!(failure.message.starts_with("the column \"a\" is a feature"), "{failure}");
    assert_eq!(checked(&["x"]), Ok(()));
}

#[test]
fn rows_whose_columns_differ_have_a_feature_among_all_of_them() {
    let has_feature = |rows: &[&str]| {
        let mut grouping = Grouping::new(known(), &Options::default(), None);
        for (number, row) in (1..).zip(rows) {
            let cell = Cell::parse(row.as_bytes(), 1 << 20).expect("JSON");
            let Cell::Object(members) = cell else { panic!("{row} is no object") };
            let names = members.iter().map(|(name, _)| Arc::from(name.as_str())).collect();
            let cells = members.into_iter().map(|(_, cell)| cell).collect();
            grouping.add(Ok(&mut Row { number, names, cells }), &mut |_| {});
        }
        (grouping.check_features().is_ok(), grouping.ignored.len())
    };
    assert_eq!(has_feature(&[r#"{"b": 1}"#, r#"{"b": 1, "a": 2}"#]), (true, 1));
    assert_eq!(has_feature(&[r#"{"treatments": [{"features": {"a": 1}}]}"#]), (true, 0));
    assert_eq!(has_feature(&[r#"{"b": 1}"#]), (false, 1));
    let object = r#"{"home": {"zip": 1}}"#;
    assert_eq!(has_feature(&[object]), (true, 0));
    assert_eq!(has_feature(&[r#"{"home": 1}"#, r#"{"home": 1}"#]), (false, 1));
    assert_eq!(has_feature(&[r#"{"home": 1}"#, object]), (true, 1));
}

#[test]
fn an_object_is_no_value_of_a_feature() {
    let groups = groups(known(), &[r#"{"user": 7, "a": {"b": 1}}"#]);
    let failure = groups[0].rows[0].failure.as_ref().expect("refused");
    assert_eq!(failure.reason, Reason::FeatureType);
    assert!(failure.message.starts_with("a: an object"), "{failure}");
}
