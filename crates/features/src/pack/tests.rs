use bytes::Bytes;
use outrigger_core::{Content, Reason};
use outrigger_proto::outrigger::v1::{
    IntegerColumn, Matrix, OnTreatmentError, PredictRequest, TextColumn, TextList, Treatment,
    TreatmentTable, predict_request::User, value::Kind,
};
use prost::Message;
use prost_types::{ListValue, Struct, value::Kind as ObjectKind};

use super::*;
use crate::{
    fixtures::{
        embedding, encoded, everything, fields, floats, ints, longs, number, pack, plan, request,
        strings, text, treatment, user,
    },
    packed::{FeatureCounts, Ids},
    reference::Reference,
};

fn failure(request: PredictRequest) -> Failure {
    pack(&plan(), &[request]).expect_err("refused")
}

fn with_table(table: TreatmentTable) -> PredictRequest {
    PredictRequest { treatment_table: Some(table), ..request(&[]) }
}

fn matrix(names: &[&str], values: &[f32]) -> Matrix {
    Matrix {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        values: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        ..Matrix::default()
    }
}

fn object(fields: &[(&str, ObjectKind)]) -> Struct {
    let pair = |(name, kind): &(&str, ObjectKind)| {
        ((*name).to_owned(), prost_types::Value { kind: Some(kind.clone()) })
    };
    Struct { fields: fields.iter().map(pair).collect() }
}

fn list(values: &[ObjectKind]) -> ObjectKind {
    let value = |kind: &ObjectKind| prost_types::Value { kind: Some(kind.clone()) };
    ObjectKind::ListValue(ListValue { values: values.iter().map(value).collect() })
}

#[test]
fn a_request_becomes_the_tensors_metadata_describes() {
    let packed = pack(&plan(), &[request(&[0.1, 0.2])]).expect("packs");
    let shapes: Vec<_> = packed
        .tensors
        .iter()
        .map(|tensor| (&*tensor.name, tensor.dtype.as_str(), tensor.shape.clone()))
        .collect();
    let expected = [
        ("user_numeric", "float32", vec![1, 5]),
        ("user_segment", "int64", vec![1, 1]),
        ("treatment_numeric", "float32", vec![1, 2, 2]),
        ("treatment_counts", "int32", vec![1]),
    ];
    assert_eq!(shapes, expected);
    assert_eq!(packed.tensors[0].content, floats(&[6.0, 0.5, 1.0, 1.5, 2.0]));
    assert_eq!(packed.tensors[1].content, longs(&[1]));
    assert_eq!(packed.tensors[2].content, floats(&[0.1, f32::NAN, 0.2, f32::NAN]));
    assert_eq!(packed.tensors[3].content, ints(&[2]));
    let counts = FeatureCounts { missing: 4, unknown: 0, out_of_vocabulary: 0 };
    assert_eq!(packed.counts, counts);
}

#[test]
fn shorter_users_are_padded_and_the_counts_say_how_far() {
    let requests = [request(&[0.1]), request(&[0.2, 0.3]), request(&[])];
    let packed = pack(&plan(), &requests).expect("packs");
    assert_eq!(packed.tensors[2].shape, [3, 2, 2]);
    let nan = f32::NAN;
    assert_eq!(
        packed.tensors[2].content,
        floats(&[0.1, nan, 0.0, 0.0, 0.2, nan, 0.3, nan, 0.0, 0.0, 0.0, 0.0])
    );
    assert_eq!(packed.tensors[3].content, ints(&[1, 2, 0]));
    assert_eq!(packed.treatments, 2);
}

#[test]
fn strings_flags_hashes_counts_and_seeds_are_packed() {
    let plan = everything();
    let mut smoke = plan.smoke_request();
    let Some(User::UserFeatures(features)) = &mut smoke.user else { unreachable!() };
    let texts = Kind::Texts(TextList { values: vec!["a".into(), "web".into()] });
    let flag = |kind| outrigger_proto::outrigger::v1::Value { kind: Some(kind) };
    features.features.insert("tags".into(), flag(texts));
    features.features.insert("newbie".into(), flag(Kind::Flag(true)));
    features.features.insert("note".into(), flag(text("hä")));
    let packed = pack(&plan, &[smoke]).expect("packs");
    let content = |name: &str| {
        let mut tensors = packed.tensors.iter();
        let tensor = tensors.find(|tensor| &*tensor.name == name).expect("a tensor of this name");
        (tensor.shape.clone(), tensor.content.clone())
    };
    // The fingerprint of "" is 0x9ae16a3b2f90404f; to_hash_bucket_fast(["a", "web"], 10) is [9, 9].
    assert_eq!(content("user_i32"), (vec![1, 5], ints(&[0, 0x2f90404f, 9, 9, 0])));
    assert_eq!(content("user_text"), (vec![1, 2], strings(&["CH", "hä"])));
    assert_eq!(content("treatment_text"), (vec![1, 1, 2], strings(&["", ""])));
    assert_eq!(content("counts"), (vec![1], longs(&[1])));
    let seed = farmhash::fingerprint64(b"smoke").cast_signed();
    assert_eq!(content("seed"), (vec![1], longs(&[seed])));
}

#[test]
fn a_user_object_is_flattened() {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [
          {"tensor": "n", "entity": "user", "dtype": "float32", "features": [
            {"name": "a.b", "default": -1}, {"name": "a.c.d", "default": -1},
            {"name": "gone", "default": -1}, {"name": "v", "length": 2, "required": true}]},
          {"tensor": "s", "entity": "user", "dtype": "string", "features": [{"name": "a.s", "required": true}]},
          {"tensor": "f", "entity": "user", "dtype": "bool", "features": [{"name": "f", "length": 2, "required": true}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "single"}]}"#;
    let plan = Plan::compile(crate::Metadata::parse(json).expect("valid"));
    let deep = object(&[("d", ObjectKind::NumberValue(2.0))]);
    let nested = object(&[
        ("b", ObjectKind::NumberValue(1.0)),
        ("c", ObjectKind::StructValue(deep)),
        ("s", ObjectKind::StringValue("x".into())),
        ("other", ObjectKind::NumberValue(9.0)),
    ]);
    let user = object(&[
        ("a", ObjectKind::StructValue(nested)),
        ("gone", ObjectKind::NullValue(0)),
        ("v", list(&[ObjectKind::NumberValue(3.0), ObjectKind::NumberValue(4.0)])),
        ("f", list(&[ObjectKind::BoolValue(true), ObjectKind::NumberValue(0.0)])),
    ]);
    let mut request =
        PredictRequest { user: Some(User::UserObject(user)), ..PredictRequest::default() };
    let packed = pack(&plan, std::slice::from_ref(&request)).expect("packs");
    assert_eq!(packed.tensors[0].content, floats(&[1.0, 2.0, -1.0, 3.0, 4.0]));
    assert_eq!(packed.tensors[1].content, strings(&["x"]));
    assert_eq!(packed.counts.unknown, 1);

    let Some(User::UserObject(user)) = &mut request.user else { unreachable!() };
    let mixed = list(&[ObjectKind::NumberValue(1.0), ObjectKind::NullValue(0)]);
    user.fields.insert("v".into(), prost_types::Value { kind: Some(mixed) });
    let failure = pack(&plan, &[request]).expect_err("a null in a vector");
    assert_eq!((failure.reason, fields(&failure)), (Reason::FeatureType, vec![r#"user["v"]"#]));
}

#[test]
fn a_table_with_every_kind_of_column_is_packed() {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [
          {"tensor": "n", "entity": "treatment", "dtype": "float32", "features": [
            {"name": "x", "default": -1}, {"name": "v", "length": 2, "default": [-1, -1]}]},
          {"tensor": "i", "entity": "treatment", "dtype": "int64", "features": [
            {"name": "i", "default": -1}, {"name": "w", "length": 2, "default": [-1, -1]}]},
          {"tensor": "s", "entity": "treatment", "dtype": "string", "features": [{"name": "s", "default": "none"}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "per_treatment"}]}"#;
    let plan = Plan::compile(crate::Metadata::parse(json).expect("valid"));
    let numbers = Matrix {
        widths: vec![2, 1, 1],
        // Row 0 has v and x, row 1 only the unknown column and x.
        validity: vec![0b110101].into(),
        ..matrix(&["v", "unknown", "x"], &[1.0, 2.0, 9.0, 3.0, 4.0, 5.0, 9.0, 6.0])
    };
    let table = TreatmentTable {
        count: 2,
        numbers: Some(numbers),
        texts: vec![TextColumn {
            name: "s".into(),
            values: vec!["a".into(), "b".into()],
            validity: vec![0b10],
            ..TextColumn::default()
        }],
        integers: vec![
            IntegerColumn { name: "i".into(), values: vec![7, 8], ..IntegerColumn::default() },
            IntegerColumn {
                name: "w".into(),
                values: vec![1, 2, 3, 4],
                width: 2,
                ..IntegerColumn::default()
            },
        ],
        ..TreatmentTable::default()
    };
    let packed = pack(&plan, &[with_table(table)]).expect("packs");
    assert_eq!(packed.tensors[0].content, floats(&[3.0, 1.0, 2.0, 6.0, -1.0, -1.0]));
    assert_eq!(packed.tensors[1].content, longs(&[7, 1, 2, 8, 3, 4]));
    assert_eq!(packed.tensors[2].content, strings(&["none", "b"]));
    // The unknown column's one valid value, and the user's embedding.
    assert_eq!(packed.counts, FeatureCounts { missing: 2, unknown: 2, out_of_vocabulary: 0 });
}

#[test]
fn a_table_may_have_columns_the_model_does_not_name_but_not_any_number() {
    let columns = |texts| TreatmentTable {
        numbers: Some(matrix(&["discount"], &[])),
        texts: (0..texts)
            .map(|at| TextColumn { name: at.to_string(), ..Default::default() })
            .collect(),
        integers: vec![IntegerColumn { name: "last".into(), ..Default::default() }],
        ..TreatmentTable::default()
    };
    // 4096 unknown columns are accepted in addition to the two that the model names.
    pack(&plan(), &[with_table(columns(4096))]).expect("packs");
    let request = with_table(columns(4097));
    let expected = Reference::new(&plan()).pack(&[encoded(&request)], &Limits::default());
    let failure = failure(request);
    assert_eq!(failure.message, "treatment_table: 4099 columns, at most 4098 are allowed");
    assert_eq!(expected.expect_err("refused"), failure);
}

#[test]
fn tables_that_contradict_themselves_are_malformed() {
    let ids = |count: usize| vec![String::new(); count];
    let numbers = Some(matrix(&["discount"], &[0.1, 0.2]));
    let text = |name: &str, count| TextColumn {
        name: name.into(),
        values: ids(count),
        ..TextColumn::default()
    };
    let cases = [
        (
            TreatmentTable { ids: ids(3), count: 2, ..TreatmentTable::default() },
            "treatment_table.ids",
        ),
        (
            TreatmentTable { count: 3, numbers: numbers.clone(), ..TreatmentTable::default() },
            "treatment_table.numbers.values",
        ),
        (
            TreatmentTable { numbers: numbers.clone(), ..TreatmentTable::default() },
            "treatment_table.numbers.values",
        ),
        (
            TreatmentTable {
                count: 2,
                numbers: Some(Matrix { widths: vec![1, 1], ..matrix(&["discount"], &[0.1, 0.2]) }),
                ..TreatmentTable::default()
            },
            "treatment_table.numbers.widths",
        ),
        (
            TreatmentTable {
                count: 2,
                numbers: Some(Matrix { widths: vec![0], ..matrix(&["discount"], &[]) }),
                ..TreatmentTable::default()
            },
            "treatment_table.numbers.widths",
        ),
        (
            TreatmentTable {
                count: 2,
                numbers: Some(Matrix {
                    validity: vec![1, 1].into(),
                    ..matrix(&["discount"], &[0.1, 0.2])
                }),
                ..TreatmentTable::default()
            },
            "treatment_table.numbers.validity",
        ),
        (
            TreatmentTable {
                count: 1,
                numbers: Some(matrix(&["discount", "discount"], &[0.1, 0.2])),
                ..TreatmentTable::default()
            },
            "treatment_table.numbers.names[1]",
        ),
        (
            TreatmentTable { count: 2, texts: vec![text("a", 1)], ..TreatmentTable::default() },
            "treatment_table.texts[0].values",
        ),
        (
            TreatmentTable {
                count: 2,
                numbers,
                texts: vec![text("a", 2), text("discount", 2)],
                ..TreatmentTable::default()
            },
            "treatment_table.texts[1].name",
        ),
        (
            TreatmentTable {
                count: 2,
                integers: vec![IntegerColumn { width: 3, ..IntegerColumn::default() }],
                ..TreatmentTable::default()
            },
            "treatment_table.integers[0].values",
        ),
    ];
    for (table, field) in cases {
        let failure = failure(with_table(table));
        assert_eq!(failure.reason, Reason::RequestMalformed, "{failure}");
        assert_eq!(fields(&failure), [field], "{failure}");
    }
}

#[test]
fn both_forms_of_treatments_exclude_each_other() {
    let mut both = request(&[0.1]);
    both.treatment_table = Some(TreatmentTable::default());
    let failure = failure(both);
    assert_eq!(failure.reason, Reason::RequestMalformed);
    assert_eq!(fields(&failure), ["treatment_table"]);
}

#[test]
fn bad_features_are_named_with_treatment_and_id() {
    let mut bad = request(&[0.1, 0.2]);
    bad.treatments[1] = treatment("spring", [("discount", text("cheap"))]);
    let wrong_type = failure(bad.clone());
    assert_eq!(wrong_type.reason, Reason::FeatureType);
    assert_eq!(
        wrong_type.message,
        r#"treatments[1].features["discount"]: expected a number, found text (treatment 1, id "spring")"#
    );
    assert_eq!(fields(&wrong_type), [r#"treatments[1].features["discount"]"#]);

    let batch = pack(&plan(), &[request(&[]), bad]).expect_err("refused");
    assert_eq!(fields(&batch), [r#"requests[1].treatments[1].features["discount"]"#]);

    let missing = failure(with_table(TreatmentTable { count: 1, ..TreatmentTable::default() }));
    assert_eq!(missing.reason, Reason::FeatureMissing);
    assert_eq!(fields(&missing), [r#"treatment_table["discount"][0]"#]);

    let missing = failure(PredictRequest::default());
    assert_eq!(missing.reason, Reason::FeatureMissing);
    assert_eq!(fields(&missing), [r#"user["embedding"]"#]);
}

#[test]
fn a_value_without_a_kind_is_absence() {
    let mut sent = request(&[0.1]);
    let empty = outrigger_proto::outrigger::v1::Value { kind: None };
    sent.treatments[0].features.insert("discount".into(), empty.clone());
    sent.treatments[0].features.insert("unheard_of".into(), empty);
    assert_eq!(failure(sent.clone()).reason, Reason::FeatureMissing);
    let discount = outrigger_proto::outrigger::v1::Value { kind: Some(number(0.1)) };
    sent.treatments[0].features.insert("discount".into(), discount);
    assert_eq!(pack(&plan(), &[sent]).expect("packs").counts.unknown, 0);
}

#[test]
fn bad_treatments_can_be_skipped() {
    let mut sent = request(&[0.1, f32::NAN, 0.3]);
    sent.options = Some(ResponseOptions {
        on_treatment_error: OnTreatmentError::Skip.into(),
        treatment_ids: true,
        ..ResponseOptions::default()
    });
    let packed = pack(&plan(), &[sent.clone()]).expect("packs");
    let user = &packed.users[0];
    assert_eq!((user.requested, user.kept(), user.positions()), (3, 2, vec![0, 2]));
    assert_eq!(user.ids, Some(Ids::copied(&["t0", "t2"])));
    assert_eq!(packed.tensors[2].content, floats(&[0.1, f32::NAN, 0.3, f32::NAN]));
    assert_eq!(packed.tensors[3].content, ints(&[2]));
    assert_eq!(packed.counts.missing, 4, "the skipped treatment does not count");
    let error = &user.errors[0];
    assert_eq!((error.index, error.id.as_str()), (1, "t1"));
    assert_eq!((error.reason.as_str(), error.feature.as_str()), ("FEATURE_NOT_FINITE", "discount"));

    sent.user = Some(user_without_embedding());
    let failure = pack(&plan(), &[sent]).expect_err("the user's features are needed");
    assert_eq!(failure.reason, Reason::FeatureMissing);
}

#[test]
fn nothing_is_left_of_a_treatment_that_fails_at_its_last_feature() {
    let mut sent = request(&[0.1, 0.2, 0.3]);
    sent.treatments[1] = treatment("bad", [("discount", number(9.0)), ("days_live", text("many"))]);
    let on_treatment_error = OnTreatmentError::Skip.into();
    sent.options = Some(ResponseOptions { on_treatment_error, ..ResponseOptions::default() });
    let packed = pack(&plan(), &[sent]).expect("packs");
    assert_eq!(packed.tensors[2].content, floats(&[0.1, f32::NAN, 0.3, f32::NAN]));
    assert_eq!(packed.users[0].positions(), [0, 2]);
}

#[test]
fn values_of_a_skipped_treatment_are_not_counted() {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [
          {"tensor": "n", "entity": "treatment", "dtype": "float32", "features": [{"name": "a", "default": 0}]},
          {"tensor": "m", "entity": "treatment", "dtype": "float32", "features": [{"name": "b", "required": true}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "per_treatment"}]}"#;
    let plan = Plan::compile(crate::Metadata::parse(json).expect("valid"));
    let options = ResponseOptions {
        on_treatment_error: OnTreatmentError::Skip.into(),
        ..ResponseOptions::default()
    };
    let sent = PredictRequest {
        treatments: vec![treatment("bad", []), treatment("good", [("b", number(1.0))])],
        options: Some(options),
        ..PredictRequest::default()
    };
    let packed = pack(&plan, std::slice::from_ref(&sent)).expect("packs");
    assert_eq!(packed.counts.missing, 1);
    assert_eq!(packed.tensors[0].content, floats(&[0.0]));
    let explained = plan.explain(&[&sent.encode_to_vec()], &Limits::default()).expect("packs");
    assert_eq!(explained[0].tensors[0].origins.len(), 1);
    assert_eq!(explained[0].treatment_errors.len(), 1);
}

fn user_without_embedding() -> User {
    user([("recency_months", number(1.0))])
}

#[test]
fn limits_are_kept() {
    let plan = plan();
    let encoded = request(&[0.1; 3]).encode_to_vec();
    let limits = |treatments, users, bytes| Limits {
        max_treatments: treatments,
        max_users: users,
        max_tensor_bytes: bytes,
    };
    // 20 bytes of user_numeric, 8 of user_segment, 24 of treatment_numeric, 4 of counts.
    let refused = |limits: Limits, requests: &[&[u8]]| plan.pack(requests, &limits).err();
    assert_eq!(refused(limits(3, 1, 56), &[&encoded]), None);
    let reason = |failure: Option<Failure>| failure.map(|failure| failure.reason);
    let many = refused(limits(2, 1, 56), &[&encoded]);
    assert_eq!(many.as_ref().map(fields), Some(vec!["treatments"]));
    assert_eq!(reason(many), Some(Reason::TooManyTreatments));
    assert_eq!(reason(refused(limits(3, 1, 55), &[&encoded])), Some(Reason::TooLarge));
    let users = refused(limits(3, 1, 1000), &[&encoded, &encoded]);
    assert_eq!(reason(users), Some(Reason::RequestMalformed));
    assert_eq!(reason(refused(limits(3, 1, 1000), &[])), Some(Reason::RequestMalformed));
    let huge = TreatmentTable { count: u32::MAX, ..TreatmentTable::default() };
    assert_eq!(failure(with_table(huge)).reason, Reason::TooManyTreatments);
}

#[test]
fn treatments_are_counted_before_they_are_decoded() {
    // Each empty treatment takes two bytes here, and a hundred when decoded.
    let mut flood = b"\x32\x00".repeat(5001);
    flood.extend(b"\x32\x7f");
    let failure = plan().pack(&[&flood], &Limits::default()).expect_err("too many");
    assert_eq!(failure.reason, Reason::TooManyTreatments, "{failure}");
    assert_eq!(fields(&failure), ["treatments"]);
}

#[test]
fn a_table_is_not_read_when_its_tensors_would_be_too_large() {
    let table = TreatmentTable {
        count: 5000,
        numbers: Some(matrix(&["discount"], &[])),
        ..TreatmentTable::default()
    };
    let encoded = with_table(table).encode_to_vec();
    let limits = Limits { max_tensor_bytes: 1000, ..Limits::default() };
    let failure = plan().pack(&[&encoded], &limits).expect_err("too large");
    assert_eq!(failure.reason, Reason::TooLarge, "{failure}");
}

#[test]
fn a_path_that_an_object_gives_twice_is_malformed() {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [{"tensor": "n", "entity": "user", "dtype": "float32", "features": [
            {"name": "a.b", "default": -1}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "single"}]}"#;
    let plan = Plan::compile(crate::Metadata::parse(json).expect("valid"));
    let packed = |dotted: ObjectKind| {
        let nested = object(&[("b", ObjectKind::NumberValue(1.0))]);
        let user = object(&[("a", ObjectKind::StructValue(nested)), ("a.b", dotted)]);
        let user = Some(User::UserObject(user));
        pack(&plan, &[PredictRequest { user, ..PredictRequest::default() }])
    };
    // Without the check, the last entry in the map would win.
    let failure = packed(ObjectKind::NumberValue(2.0)).expect_err("ambiguous");
    assert_eq!(failure.reason, Reason::RequestMalformed);
    assert_eq!(fields(&failure), [r#"user["a.b"]"#]);
    let inner = object(&[("c", ObjectKind::NumberValue(2.0))]);
    let failure = packed(ObjectKind::StructValue(inner)).expect_err("an object");
    assert_eq!(failure.reason, Reason::FeatureType);
    let absent = packed(ObjectKind::NullValue(0)).expect("null is absence");
    assert_eq!(absent.tensors[0].content, floats(&[1.0]));
}

#[test]
fn bytes_that_are_no_request_are_malformed() {
    let plan = plan();
    let good = request(&[]).encode_to_vec();
    let failure = plan.pack(&[&good, b"\xff\xff"], &Limits::default()).expect_err("garbage");
    assert_eq!(failure.reason, Reason::RequestMalformed);
    assert!(failure.message.starts_with("requests[1] cannot be decoded: "), "{failure}");
}

#[test]
fn options_are_checked_against_the_outputs() {
    let plan = everything();
    let options = |options: ResponseOptions| {
        let request = PredictRequest { options: Some(options), ..plan.smoke_request() };
        pack(&plan, &[request]).map_err(|failure| failure.violations[0].field.clone())
    };
    let outputs = |names: &[&str]| ResponseOptions {
        outputs: names.iter().map(|name| (*name).to_owned()).collect(),
        ..ResponseOptions::default()
    };
    let chosen = options(outputs(&["risk", "score"])).expect("both exist");
    assert_eq!(chosen.users[0].outputs, [1, 0]);
    let names: Vec<_> = plan.output_names(&chosen).iter().map(ToString::to_string).collect();
    assert_eq!(names, ["scores", "risk"]);
    let err = |options| Err::<Packed, String>(String::from(options));
    assert_eq!(options(outputs(&["score", "sore"])), err("options.outputs[1]"));
    assert_eq!(options(outputs(&["score", "score"])), err("options.outputs[1]"));
    let ranked = ResponseOptions { top_k: 1, ..outputs(&["risk"]) };
    assert_eq!(options(ranked), err("options.top_k"));
    let odd = ResponseOptions { on_treatment_error: 7, ..ResponseOptions::default() };
    assert_eq!(options(odd), err("options.on_treatment_error"));
}

#[test]
fn the_options_of_a_batch_hold_for_all_its_requests() {
    let plan = plan();
    let batch = ResponseOptions { top_k: 2, ..ResponseOptions::default() };
    let mut own = request(&[0.1]);
    let pack =
        |request: &PredictRequest| plan.pack_batch(&[encoded(request)], &batch, &Limits::default());
    assert_eq!(pack(&own).expect("packs").users[0].top_k, 2);
    own.options = Some(ResponseOptions::default());
    let failure = pack(&own).expect_err("options of its own");
    assert_eq!(fields(&failure), ["requests[0].options"]);
    own = PredictRequest { model: Some(Default::default()), ..request(&[]) };
    assert_eq!(fields(&pack(&own).expect_err("a model of its own")), ["requests[0].model"]);
    let unknown = ResponseOptions { outputs: vec!["x".into()], ..ResponseOptions::default() };
    let encoded = request(&[]).encode_to_vec();
    let failure = plan.pack_batch(&[&encoded], &unknown, &Limits::default());
    assert_eq!(fields(&failure.expect_err("no such output")), ["options.outputs[0]"]);
}

#[test]
fn the_engine_is_needed_only_for_treatments_and_single_outputs() {
    let plan = plan();
    assert!(!pack(&plan, &[request(&[]), request(&[])]).expect("packs").needs_engine());
    assert!(pack(&plan, &[request(&[]), request(&[0.1])]).expect("packs").needs_engine());
    let plan = everything();
    let mut request = PredictRequest { treatments: Vec::new(), ..plan.smoke_request() };
    assert!(pack(&plan, &[request.clone()]).expect("packs").needs_engine());
    let outputs = vec!["score".to_owned()];
    request.options = Some(ResponseOptions { outputs, ..ResponseOptions::default() });
    assert!(!pack(&plan, &[request]).expect("packs").needs_engine());
}

#[test]
fn vocabularies_and_unknown_features_are_counted() {
    let mut sent = request(&[0.1]);
    sent.user = Some(user([
        ("embedding", embedding()),
        ("channel", text("fax")),
        ("shoe_size", number(43.0)),
    ]));
    let unknown = treatment("t", [("discount", number(0.1)), ("shoe_size", number(43.0))]);
    sent.treatments.push(Treatment { id: String::new(), ..unknown });
    let packed = pack(&plan(), &[sent]).expect("packs");
    assert_eq!(packed.tensors[1].content, longs(&[3]));
    assert_eq!(packed.counts, FeatureCounts { missing: 3, unknown: 2, out_of_vocabulary: 1 });
}

fn shared(plan: &Plan, request: &Bytes) -> Result<Packed, Failure> {
    plan.pack_request(&Request::read(request, &Limits::default())?)
}

#[test]
fn a_table_in_the_order_of_the_plan_is_not_copied() {
    let with = |names: &[&str], values: &[f32]| {
        let numbers = Some(matrix(names, values));
        let table = TreatmentTable { count: 2, numbers, ..TreatmentTable::default() };
        Bytes::from(with_table(table).encode_to_vec())
    };
    let (plan, limits) = (plan(), Limits::default());
    let is_part = |request: &Bytes, packed: &Packed| {
        let tensor = packed.tensors.iter().find(|tensor| &*tensor.name == "treatment_numeric");
        let Content::Bytes(bytes) = &tensor.expect("it has one").content else {
            panic!("numbers");
        };
        request.as_ptr_range().contains(&bytes.as_ptr())
    };
    let order = ["discount", "days_live"];
    let request = with(&order, &[0.1, 3.0, 0.2, 4.0]);
    let uncopied = shared(&plan, &request).expect("packs");
    assert!(is_part(&request, &uncopied));
    assert_eq!(uncopied, plan.pack(&[&request], &limits).expect("packs"));
    let turned = with(&["days_live", "discount"], &[3.0, 0.1, 4.0, 0.2]);
    let copied = shared(&plan, &turned).expect("packs");
    assert!(!is_part(&turned, &copied));
    assert_eq!(copied.tensors, uncopied.tensors);
    let infinite = with(&order, &[0.1, 3.0, f32::INFINITY, 4.0]);
    let failure = shared(&plan, &infinite).expect_err("not finite");
    assert_eq!(failure, plan.pack(&[&infinite], &limits).expect_err("not finite"));
    assert_eq!(failure.reason, Reason::FeatureNotFinite);
}
