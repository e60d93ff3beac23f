use outrigger_core::{Content, Failure, Reason, Tensor};
use outrigger_proto::outrigger::v1::{
    IntegerList, Matrix, NumberColumn, NumberList, OnTreatmentError, PredictRequest,
    ResponseOptions, TextColumn, TextList, Treatment, TreatmentTable, Value, ValueOrigin,
    value::Kind,
};

use crate::{
    fixtures::{encoded, fields, floats, longs, number, pack, strings, treatment, user},
    limits::Limits,
    metadata::Metadata,
    packed::Packed,
    plan::Plan,
};

/// A list of a user's words, lists of a treatment's texts, and padded lists of numbers.
fn plan() -> Plan {
    let json = include_bytes!("../../../tests/metadata/good/lists.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
}

fn texts(values: &[&str]) -> Kind {
    Kind::Texts(TextList { values: values.iter().map(|text| (*text).to_owned()).collect() })
}

fn numbers(values: &[f32]) -> Kind {
    Kind::Numbers(NumberList { values: values.to_vec() })
}

fn history(words: &[&str]) -> PredictRequest {
    let user = Some(user([("history", texts(words))]));
    PredictRequest { request_id: "r".into(), user, ..PredictRequest::default() }
}

/// A treatment with these lists, which may be absent.
fn offer(tags: Option<&[&str]>, prices: Option<&[f32]>) -> Treatment {
    let mut treatment = treatment("t", [("discount", number(0.5))]);
    let lists = [("tags", tags.map(texts)), ("prices", prices.map(numbers))];
    for (name, kind) in lists {
        if kind.is_some() {
            treatment.features.insert(name.to_owned(), value(kind));
        }
    }
    treatment
}

fn value(kind: Option<Kind>) -> Value {
    Value { kind }
}

fn tensor<'t>(packed: &'t Packed, name: &str) -> &'t Tensor {
    packed.tensor(name).expect("it is fed")
}

fn assert_tensor(packed: &Packed, name: &str, shape: &[i64], content: &Content) {
    let tensor = tensor(packed, name);
    assert_eq!((tensor.shape.as_slice(), &tensor.content), (shape, content), "{name}");
}

fn refused(requests: &[PredictRequest]) -> Failure {
    pack(&plan(), requests).expect_err("refused")
}

#[test]
fn lists_are_values_and_lengths_or_padded() {
    let first = PredictRequest {
        treatments: vec![offer(Some(&["a", "b"]), Some(&[1.0, 2.0])), offer(Some(&[]), None)],
        ..history(&["hats", "?", "shoes"])
    };
    let second = PredictRequest {
        treatments: vec![offer(None, Some(&[3.0, 4.0, 5.0]))],
        ..PredictRequest::default()
    };
    let packed = pack(&plan(), &[first, second]).expect("packs");
    assert_tensor(&packed, "history", &[3], &longs(&[1, 2, 0]));
    assert_tensor(&packed, "history_lengths", &[2], &longs(&[3, 0]));
    assert_tensor(&packed, "tags", &[3], &strings(&["a", "b", "none"]));
    assert_tensor(&packed, "tags_lengths", &[2, 2], &longs(&[2, 0, 1, 0]));
    let rows = [0.5, 1.0, 2.0, -1.0, 0.5, 0.5, -1.0, -1.0, 0.5, 3.0, 4.0, 5.0, 0.0, 0.0, 0.0, 0.0];
    assert_tensor(&packed, "numbers", &[2, 2, 4], &floats(&rows));
    let names: Vec<_> = packed.tensors.iter().map(|tensor| &*tensor.name).collect();
    assert!(plan().input_names().map(|name| &**name).eq(names));
    assert_eq!((packed.counts.missing, packed.counts.out_of_vocabulary), (3, 1));
}

#[test]
fn a_scalar_is_a_list_of_one() {
    let user = user([("history", Kind::Text("hats".into()))]);
    let request = PredictRequest { user: Some(user), ..PredictRequest::default() };
    let packed = pack(&plan(), &[request]).expect("packs");
    assert_tensor(&packed, "history", &[1], &longs(&[1]));
    assert_tensor(&packed, "tags_lengths", &[1, 0], &longs(&[]));
}

#[test]
fn longer_lists_and_other_types_are_refused() {
    let five = ["hats"; 5];
    let failure = refused(&[history(&five)]);
    assert_eq!(
        (failure.reason, fields(&failure)),
        (Reason::FeatureLength, vec![r#"user["history"]"#])
    );
    assert!(failure.message.contains("expected at most 4 values, found 5"), "{failure}");
    let treatments = vec![offer(None, Some(&[1.0; 4]))];
    let failure = refused(&[PredictRequest { treatments, ..PredictRequest::default() }]);
    assert!(failure.message.contains("expected at most 3 values, found 4"), "{failure}");
    let user = user([("history", Kind::Integers(IntegerList { values: vec![1] }))]);
    let request = PredictRequest { user: Some(user), ..PredictRequest::default() };
    assert_eq!(refused(&[request]).reason, Reason::FeatureType);
}

/// Columns for these lists of tags and of prices.
fn table(
    tags: &[&str],
    tag_offsets: &[u32],
    prices: &[f32],
    price_offsets: &[u32],
) -> PredictRequest {
    let count = u32::try_from(tag_offsets.len() - 1).expect("few");
    let discounts = vec![0.5_f32; count as usize];
    let bytes = |values: &[f32]| -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    };
    let numbers = Matrix {
        names: vec!["discount".into()],
        values: bytes(&discounts).into(),
        ..Matrix::default()
    };
    let tags = TextColumn {
        name: "tags".into(),
        values: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        row_offsets: tag_offsets.to_vec(),
        ..TextColumn::default()
    };
    let prices = NumberColumn {
        name: "prices".into(),
        values: bytes(prices),
        row_offsets: price_offsets.to_vec(),
        ..NumberColumn::default()
    };
    let table = TreatmentTable {
        count,
        numbers: Some(numbers),
        texts: vec![tags],
        lists: vec![prices],
        ..TreatmentTable::default()
    };
    PredictRequest { treatment_table: Some(table), ..history(&[]) }
}

#[test]
fn columns_with_row_offsets_give_the_tensors_of_key_values() {
    let treatments =
        vec![offer(Some(&["a", "b"]), Some(&[])), offer(Some(&[]), Some(&[1.0, 2.0, 3.0]))];
    let treatments = treatments.into_iter().map(|it| Treatment { id: String::new(), ..it });
    let key_values = PredictRequest { treatments: treatments.collect(), ..history(&[]) };
    let columns = table(&["a", "b"], &[0, 2, 2], &[1.0, 2.0, 3.0], &[0, 0, 3]);
    let [columns, key_values] =
        [columns, key_values].map(|request| pack(&plan(), &[request]).expect("packs"));
    assert_eq!(columns, key_values);
    assert_tensor(&columns, "tags_lengths", &[1, 2], &longs(&[2, 0]));
}

#[test]
fn row_offsets_that_do_not_fit_are_refused() {
    let offsets = r#"treatment_table.texts[0].row_offsets"#;
    for (request, message) in [
        (table(&["a"], &[1, 1], &[], &[0, 0]), "do not rise from 0 to the number of values, 1"),
        (table(&["a"], &[0, 2], &[], &[0, 0]), "do not rise from 0 to the number of values, 1"),
        (table(&["a"], &[0, 1, 0, 1], &[], &[0; 4]), "do not rise from 0"),
    ] {
        let failure = refused(&[request]);
        assert_eq!((failure.reason, fields(&failure)), (Reason::RequestMalformed, vec![offsets]));
        assert!(failure.message.contains(message), "{failure}");
    }
    let mut with_width = table(&["a"], &[0, 1], &[], &[0, 0]);
    let columns = with_width.treatment_table.as_mut().expect("a table");
    columns.texts[0].width = 1;
    assert!(refused(&[with_width]).message.contains("row_offsets and width exclude each other"));
    let mut odd = table(&["a"], &[0, 1], &[1.0], &[0, 1]);
    let columns = odd.treatment_table.as_mut().expect("a table");
    columns.lists[0].values.pop();
    let failure = refused(&[odd]);
    assert!(failure.message.contains("3 bytes are no whole number of float32"), "{failure}");
    let missing = table(&["a"], &[0, 1], &[1.0], &[0, 1, 1]);
    let failure = refused(&[missing]);
    assert!(failure.message.contains("3 row offsets, 1 treatments need 2"), "{failure}");
}

#[test]
fn a_treatment_left_out_leaves_no_list() {
    let mut wrong = offer(Some(&["x", "y"]), None);
    wrong.features.insert("discount".into(), value(Some(number(f32::NAN))));
    let skip = ResponseOptions {
        on_treatment_error: OnTreatmentError::Skip.into(),
        ..ResponseOptions::default()
    };
    let treatments = vec![offer(Some(&["a"]), None), wrong, offer(Some(&["b", "c"]), None)];
    let request = PredictRequest { treatments, options: Some(skip), ..history(&[]) };
    let packed = pack(&plan(), &[request]).expect("packs");
    assert_tensor(&packed, "tags", &[3], &strings(&["a", "b", "c"]));
    assert_tensor(&packed, "tags_lengths", &[1, 2], &longs(&[1, 2]));
}

#[test]
fn each_request_is_explained_with_its_own_lists() {
    let first =
        PredictRequest { treatments: vec![offer(Some(&["a"]), None)], ..history(&["hats"]) };
    let treatments = vec![offer(Some(&["b", "c"]), None), offer(None, None)];
    let second = PredictRequest { treatments, ..history(&["shoes", "hats"]) };
    let explained = plan().explain(&[encoded(&first), encoded(&second)], &Limits::default());
    let explained = explained.expect("packs");
    let find = |user: usize, name: &str| {
        let mut tensors = explained[user].tensors.iter();
        tensors.find(|tensor| tensor.name == name).cloned().expect("it is there")
    };
    let tags = find(1, "tags");
    assert_eq!((tags.shape, tags.texts), (vec![3], ["b", "c", "none"].map(Into::into).to_vec()));
    assert_eq!(find(0, "tags").texts, ["a"]);
    let history = find(1, "history");
    assert_eq!(Content::Bytes(history.content), longs(&[0, 1]));
    let lengths = find(0, "tags_lengths");
    assert_eq!((lengths.shape, Content::Bytes(lengths.content)), (vec![1, 2], longs(&[1, 0])));
    let origins = [ValueOrigin::Computed, ValueOrigin::Padding].map(i32::from);
    assert_eq!(lengths.origins, origins);
}

#[test]
fn a_made_up_request_has_lists() {
    let plan = plan();
    let packed = pack(&plan, &[plan.varied_smoke_request()]).expect("packs");
    assert_tensor(&packed, "tags_lengths", &[1, 2], &longs(&[1, 1]));
}

#[test]
fn lists_count_with_their_maximum_before_they_are_packed() {
    let request = PredictRequest { treatments: vec![offer(None, None)], ..history(&[]) };
    let pack = |max_tensor_bytes| {
        let limits = Limits { max_tensor_bytes, ..Limits::default() };
        plan().pack(&[encoded(&request)], &limits)
    };
    assert_eq!(pack(150).expect_err("too large").reason, Reason::TooLarge);
    assert!(pack(400).is_ok());
}
