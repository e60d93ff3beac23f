use bytes::Bytes;
use outrigger_core::{Content, Failure, Reason};
use outrigger_proto::outrigger::v1::{
    ExplainResponse, IntegerList, OnTreatmentError, PredictRequest, ResponseOptions, SparseColumn,
    SparseList, TextList, TreatmentTable, ValueOrigin, value::Kind,
};
use prost_types::{Struct, Value, value::Kind as ObjectKind};

use crate::{
    fixtures::{encoded, fields, floats, longs, number, pack, text, treatment, user},
    json,
    limits::Limits,
    metadata::Metadata,
    packed::Packed,
    plan::Plan,
};

/// An id that is a word of the treatments, and the one of other words.
const SHOES: u64 = 4_611_498_643_318_563_012;
const OTHER: u64 = (1 << 63) + 1;

fn plan() -> Plan {
    let json = include_bytes!("../../../tests/metadata/good/sparse.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
}

fn joined() -> Plan {
    let json = include_bytes!("../../../tests/metadata/good/sparse_joined.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
}

fn ids(ids: &[u64], weights: &[f32]) -> Kind {
    Kind::Sparse(SparseList { ids: ids.into(), weights: weights.into(), names: Vec::new() })
}

fn names(names: &[&str], weights: &[f32]) -> Kind {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Kind::Sparse(SparseList { ids: Vec::new(), weights: weights.into(), names })
}

fn bits(ids: &[u64]) -> Content {
    longs(&ids.iter().map(|id| id.cast_signed()).collect::<Vec<_>>())
}

fn content<'p>(packed: &'p Packed, name: &str) -> (&'p [i64], &'p Content) {
    let tensor = packed.tensor(name).expect("it is fed");
    (&tensor.shape, &tensor.content)
}

/// Compares the three tensors of a sparse input.
fn assert_rows(packed: &Packed, name: &str, expected: (&[u64], &[f32], &[i64]), rows: &[i64]) {
    let (ids, weights, lengths) = expected;
    let count = [i64::try_from(ids.len()).expect("few")];
    assert_eq!(content(packed, name), (&count[..], &bits(ids)));
    assert_eq!(content(packed, &format!("{name}_weights")), (&count[..], &floats(weights)));
    assert_eq!(content(packed, &format!("{name}_lengths")), (rows, &longs(lengths)));
}

fn of_user<const N: usize>(features: [(&str, Kind); N]) -> PredictRequest {
    PredictRequest { user: Some(user(features)), ..PredictRequest::default() }
}

fn refused(request: PredictRequest) -> Failure {
    pack(&plan(), &[request]).expect_err("refused")
}

/// The ids of a user's interests as packed.
fn interests(value: Kind) -> Result<Packed, Failure> {
    pack(&plan(), &[of_user([("interests", value), ("segments", names(&[], &[]))])])
}

#[test]
fn a_row_has_the_ids_of_its_features_in_their_order() {
    let first = PredictRequest {
        treatments: vec![
            treatment(
                "a",
                [("price", number(1.0)), ("words", names(&["hats", "shoes"], &[2.0, 3.0]))],
            ),
            treatment("b", [("price", number(1.0)), ("rebate", number(0.25))]),
        ],
        ..of_user([
            ("seniority", number(41.0)),
            ("interests", ids(&[9, u64::MAX, 9], &[0.5, -1.0, 2.0])),
        ])
    };
    let second = PredictRequest {
        treatments: vec![treatment(
            "c",
            [("price", number(1.0)), ("words", names(&["boots"], &[4.0])), ("brand", text("none"))],
        )],
        ..of_user([("segments", names(&["new", "?", "new"], &[]))])
    };
    let plan = plan();
    let packed = pack(&plan, &[first, second]).expect("packs");
    let users =
        (&[9, u64::MAX, 9, 1, u64::MAX, 0, 0][..], &[0.5, -1.0, 2.0, 1.0, 41.0, 1.0, 1.0][..]);
    assert_rows(&packed, "interests", (users.0, users.1, &[5, 2]), &[2]);
    let brand = farmhash::fingerprint64(b"none") % 1000;
    let ids = [17, SHOES, brand, 18, brand, 18, OTHER, brand, 18];
    let weights = [2.0, 3.0, 1.0, 0.5, 1.0, 0.25, 4.0, 1.0, 0.5];
    assert_rows(&packed, "words", (&ids, &weights, &[4, 2, 3, 0]), &[2, 2]);
    assert_eq!((packed.counts.missing, packed.counts.out_of_vocabulary), (8, 2));
    let order: Vec<_> = packed.tensors.iter().map(|tensor| &*tensor.name).collect();
    assert!(plan.input_names().map(|name| &**name).eq(order.iter().copied()));
    let of_lists = ["interests_weights", "interests_lengths", "words_weights", "words_lengths"];
    assert_eq!(order, [&["interests", "words", "numbers"][..], &of_lists].concat());
}

#[test]
fn joined_rows_have_the_ids_of_the_user_first() {
    let offer = |words: &[u64], discount| {
        treatment(
            "t",
            [("words", ids(words, &[])), ("discount", number(discount)), ("price", number(1.0))],
        )
    };
    let first = PredictRequest {
        treatments: vec![offer(&[1, 2], 0.5), offer(&[], 0.75)],
        ..of_user([("bought", ids(&[8, 9], &[0.5, 0.25])), ("recency_months", number(3.0))])
    };
    let second = PredictRequest {
        treatments: vec![treatment("t", [("discount", number(0.0)), ("price", number(1.0))])],
        ..of_user([("visits", number(f32::NAN))])
    };
    let none = of_user([("bought", ids(&[5], &[]))]);
    let plan = joined();
    let packed = pack(&plan, &[first, none, second]).expect("packs");
    let fm =
        (&[8, 9, 1, 2, 8, 9, 7, u64::MAX][..], &[0.5, 0.25, 1.0, 1.0, 0.5, 0.25, 1.0, 1.0][..]);
    assert_rows(&packed, "fm_features", (fm.0, fm.1, &[4, 2, 2]), &[3]);
    let (shape, weights) = content(&packed, "xgboost_features_weights");
    assert_eq!(
        (shape, weights),
        (&[8][..], &floats(&[3.0, 6.0, 0.5, 3.0, 6.0, 0.75, f32::NAN, 0.0]))
    );
    assert_eq!(content(&packed, "xgboost_features").1, &longs(&[1, 2, 0, 1, 2, 0, 2, 0]));
    assert_eq!(content(&packed, "xgboost_features_lengths"), (&[3][..], &longs(&[3, 3, 2])));
    assert_eq!(content(&packed, "x").0, [3, 2]);
}

#[test]
fn values_without_weights_have_a_weight_of_1() {
    let integers = |values: &[i64]| Kind::Integers(IntegerList { values: values.into() });
    for (value, expected) in [
        (integers(&[3, 0]), &[3, 0][..]),
        (Kind::Integer(7), &[7]),
        (ids(&[], &[]), &[]),
        (number(12.0), &[12]),
    ] {
        let packed = interests(value).expect("packs");
        let weights = vec![1.0; expected.len()];
        let length = i64::try_from(expected.len()).expect("few");
        assert_rows(&packed, "interests", (expected, &weights, &[length]), &[1]);
    }
    let texts = TextList { values: vec!["loyal".into(), "new".into()] };
    let packed = pack(&plan(), &[of_user([("segments", Kind::Texts(texts))])]).expect("packs");
    assert_rows(&packed, "interests", (&[1, 0], &[1.0, 1.0], &[2]), &[1]);
}

#[test]
fn values_that_are_no_ids_are_refused() {
    let both = SparseList { ids: vec![1], weights: Vec::new(), names: vec!["a".into()] };
    for (value, reason, message) in [
        (ids(&[1; 7], &[]), Reason::FeatureLength, "expected at most 6 values, found 7"),
        (
            ids(&[1, 2], &[1.0]),
            Reason::FeatureLength,
            "expected a weight for each of 2 ids, found 1",
        ),
        (ids(&[], &[1.0]), Reason::FeatureLength, "expected a weight for each of 0 ids, found 1"),
        (ids(&[1], &[f32::NAN]), Reason::FeatureNotFinite, "a weight is NaN or infinite"),
        (names(&["a"], &[]), Reason::FeatureType, "expected an integer, found names of a sparse"),
        (Kind::Sparse(both), Reason::FeatureType, "expected an integer, found names of a sparse"),
        (Kind::Integer(-1), Reason::FeatureType, "an id is not negative"),
        (number(0.5), Reason::FeatureType, "expected an integer, found another number"),
        (text("a"), Reason::FeatureType, "expected an integer, found text"),
    ] {
        let failure = interests(value).expect_err("refused");
        assert_eq!((failure.reason, fields(&failure)), (reason, vec![r#"user["interests"]"#]));
        assert!(failure.message.contains(message), "{failure}");
    }
    let failure = refused(of_user([("segments", ids(&[1], &[]))]));
    assert!(failure.message.contains("expected text, found an integer"), "{failure}");
    let failure = refused(of_user([("seniority", ids(&[1], &[]))]));
    assert!(failure.message.contains("expected a number, found ids of a sparse list"), "{failure}");
    let price = treatment("a", [("price", ids(&[1], &[]))]);
    let failure = refused(PredictRequest { treatments: vec![price], ..PredictRequest::default() });
    assert_eq!(failure.reason, Reason::FeatureType);
}

/// A table of two treatments with these columns of words.
fn table(sparse: Vec<SparseColumn>) -> PredictRequest {
    let prices = outrigger_proto::outrigger::v1::Matrix {
        names: vec!["price".into()],
        values: [1.0_f32; 2].iter().flat_map(|value| value.to_le_bytes()).collect(),
        ..Default::default()
    };
    let numbers = Some(prices);
    let table = TreatmentTable { count: 2, numbers, sparse, ..TreatmentTable::default() };
    PredictRequest { treatment_table: Some(table), ..PredictRequest::default() }
}

fn words(names: &[&str], weights: &[f32], row_offsets: &[u32]) -> SparseColumn {
    SparseColumn {
        name: "words".into(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        weights: weights.iter().flat_map(|weight| weight.to_le_bytes()).collect(),
        row_offsets: row_offsets.into(),
        ..SparseColumn::default()
    }
}

#[test]
fn columns_give_the_tensors_of_key_values() {
    let column = words(&["hats", "shoes", "?"], &[0.5, 1.5, 2.5], &[0, 1, 3]);
    let offer = |words| treatment("", [("price", number(1.0)), ("words", words)]);
    let treatments =
        vec![offer(names(&["hats"], &[0.5])), offer(names(&["shoes", "?"], &[1.5, 2.5]))];
    let key_values = PredictRequest { treatments, ..PredictRequest::default() };
    let [columns, key_values] =
        [table(vec![column]), key_values].map(|request| pack(&plan(), &[request]).expect("packs"));
    assert_eq!(columns, key_values);
    let width = SparseColumn { width: 1, ..words(&["hats", "hats"], &[], &[]) };
    let packed = pack(&plan(), &[table(vec![width])]).expect("packs");
    assert_eq!(content(&packed, "words_lengths").1, &longs(&[3, 3]));
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let path = |part: &str| format!("treatment_table.sparse[0].{part}");
    let both = SparseColumn { ids: vec![1], ..words(&["hats"], &[], &[0, 1, 2]) };
    let weights = words(&["hats"], &[1.0, 2.0], &[0, 1, 1]);
    let mut odd = words(&["hats"], &[1.0], &[0, 1, 1]);
    odd.weights.pop();
    for (column, place, message) in [
        (both, "names", "ids and names exclude each other"),
        (weights, "weights", "8 bytes, the weights of 1 ids need 4"),
        (odd, "weights", "3 bytes, the weights of 1 ids need 4"),
        (words(&["hats"], &[], &[0, 1, 2]), "row_offsets", "do not rise from 0"),
        (words(&["hats"], &[], &[]), "values", "1 values, 2 treatments need 2"),
    ] {
        let failure = refused(table(vec![column]));
        assert_eq!(failure.reason, Reason::RequestMalformed);
        assert_eq!(fields(&failure), [path(place)]);
        assert!(failure.message.contains(message), "{failure}");
    }
    let twice = words(&[], &[], &[0, 0, 0]);
    let failure = refused(table(vec![twice.clone(), twice]));
    assert!(failure.message.contains(r#"a second column "words""#), "{failure}");
}

#[test]
fn a_list_may_be_sent_in_parts() {
    let mut request = of_user([]);
    request.user = None;
    let part = |list: SparseList| {
        let value = outrigger_proto::outrigger::v1::Value { kind: Some(Kind::Sparse(list)) };
        prost::Message::encode_to_vec(&value)
    };
    let first = SparseList { ids: vec![u64::MAX], weights: vec![0.5], names: Vec::new() };
    let second = SparseList { ids: vec![4], weights: vec![2.0], names: Vec::new() };
    let value = [part(first), part(second)].concat();
    let mut entry = Vec::new();
    outrigger_proto::raw::write::put_bytes(1, b"interests", &mut entry);
    outrigger_proto::raw::write::put_bytes(2, &value, &mut entry);
    let mut features = Vec::new();
    outrigger_proto::raw::write::put_bytes(1, &entry, &mut features);
    let mut message = encoded(&request).to_vec();
    outrigger_proto::raw::write::put_bytes(4, &features, &mut message);
    let packed = plan().pack(&[&message], &Limits::default()).expect("packs");
    assert_rows(&packed, "interests", (&[u64::MAX, 4, 1], &[0.5, 2.0, 1.0], &[3]), &[1]);
}

fn json(body: &str) -> Result<Packed, Failure> {
    let request = json::Request::read(Bytes::copy_from_slice(body.as_bytes())).expect("JSON");
    plan().pack_json(&request, &Limits::default())
}

#[test]
fn json_has_objects_of_ids_and_weights() {
    let user = r#"{"interests": {"weights": [0.5, 2], "ids": [18446744073709551615, 3]}, "seniority": 40,
        "segments": {"names": ["new"]}}"#;
    let treatments = r#"[{"features": {"price": 1, "words": ["hats"]}},
        {"features": {"price": 1, "words": {"names": []}}}]"#;
    let body =
        format!(r#"{{"model": {{"name": "m"}}, "user": {user}, "treatments": {treatments}}}"#);
    let packed = json(&body).expect("packs");
    let users = (&[u64::MAX, 3, 0, u64::MAX][..], &[0.5, 2.0, 1.0, 40.0][..]);
    assert_rows(&packed, "interests", (users.0, users.1, &[4]), &[1]);
    assert_eq!(content(&packed, "words_lengths").1, &longs(&[3, 2]));
    let request = json::predict_request(&plan(), body.as_bytes()).expect("valid");
    assert_eq!(pack(&plan(), &[request]).expect("packs"), packed);
}

#[test]
fn json_that_is_no_sparse_list_is_refused() {
    for (list, reason, message) in [
        (
            r#"{"ids": [-1]}"#,
            Reason::FeatureType,
            "expected ids, whole numbers from 0 on, found a number",
        ),
        (r#"{"ids": [1.5]}"#, Reason::FeatureType, "expected ids"),
        (r#"{"ids": 1}"#, Reason::FeatureType, "found a number"),
        (r#"{"ids": null}"#, Reason::FeatureType, "found null"),
        (r#"{"ids": {"a": 1}}"#, Reason::FeatureType, "found an object"),
        (r#"{"names": [1]}"#, Reason::FeatureType, "expected names, which are strings"),
        (r#"{"ids": [1], "weights": [1e39]}"#, Reason::FeatureType, "expected weights that fit"),
        (r#"{"ids": [1], "weights": [1, 2]}"#, Reason::FeatureLength, "a weight for each of 1 ids"),
        (r#"{"id": [1]}"#, Reason::RequestMalformed, r#"unknown key "id" of a sparse list"#),
        (r#"{"ids": [1], "ids": [1]}"#, Reason::RequestMalformed, "ids is given twice"),
        (r#"[9223372036854775808]"#, Reason::FeatureType, "expected an integer"),
    ] {
        let body = format!(r#"{{"model": {{"name": "m"}}, "user": {{"interests": {list}}}}}"#);
        let failure = json(&body).expect_err("refused");
        assert_eq!(
            (failure.reason, fields(&failure)),
            (reason, vec![r#"user["interests"]"#]),
            "{list}"
        );
        assert!(failure.message.contains(message), "{failure}");
    }
}

#[test]
fn an_object_of_a_user_object_is_refused() {
    let leaf = |kind| Value { kind: Some(kind) };
    let list = Struct { fields: [("ids".to_owned(), leaf(ObjectKind::NumberValue(1.0)))].into() };
    let fields_of =
        Struct { fields: [("interests".to_owned(), leaf(ObjectKind::StructValue(list)))].into() };
    let user = outrigger_proto::outrigger::v1::predict_request::User::UserObject(fields_of);
    let failure = refused(PredictRequest { user: Some(user), ..PredictRequest::default() });
    assert_eq!(
        (failure.reason, fields(&failure)),
        (Reason::FeatureType, vec![r#"user["interests"]"#])
    );
    assert!(failure.message.contains("only taken in user_features"), "{failure}");
}

fn explained(plan: &Plan, requests: &[PredictRequest]) -> Vec<ExplainResponse> {
    let encoded: Vec<_> = requests.iter().map(encoded).collect();
    plan.explain(&encoded, &Limits::default()).expect("packs")
}

#[test]
fn each_request_is_explained_with_its_own_ids() {
    let offer = || treatment("t", [("discount", number(0.5)), ("price", number(1.0))]);
    let request = |bought: &[u64], treatments| PredictRequest {
        treatments,
        ..of_user([("bought", ids(bought, &[]))])
    };
    let requests = [request(&[1], vec![offer(), offer()]), request(&[2, 3], vec![offer()])];
    let explained = explained(&joined(), &requests);
    let find = |user: usize, name: &str| {
        let mut tensors = explained[user].tensors.iter();
        tensors.find(|tensor| tensor.name == name).cloned().expect("it is there")
    };
    let ids = find(1, "fm_features");
    assert_eq!((ids.shape, Content::Bytes(ids.content)), (vec![4], bits(&[2, 3, 7, u64::MAX])));
    let origins = [ValueOrigin::Default, ValueOrigin::Request].map(i32::from);
    assert_eq!(ids.origins, origins);
    let weights = find(1, "fm_features_weights");
    assert_eq!((weights.shape, Content::Bytes(weights.content)), (vec![4], floats(&[1.0; 4])));
    assert_eq!((weights.dtype.as_str(), weights.origins.len()), ("float32", 2));
    let lengths = find(0, "fm_features_lengths");
    assert_eq!((lengths.shape, Content::Bytes(lengths.content)), (vec![2], longs(&[3, 3])));
    assert_eq!(lengths.origins, [i32::from(ValueOrigin::Computed); 2]);
}

#[test]
fn padding_rows_are_explained_as_such() {
    let offer = || treatment("t", [("price", number(1.0))]);
    let requests = [vec![offer()], vec![offer(), offer()]]
        .map(|treatments| PredictRequest { treatments, ..PredictRequest::default() });
    let explained = explained(&plan(), &requests);
    let mut tensors = explained[0].tensors.iter();
    let lengths = tensors.find(|tensor| tensor.name == "words_lengths").expect("it is there");
    let origins = [ValueOrigin::Computed, ValueOrigin::Padding].map(i32::from);
    assert_eq!((&lengths.shape[..], &lengths.origins[..]), (&[1, 2][..], &origins[..]));
}

#[test]
fn a_treatment_left_out_leaves_no_ids() {
    let offer = |words, price| treatment("t", [("words", words), ("price", number(price))]);
    let treatments = vec![
        offer(names(&["hats"], &[]), 1.0),
        offer(names(&["shoes"], &[]), f32::NAN),
        offer(names(&["shoes", "hats"], &[]), 1.0),
    ];
    let skip = OnTreatmentError::Skip.into();
    let options = Some(ResponseOptions { on_treatment_error: skip, ..ResponseOptions::default() });
    let request = PredictRequest { treatments, options, ..PredictRequest::default() };
    let packed = pack(&plan(), &[request]).expect("packs");
    assert_eq!(content(&packed, "words_lengths"), (&[1, 2][..], &longs(&[3, 4])));
}

#[test]
fn made_up_requests_have_ids() {
    for plan in [plan(), joined()] {
        let packed = pack(&plan, &[plan.varied_smoke_request()]).expect("packs");
        assert_eq!(packed.users[0].kept(), 2);
    }
}

#[test]
fn ids_count_with_their_maximum_before_they_are_packed() {
    let pack = |plan: &Plan, request: &PredictRequest, max_tensor_bytes| {
        let limits = Limits { max_tensor_bytes, ..Limits::default() };
        plan.pack(&[encoded(request)], &limits).map(drop).map_err(|failure| failure.reason)
    };
    // 10 ids of 12 bytes, 3 lists of 16 bytes, and a length.
    let request = of_user([]);
    assert_eq!(pack(&plan(), &request, 175), Err(Reason::TooLarge));
    assert_eq!(pack(&plan(), &request, 176), Ok(()));
    // 3 and 9 ids of 12 bytes, 2 lengths, and 2 numbers.
    let offer = treatment("t", [("discount", number(0.5)), ("price", number(1.0))]);
    let request = PredictRequest { treatments: vec![offer], ..request };
    assert_eq!(pack(&joined(), &request, 167), Err(Reason::TooLarge));
    assert_eq!(pack(&joined(), &request, 168), Ok(()));
}
