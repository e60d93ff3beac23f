use outrigger_core::DType;
use outrigger_proto::outrigger::v1::{self, value::Kind};
use prost::Message;

use super::*;
use crate::{FeatureCounts, Metadata, Plan};

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

/// What the template makes of a treatment: its id, and the row's bytes.
fn apply<'r>(template: &mut Template<'_>, body: &'r [u8]) -> Option<(&'r [u8], Vec<f32>)> {
    let mut buffers = [Buffer::new(DType::Float32, 3)];
    buffers[0].resize(3);
    let (mut tally, mut unknown) = (Tally::new(1, false), Unknown::new(false));
    let id = template.apply(body, 0, &mut buffers, &mut tally, &mut unknown)?;
    assert_eq!((tally.counts.missing, unknown.count), (2, 0));
    let Buffer::Fixed { bytes, .. } = &buffers[0] else { panic!("fixed") };
    let (floats, _) = bytes.as_chunks();
    Some((id, floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
}

#[test]
fn ids_and_values_may_differ_and_what_is_absent_is_filled_in() {
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
fn values_that_are_not_finite_are_let_through_where_they_may_be() {
    let plan = plan();
    let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
    template.learn(&treatment("", "any", 1.0));
    let infinite = treatment("", "any", f32::INFINITY);
    assert_eq!(apply(&mut template, &infinite), Some((&b""[..], vec![0.5, 0.25, f32::INFINITY])));
    // A signalling NaN comes out quiet, as it would of a conversion.
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
        assert!(template.apply(&stranger, 0, &mut buffers, &mut tally, &mut unknown).is_some());
        assert_eq!((tally.counts.missing, unknown.count), (3, counted));
    }
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

/// A plan of numbers, a word and an integer.
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

/// The word, the stock and what was counted of a treatment, if the template of
/// another fits it.
fn apply_mixed(learned: &[u8], body: &[u8]) -> (Option<(i64, i64)>, FeatureCounts) {
    let plan = mixed();
    let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
    template.learn(learned);
    let mut buffers = [Buffer::new(DType::Float32, 2), Buffer::new(DType::Int64, 2)];
    buffers.iter_mut().for_each(|buffer| buffer.resize(2));
    let (mut tally, mut unknown) = (Tally::new(2, false), Unknown::new(false));
    let applied = template.apply(body, 0, &mut buffers, &mut tally, &mut unknown);
    let row = applied.map(|_| {
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
