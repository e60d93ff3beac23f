use outrigger_core::DType;
use outrigger_proto::outrigger::v1::{self, value::Kind};
use prost::Message;

use super::*;
use crate::{metadata::Metadata, packed::FeatureCounts, plan::Plan};

fn plan() -> Plan {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow", "inputs": [
        {"tensor": "t", "entity": "treatment", "dtype": "float32", "features": [
          {"name": "a", "default": 0.5}, {"name": "b", "default": 0.25},
          {"name": "any", "default": 0, "allow_non_finite": true}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "per_treatment"}]}"#;
    Plan::compile(Metadata::parse(json).expect("valid"))
}

fn treatment(id: &str, name: &str, value: f32) -> Vec<u8> {
    let value = v1::Value { kind: Some(Kind::Number(value)) };
    let features = [(name.to_owned(), value)].into();
    v1::Treatment { id: id.into(), features }.encode_to_vec()
}

/// Applies the template to a treatment; returns its id and the values of its row.
fn apply<'r>(template: &mut Template<'_>, body: &'r [u8]) -> Option<(&'r [u8], Vec<f32>)> {
    let mut buffers = [Buffer::new(DType::Float32, 3)];
    buffers[0].resize(3);
    let (mut tally, mut unknown) = (Tally::new(1, false), Unknown::new(false));
    let ids = &mut Vec::new();
    let applied =
        template.apply(&[body], 0, &mut buffers, &mut tally, &mut unknown, Some(&mut *ids));
    let [id] = ids[..] else {
        assert_eq!((applied, ids.len()), (0, 0));
        return None;
    };
    assert_eq!((applied, tally.counts.missing, unknown.count), (1, 2, 0));
    let Buffer::Fixed { bytes, .. } = &buffers[0] else { panic!("fixed") };
    let (floats, _) = bytes.as_chunks();
    Some((id, floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
}

#[test]
fn ids_and_values_may_differ_and_absent_values_are_filled_in() {
    let plan = plan();
    let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
    template.learn(&treatment("one", "b", 1.0));
    let other = treatment("a much longer id", "b", -2.0);
    assert_eq!(
        apply(&mut template, &other),
        Some((&b"a much longer id"[..], vec![0.5, -2.0, 0.0]))
    );
}

#[test]
fn other_keys_and_values_that_are_not_finite_are_left_to_others() {
    let plan = plan();
    let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
    template.learn(&treatment("one", "b", 1.0));
    assert_eq!(apply(&mut template, &treatment("one", "a", 1.0)), None);
    assert_eq!(apply(&mut template, &treatment("one", "b", f32::NAN)), None);
    assert_eq!(apply(&mut template, &treatment("one", "bb", 1.0)), None);
    let no_text = [b"\x0a\x01\xff", treatment("", "b", 1.0).as_slice()].concat();
    assert_eq!(apply(&mut template, &no_text), None);
}

#[test]
fn non_finite_values_are_accepted_where_allowed() {
    let plan = plan();
    let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
    template.learn(&treatment("", "any", 1.0));
    let infinite = treatment("", "any", f32::INFINITY);
    assert_eq!(apply(&mut template, &infinite), Some((&b""[..], vec![0.5, 0.25, f32::INFINITY])));
    // A signalling NaN becomes quiet, as in a conversion.
    let (_, row) = apply(&mut template, &treatment("", "any", f32::from_bits(0x7f80_0001)))
        .expect("let through");
    assert_eq!(row[2].to_bits(), 0x7fc0_0001);
}

#[test]
fn keys_that_the_model_does_not_name_are_counted_each_time() {
    let plan = plan();
    for (kind, counted) in [
        (Some(Kind::Number(1.0)), 1),
        (Some(Kind::Text("any".into())), 1),
        // A key without a value is absence.
        (None, 0),
    ] {
        let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
        let features = [("c".to_owned(), v1::Value { kind })].into();
        let stranger = v1::Treatment { id: String::new(), features }.encode_to_vec();
        template.learn(&stranger);
        let (mut tally, mut unknown) = (Tally::new(1, false), Unknown::new(false));
        let mut buffers = [Buffer::new(DType::Float32, 3)];
        buffers[0].resize(3);
        let applied = template.apply(&[&stranger], 0, &mut buffers, &mut tally, &mut unknown, None);
        assert_eq!(applied, 1);
        assert_eq!((tally.counts.missing, unknown.count), (3, counted));
    }
}

/// Keys of some length.
const LONG: [&str; 4] =
    ["the first feature", "the second feature", "a stranger", "the third feature"];

/// A treatment with these keys, one for each of `numbers`.
fn numbered(id: &[u8], keys: &[&str], numbers: &[f32]) -> Vec<u8> {
    let entries = keys.iter().zip(numbers).map(|(key, number)| treatment("", key, *number));
    let id = [&[0x0a, id.len() as u8], id].concat();
    std::iter::once(id).chain(entries).collect::<Vec<_>>().concat()
}

/// A plan whose tensors each consist of some of `keys`, given by their positions.
fn tensors(keys: &[&str], tensors: &[&[usize]]) -> Plan {
    let feature = |at: &usize| serde_json::json!({"name": keys[*at], "required": true});
    let tensor = |(name, places): (usize, &&[usize])| {
        let features: Vec<_> = places.iter().map(feature).collect();
        serde_json::json!({"tensor": name.to_string(), "entity": "treatment", "dtype": "float32",
            "features": features})
    };
    let inputs: Vec<_> = tensors.iter().enumerate().map(tensor).collect();
    let json = serde_json::json!({"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": inputs, "outputs": [{"tensor": "y", "name": "y", "kind": "per_treatment"}]});
    Plan::compile(Metadata::parse(json.to_string().as_bytes()).expect("valid"))
}

/// Applies a template to treatments with these keys, one of which differs from the others; `places`
/// are the keys of each tensor, by position.
fn end_with_the_odd_one(keys: &[&str], places: &[&[usize]]) {
    const COUNT: usize = 11;
    let plan = tensors(keys, places);
    let strangers = keys.len() - places.concat().len();
    let ids: Vec<_> = (0..COUNT).map(|index| "i".repeat(index % 5)).collect();
    let numbers = |index: usize| [index as f32, 0.5, -1.0, -(index as f32)];
    let good = |index: usize| numbered(ids[index].as_bytes(), keys, &numbers(index));
    let another = |at: usize| {
        let key = format!("{}X", &keys[at][..keys[at].len() - 1]);
        let keys: Vec<_> =
            (0..keys.len()).map(|it| if it == at { &*key } else { keys[it] }).collect();
        numbered(b"i", &keys, &[0.0; 4])
    };
    let others = [
        numbered(b"i", keys, &[0.0, f32::INFINITY, 0.0, 0.0]),
        numbered(b"\xff", keys, &[0.0; 4]),
        treatment("i", keys[0], 1.0),
        numbered(b"i", &[keys[1], keys[0]], &[0.0; 2]),
        [good(0), treatment("", "one more", 1.0)].concat(),
        b"\x0a\x7f".to_vec(),
        Vec::new(),
    ];
    let odd: Vec<_> = (0..keys.len()).map(another).chain(others).collect();
    for (end, odd) in (0..=COUNT).flat_map(|end| odd.iter().map(move |odd| (end, odd))) {
        let bodies: Vec<_> =
            (0..COUNT).map(|index| if index == end { odd.clone() } else { good(index) }).collect();
        let bodies: Vec<_> = bodies.iter().map(Vec::as_slice).collect();
        let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
        template.learn(&good(0));
        let room = |places: &&[usize]| {
            let mut buffer = Buffer::new(DType::Float32, 0);
            buffer.resize(COUNT * places.len());
            buffer
        };
        let mut buffers: Vec<_> = places.iter().map(room).collect();
        let (mut tally, mut unknown) = (Tally::new(places.len(), false), Unknown::new(false));
        let mut found = Vec::new();
        let applied =
            template.apply(&bodies, 0, &mut buffers, &mut tally, &mut unknown, Some(&mut found));
        assert_eq!((applied, template.hits), (end, end as u32));
        assert_eq!(unknown.count, (end * strangers) as u64);
        assert!(found.into_iter().eq(ids[..end].iter().map(String::as_bytes)));
        for row in 0..end {
            for (places, buffer) in places.iter().zip(&mut buffers) {
                let width = places.len();
                let expected = places.iter().map(|at| numbers(row)[*at].to_le_bytes());
                assert!(expected.eq(buffer.floats_mut(width * row, width).iter().copied()));
            }
        }
    }
}

#[test]
fn however_many_are_alike_the_first_that_is_not_ends_them() {
    // The keys are in the order of their tensor, in another order, and so few that they are shorter
    // than the bytes compared at once.
    end_with_the_odd_one(&LONG, &[&[0, 1, 3]]);
    end_with_the_odd_one(&LONG, &[&[3, 0], &[1]]);
    end_with_the_odd_one(&["a", "b"], &[&[0, 1]]);
}

#[test]
fn several_may_have_values_that_are_not_finite_where_one_may() {
    let feature = |name| serde_json::json!({"name": name, "default": 0, "allow_non_finite": true});
    let json = serde_json::json!({"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [{"tensor": "t", "entity": "treatment", "dtype": "float32",
            "features": LONG.map(feature)}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "per_treatment"}]});
    let plan = Plan::compile(Metadata::parse(json.to_string().as_bytes()).expect("valid"));
    let signalling = f32::from_bits(0x7f80_0001);
    let bodies = [1.0, f32::INFINITY, signalling, -2.0, signalling]
        .map(|number| numbered(b"i", &LONG, &[0.5, number, 1.5, number]));
    let bodies = bodies.each_ref().map(Vec::as_slice);
    let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
    template.learn(bodies[0]);
    let mut buffers = [Buffer::new(DType::Float32, 28)];
    buffers[0].resize(28);
    let (mut tally, mut unknown) = (Tally::new(1, false), Unknown::new(false));
    // The first two rows belong to another user.
    let applied = template.apply(&bodies, 2, &mut buffers, &mut tally, &mut unknown, None);
    assert_eq!(applied, 5);
    let bits = |number: &[u8; 4]| u32::from_le_bytes(*number);
    let found: Vec<_> = buffers[0].floats_mut(0, 28).iter().map(bits).collect();
    let infinite = f32::INFINITY.to_bits();
    let seconds = [1.0_f32.to_bits(), infinite, 0x7fc0_0001, (-2.0_f32).to_bits(), 0x7fc0_0001];
    let rows = seconds.map(|bits| [0.5_f32.to_bits(), bits, 1.5_f32.to_bits(), bits]);
    assert_eq!((&found[..8], &found[8..]), (&[0; 8][..], rows.as_flattened()));
}

#[test]
fn there_is_no_template_any_more_when_none_fits() {
    let plan = plan();
    let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
    for _ in 0..=FEW {
        template.learn(&treatment("one", "b", 1.0));
    }
    assert!(!template.trusted && template.shape.is_none());
}

/// A plan with numbers, a word of a vocabulary and an integer.
fn mixed() -> Plan {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow", "inputs": [
        {"tensor": "n", "entity": "treatment", "dtype": "float32", "features": [
          {"name": "a", "required": true}, {"name": "b", "required": true}]},
        {"tensor": "i", "entity": "treatment", "dtype": "int64", "features": [
          {"name": "word", "vocabulary": ["x", "longer"], "out_of_vocabulary": 9, "required": true},
          {"name": "stock", "required": true}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "per_treatment"}]}"#;
    Plan::compile(Metadata::parse(json).expect("valid"))
}

/// A treatment of the mixed plan whose keys stand in this order.
fn ordered(keys: [&str; 4], word: &str, stock: i64) -> Vec<u8> {
    let entry = |key: &str| {
        let kind = match key {
            "word" => Kind::Text(word.into()),
            "stock" => Kind::Integer(stock),
            _ => Kind::Number(0.5),
        };
        let features = [(key.to_owned(), v1::Value { kind: Some(kind) })].into();
        v1::Treatment { id: String::new(), features }.encode_to_vec()
    };
    keys.map(entry).concat()
}

/// Applies the template learned from one treatment to another: the word and the stock it wrote, if
/// it fits, and the counts.
fn apply_mixed(learned: &[u8], body: &[u8]) -> (Option<(i64, i64)>, FeatureCounts) {
    let plan = mixed();
    let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
    template.learn(learned);
    let mut buffers = [Buffer::new(DType::Float32, 2), Buffer::new(DType::Int64, 2)];
    buffers.iter_mut().for_each(|buffer| buffer.resize(2));
    let (mut tally, mut unknown) = (Tally::new(2, false), Unknown::new(false));
    let applied = template.apply(&[body], 0, &mut buffers, &mut tally, &mut unknown, None);
    let row = (applied == 1).then(|| {
        let Buffer::Fixed { bytes, .. } = &buffers[1] else { panic!("fixed") };
        let (integers, _) = bytes.as_chunks();
        (i64::from_le_bytes(integers[0]), i64::from_le_bytes(integers[1]))
    });
    (row, tally.counts)
}

#[test]
fn values_of_any_length_may_stand_between_numbers() {
    let keys = ["a", "word", "stock", "b"];
    let learned = ordered(keys, "x", 1);
    let (row, counts) = apply_mixed(&learned, &ordered(keys, "longer", -1));
    assert_eq!((row, counts), (Some((1, -1)), FeatureCounts::default()));
    let (row, counts) = apply_mixed(&learned, &ordered(keys, "in no vocabulary", 300));
    assert_eq!((row, counts.out_of_vocabulary), (Some((9, 300)), 1));
}

#[test]
fn nothing_is_counted_of_a_treatment_that_turns_out_to_be_another() {
    let learned = ordered(["word", "a", "b", "stock"], "x", 1);
    let other = ordered(["word", "a", "stock", "b"], "in no vocabulary", 1);
    assert_eq!(apply_mixed(&learned, &other), (None, FeatureCounts::default()));
    let more = [learned.clone(), other].concat();
    assert_eq!(apply_mixed(&learned, &more), (None, FeatureCounts::default()));
}
