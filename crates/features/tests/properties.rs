//! Properties of every request: the form and the order of keys do not matter, users of a
//! batch do not affect each other, and invalid bytes never panic.

#[cfg(target_arch = "x86_64")]
#[path = "support/vectors.rs"]
mod narrower;

use std::sync::LazyLock;

use bytes::Bytes;
use outrigger_core::{Content, DType, Tensor};
use outrigger_features::{GoldenCases, Limits, Metadata, Packed, Plan, json};
use outrigger_proto::outrigger::v1::{
    IntegerColumn, IntegerList, Matrix, NumberList, PredictRequest, ResponseOptions, TextColumn,
    Treatment, TreatmentTable, Value, predict_response::Output, value::Kind,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use prost::Message;

const METADATA: &str = r#"{
  "schema": "outrigger.dev/model/v1", "framework": "tensorflow",
  "inputs": [
    {"tensor": "u", "entity": "user", "dtype": "float32", "features": [{"name": "age", "default": 40}]},
    {"tensor": "n", "entity": "treatment", "dtype": "float32", "features": [
      {"name": "discount", "default": 0.5}, {"name": "vector", "length": 2, "missing": "nan"}]},
    {"tensor": "i", "entity": "treatment", "dtype": "int64", "features": [
      {"name": "stock", "default": -1}, {"name": "sizes", "length": 3, "default": [1, 2, 3]},
      {"name": "kind", "vocabulary": ["a", "b"], "out_of_vocabulary": 2, "default": "a"},
      {"name": "shop", "hash_buckets": 100, "default": ""}]},
    {"tensor": "s", "entity": "treatment", "dtype": "string", "features": [{"name": "title", "default": "none"}]},
    {"tensor": "c", "entity": "treatment_count", "dtype": "int32"}],
  "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}]}"#;

static PLAN: LazyLock<Plan> =
    LazyLock::new(|| Plan::compile(Metadata::parse(METADATA.as_bytes()).expect("valid")));

/// One treatment; every feature may be absent.
#[derive(Debug, Clone)]
struct Row {
    discount: Option<f32>,
    vector: Option<[f32; 2]>,
    stock: Option<i64>,
    sizes: Option<[i64; 3]>,
    kind: Option<&'static str>,
    shop: Option<String>,
    title: Option<String>,
    unknown: Option<f32>,
}

fn row() -> impl Strategy<Value = Row> {
    let number = -1e6f32..1e6f32;
    (
        option::of(number.clone()),
        option::of([number.clone(), number.clone()]),
        option::of(any::<i64>()),
        option::of(any::<[i64; 3]>()),
        option::of(select(&["a", "b", "c", ""][..])),
        option::of("\\PC{0,70}"),
        option::of("\\PC{0,8}"),
        option::of(number),
    )
        .prop_map(|(discount, vector, stock, sizes, kind, shop, title, unknown)| Row {
            discount,
            vector,
            stock,
            sizes,
            kind,
            shop,
            title,
            unknown,
        })
}

fn pairs(row: &Row) -> Vec<(&'static str, Kind)> {
    let numbers = |values: [f32; 2]| Kind::Numbers(NumberList { values: values.into() });
    let integers = |values: [i64; 3]| Kind::Integers(IntegerList { values: values.into() });
    let pairs = [
        ("discount", row.discount.map(Kind::Number)),
        ("vector", row.vector.map(numbers)),
        ("stock", row.stock.map(Kind::Integer)),
        ("sizes", row.sizes.map(integers)),
        ("kind", row.kind.map(|text| Kind::Text(text.into()))),
        ("shop", row.shop.clone().map(Kind::Text)),
        ("title", row.title.clone().map(Kind::Text)),
        ("unknown", row.unknown.map(Kind::Number)),
    ];
    pairs.into_iter().filter_map(|(name, kind)| Some((name, kind?))).collect()
}

fn key_value(rows: &[Row]) -> PredictRequest {
    let treatment = |row: &Row| Treatment {
        id: String::new(),
        features: pairs(row)
            .into_iter()
            .map(|(name, kind)| (name.to_owned(), Value { kind: Some(kind) }))
            .collect(),
    };
    PredictRequest { treatments: rows.iter().map(treatment).collect(), ..Default::default() }
}

/// A bitmap of the positions that are present.
fn validity(present: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, present) in present.enumerate() {
        if index % 8 == 0 {
            bytes.push(0);
        }
        bytes[index / 8] |= u8::from(present) << (index % 8);
    }
    bytes
}

fn texts(name: &str, values: Vec<Option<String>>) -> TextColumn {
    TextColumn {
        name: name.into(),
        validity: validity(values.iter().map(Option::is_some)),
        values: values.into_iter().map(Option::unwrap_or_default).collect(),
        ..TextColumn::default()
    }
}

fn integers<const N: usize>(name: &str, values: Vec<Option<[i64; N]>>) -> IntegerColumn {
    IntegerColumn {
        name: name.into(),
        validity: validity(values.iter().map(Option::is_some)),
        values: values.into_iter().flat_map(|value| value.unwrap_or([0; N])).collect(),
        width: N as u32,
        ..IntegerColumn::default()
    }
}

fn columnar(rows: &[Row]) -> PredictRequest {
    let matrix_row = |row: &Row| {
        let [x, y] = row.vector.unwrap_or([f32::NAN; 2]);
        [x, y, row.unknown.unwrap_or(f32::NAN), row.discount.unwrap_or(f32::NAN)]
    };
    let present = |row: &Row| [row.vector.is_some(), row.unknown.is_some(), row.discount.is_some()];
    let numbers = Matrix {
        names: ["vector", "unknown", "discount"].map(str::to_owned).into(),
        widths: vec![2, 1, 1],
        values: rows.iter().flat_map(matrix_row).flat_map(f32::to_le_bytes).collect(),
        validity: validity(rows.iter().flat_map(present)).into(),
    };
    let table = TreatmentTable {
        ids: Vec::new(),
        count: rows.len() as u32,
        numbers: Some(numbers),
        texts: vec![
            texts("kind", rows.iter().map(|row| row.kind.map(str::to_owned)).collect()),
            texts("shop", rows.iter().map(|row| row.shop.clone()).collect()),
            texts("title", rows.iter().map(|row| row.title.clone()).collect()),
        ],
        integers: vec![
            integers("stock", rows.iter().map(|row| row.stock.map(|value| [value])).collect()),
            integers("sizes", rows.iter().map(|row| row.sizes).collect()),
        ],
        ..TreatmentTable::default()
    };
    PredictRequest { treatment_table: Some(table), ..Default::default() }
}

/// The wire form of a request with its map entries in a given order, repeated
/// ones included.
#[derive(Clone, PartialEq, Message)]
struct OrderedRequest {
    #[prost(message, repeated, tag = "6")]
    treatments: Vec<OrderedTreatment>,
}

#[derive(Clone, PartialEq, Message)]
struct OrderedTreatment {
    #[prost(message, repeated, tag = "2")]
    features: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Value>,
}

fn entries(row: &Row) -> Vec<Entry> {
    let entry = |(name, kind): (&str, Kind)| Entry {
        key: name.to_owned(),
        value: Some(Value { kind: Some(kind) }),
    };
    pairs(row).into_iter().map(entry).collect()
}

fn pack(encoded: &[Vec<u8>]) -> Packed {
    let slices: Vec<_> = encoded.iter().map(Vec::as_slice).collect();
    PLAN.pack(&slices, &Limits::default()).expect("packs")
}

/// Tensors by their bits, so that NaN equals NaN.
fn bits(packed: &Packed) -> Vec<(Vec<i64>, Vec<Bytes>)> {
    let parts = |tensor: &Tensor| match &tensor.content {
        Content::Bytes(bytes) => vec![bytes.clone()],
        Content::Strings(texts) => texts.clone(),
    };
    packed.tensors.iter().map(|tensor| (tensor.shape.clone(), parts(tensor))).collect()
}

/// The elements of one user's rows; padding is cut off or checked to be zero.
fn share(tensor: &Tensor, users: usize, user: usize) -> Vec<Bytes> {
    match &tensor.content {
        Content::Bytes(bytes) => {
            let each = bytes.len() / users;
            let bytes = bytes.slice(user * each..(user + 1) * each);
            let size = tensor.dtype.size().expect("fixed");
            (0..bytes.len() / size).map(|at| bytes.slice(at * size..(at + 1) * size)).collect()
        }
        Content::Strings(texts) => {
            let each = texts.len() / users;
            texts[user * each..(user + 1) * each].to_vec()
        }
    }
}

proptest! {
    #[test]
    fn both_forms_give_the_same_tensors_and_counts(rows in vec(row(), 0..20)) {
        let forms = [[key_value(&rows).encode_to_vec()], [columnar(&rows).encode_to_vec()]];
        let [by_key, by_column] = forms.each_ref().map(|form| pack(form));
        prop_assert_eq!(bits(&by_key), bits(&by_column));
        prop_assert_eq!(by_key.counts, by_column.counts);
    }

    #[test]
    fn the_order_of_keys_does_not_matter(
        (sorted, shuffled) in vec(row(), 1..5).prop_flat_map(|rows| {
            let sorted: Vec<_> = rows.iter().map(entries).collect();
            let shuffled: Vec<_> = sorted.iter().cloned().map(|row| Just(row).prop_shuffle()).collect();
            (Just(sorted), shuffled)
        })
    ) {
        let encode = |rows: Vec<Vec<Entry>>| {
            let treatments = rows.into_iter().map(|features| OrderedTreatment { features });
            OrderedRequest { treatments: treatments.collect() }.encode_to_vec()
        };
        prop_assert_eq!(bits(&pack(&[encode(sorted)])), bits(&pack(&[encode(shuffled)])));
    }

    #[test]
    fn the_last_of_repeated_keys_counts(first in row(), last in row()) {
        let features = [entries(&first), entries(&last)].concat();
        let both = OrderedRequest { treatments: vec![OrderedTreatment { features }] };
        let merged = Row {
            discount: last.discount.or(first.discount),
            vector: last.vector.or(first.vector),
            stock: last.stock.or(first.stock),
            sizes: last.sizes.or(first.sizes),
            kind: last.kind.or(first.kind),
            shop: last.shop.or(first.shop),
            title: last.title.or(first.title),
            unknown: last.unknown.or(first.unknown),
        };
        let merged = key_value(&[merged]).encode_to_vec();
        prop_assert_eq!(bits(&pack(&[both.encode_to_vec()])), bits(&pack(&[merged])));
    }

    #[test]
    fn users_of_a_batch_get_the_same_scores_as_alone(
        users in vec(vec(row(), 0..6), 1..5)
    ) {
        let encoded: Vec<_> = users.iter().map(|rows| key_value(rows).encode_to_vec()).collect();
        let batch = pack(&encoded);
        for (user, request) in encoded.iter().enumerate() {
            let alone = pack(std::slice::from_ref(request));
            for (batch, alone) in batch.tensors.iter().zip(&alone.tensors) {
                let (together, own) = (share(batch, encoded.len(), user), share(alone, 1, 0));
                prop_assert_eq!(&together[..own.len()], own.as_slice());
                let padding = together[own.len()..].iter();
                prop_assert!(padding.into_iter().all(|bytes| bytes.iter().all(|byte| *byte == 0)));
            }
        }
    }

    #[test]
    fn explain_shows_the_tensors_of_pack(rows in vec(row(), 0..6)) {
        let request = key_value(&rows).encode_to_vec();
        let packed = pack(std::slice::from_ref(&request));
        let explained = PLAN.explain(&[&request], &Limits::default()).expect("packs").remove(0);
        for (explained, tensor) in explained.tensors.iter().zip(&packed.tensors) {
            prop_assert_eq!(&explained.shape, &tensor.shape);
            match &tensor.content {
                Content::Bytes(bytes) => prop_assert_eq!(&explained.content, bytes),
                Content::Strings(texts) => prop_assert_eq!(&explained.texts, texts),
            }
            let features = explained.columns.len().max(1) as i64;
            let rows: i64 = explained.shape[..explained.shape.len().saturating_sub(1).max(1)].iter().product();
            prop_assert_eq!(explained.origins.len() as i64, rows * features);
        }
    }

    #[test]
    fn the_top_k_are_those_a_stable_sort_puts_first(
        scores in vec(select(&[-1.0f32, -0.0, 0.0, 0.5, 2.0, 3.0][..]), 1..40),
        top_k in 1u32..50,
    ) {
        let treatments = vec![Treatment::default(); scores.len()];
        let options = Some(ResponseOptions { top_k, ..Default::default() });
        let request = PredictRequest { treatments, options, ..Default::default() };
        let encoded = [request.encode_to_vec()];
        let packed = pack(&encoded);
        let content = Content::Bytes(scores.iter().flat_map(|score| score.to_le_bytes()).collect());
        let shape = vec![1, scores.len() as i64];
        let tensor = Tensor { name: "scores".into(), dtype: DType::Float32, shape, content };
        let response = PLAN.response(&packed, &[tensor]).expect("valid");
        let Some(Output::Scores(list)) = response.output else { panic!("expected scores") };
        let mut expected: Vec<u32> = (0..scores.len() as u32).collect();
        expected.sort_by(|a, b| scores[*b as usize].partial_cmp(&scores[*a as usize]).expect("finite"));
        expected.truncate(top_k as usize);
        prop_assert_eq!(list.indices, expected);
    }

    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..300)) {
        let _ = PLAN.pack(&[&bytes], &Limits::default());
        let _ = PLAN.explain(&[&bytes], &Limits::default());
        let _ = Metadata::parse(&bytes);
        let _ = json::selector(&bytes);
        let _ = json::predict_request(&PLAN, &bytes);
        let _ = GoldenCases::new(bytes.as_slice()).next(&PLAN);
    }

    #[test]
    fn damaged_requests_never_panic(
        rows in vec(row(), 0..4),
        table in any::<bool>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let request = if table { columnar(&rows) } else { key_value(&rows) };
        let mut bytes = request.encode_to_vec();
        for (index, byte) in damage {
            if !bytes.is_empty() {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let _ = PLAN.pack(&[&bytes], &Limits::default());
    }

    #[test]
    fn damaged_metadata_never_panics(index in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = METADATA.as_bytes().to_vec();
        let at = index.index(bytes.len());
        bytes[at] = byte;
        if let Ok(metadata) = Metadata::parse(&bytes) {
            let plan = Plan::compile(metadata);
            let request = plan.smoke_request().encode_to_vec();
            prop_assert!(plan.pack(&[&request], &Limits::default()).is_ok());
        }
    }
}
