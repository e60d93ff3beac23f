use std::{collections::HashMap, sync::Arc};

use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::{
    NumberList, PredictRequest, Value, predict_request::User, value::Kind,
};
use prost_types::{Struct, value::Kind as ObjectKind};

use super::*;
use crate::{
    fixtures::{embedding, joined, number, plan, request, text, user},
    limits::Limits,
};

/// A table in memory: rows by key.
struct Table(HashMap<&'static str, FeatureMap>);

impl Table {
    fn new<const N: usize>(rows: [(&'static str, Vec<(&str, Kind)>); N]) -> Self {
        let row = |features: Vec<(&str, Kind)>| {
            let pair = |(name, kind): (&str, Kind)| (name.to_owned(), Value { kind: Some(kind) });
            FeatureMap { features: features.into_iter().map(pair).collect() }
        };
        Self(rows.map(|(key, features)| (key, row(features))).into())
    }

    fn users() -> Self {
        let known = vec![
            ("recency_months", number(3.0)),
            ("channel", text("multichannel")),
            ("embedding", embedding()),
        ];
        Self::new([("u7", known)])
    }
}

fn lookup(key: &str, features: &[&str]) -> Lookup {
    let features = features.iter().map(|feature| Arc::from(*feature)).collect();
    Lookup { table: "users".into(), key: key.into(), features }
}

/// The architecture's example with every feature except `channel` looked up in a table.
fn looking_up() -> Plan {
    let lookups = vec![lookup("id", &["recency_months", "embedding"])];
    plan().with_lookups(lookups).expect("features of the user")
}

fn sending(features: User) -> PredictRequest {
    PredictRequest { user: Some(features), ..request(&[0.5, 0.25]) }
}

/// Runs both phases with a look-up in the table in between.
fn pack(plan: &Plan, table: &Table, request: &PredictRequest) -> Result<Packed, Failure> {
    let message = Bytes::from(request.encode_to_vec());
    let request = Request::read(&message, &Limits::default())?;
    let mut values = Values::default();
    for (lookup, key) in plan.lookups().iter().zip(plan.keys(&request)?) {
        let key = key.as_deref().and_then(|key| std::str::from_utf8(key).ok());
        if let Some(row) = key.and_then(|key| table.0.get(key)) {
            values.add(lookup, row.clone());
        }
    }
    plan.pack_with(&request, &values)
}

#[test]
fn a_row_of_the_table_is_as_good_as_one_that_is_sent() {
    let sent = sending(user([("recency_months", number(3.0)), ("embedding", embedding())]));
    let expected = pack(&plan(), &Table::users(), &sent).expect("packs");
    let found = sending(user([("id", text("u7"))]));
    let packed = pack(&looking_up(), &Table::users(), &found).expect("packs");
    assert_eq!(packed.tensors, expected.tensors);
    // The look-up does not name the table's `channel`, so it is not counted.
    assert_eq!(packed.counts.unknown, expected.counts.unknown + 1);
    assert_eq!(packed.counts.missing, expected.counts.missing);
}

#[test]
fn the_key_of_an_object_is_found_too() {
    let id = prost_types::Value { kind: Some(ObjectKind::StringValue("u7".into())) };
    let object = User::UserObject(Struct { fields: [("id".to_owned(), id)].into() });
    let by_object = pack(&looking_up(), &Table::users(), &sending(object)).expect("packs");
    let by_map = sending(user([("id", text("u7"))]));
    let by_map = pack(&looking_up(), &Table::users(), &by_map).expect("packs");
    assert_eq!(by_object.tensors, by_map.tensors);
}

#[test]
fn sent_features_take_precedence_over_the_table() {
    let sent =
        user([("id", text("u7")), ("recency_months", number(9.0)), ("embedding", embedding())]);
    let without = sending(user([("recency_months", number(9.0)), ("embedding", embedding())]));
    let packed = pack(&looking_up(), &Table::users(), &sending(sent)).expect("packs");
    let expected = pack(&plan(), &Table::users(), &without).expect("packs");
    assert_eq!(packed.tensors, expected.tensors);
}

#[test]
fn without_a_key_or_a_row_features_are_absent() {
    for features in [user([]), user([("id", text(""))]), user([("id", text("nobody"))])] {
        let failure = pack(&looking_up(), &Table::users(), &sending(features));
        assert_eq!(failure.expect_err("required").reason, Reason::FeatureMissing);
    }
}

#[test]
fn joined_rows_contain_looked_up_values() {
    let plan = joined().with_lookups(vec![lookup("id", &["visits", "embedding"])]).expect("known");
    let row = vec![
        ("visits", number(4.0)),
        ("embedding", Kind::Numbers(NumberList { values: vec![1.0, 2.0] })),
    ];
    let packed = pack(&plan, &Table::new([("u7", row)]), &sending(user([("id", text("u7"))])));
    let Content::Bytes(bytes) = &packed.expect("packs").tensors[0].content else {
        panic!("expected numbers")
    };
    let numbers: Vec<_> = bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect();
    assert_eq!(numbers, [6.0, 1.0, 2.0, 0.5, 4.0, 6.0, 1.0, 2.0, 0.25, 4.0]);
}

#[test]
fn keys_are_one_a_look_up_and_texts() {
    let lookups = vec![lookup("id", &["embedding"]), lookup("shop", &[]), lookup("id", &[])];
    let plan = plan().with_lookups(lookups).expect("known");
    let keys = |features| {
        let message = Bytes::from(sending(features).encode_to_vec());
        plan.keys(&Request::read(&message, &Limits::default()).expect("a message"))
    };
    let found = Ok(vec![Some("u7".into()), None, Some("u7".into())]);
    assert_eq!(keys(user([("id", text("u7"))])), found);
    let failure = keys(user([("id", number(7.0))])).expect_err("no text");
    assert_eq!(failure.reason, Reason::FeatureType);
}

#[test]
fn a_plan_without_look_ups_has_no_keys() {
    let message = Bytes::from(request(&[0.5]).encode_to_vec());
    let request = Request::read(&message, &Limits::default()).expect("a message");
    assert_eq!(plan().keys(&request), Ok(Vec::new()));
    assert_eq!(plan().lookups(), []);
}

#[test]
fn a_look_up_gives_features_of_the_user_each_once() {
    let refused = |lookups| plan().with_lookups(lookups).expect_err("refused").to_string();
    let message = r#"the look-up in "users": the user has no feature "discount""#;
    assert_eq!(refused(vec![lookup("id", &["discount"])]), message);
    let twice = vec![lookup("id", &["channel"]), lookup("shop", &["channel"])];
    let message = r#"the look-up in "users": feature "channel" is looked up twice"#;
    assert_eq!(refused(twice), message);
}
