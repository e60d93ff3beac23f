//! The methods by which treatments are read. All methods give the same tensors, so only
//! these tests show that a fast one is not used.

use std::iter;

use outrigger_proto::outrigger::v1::{Treatment, Value, value::Kind};
use prost::Message;
use serde_json::{Value as Json, json};

use super::*;
use crate::{limits::Limits, metadata::Metadata};

const TREATMENTS: usize = 100;
const NUMBERS: usize = 12;
const FEATURES: usize = 20;

fn name(feature: usize) -> String {
    format!("feature_{feature:02}")
}

/// Numbers, then words.
fn plan() -> Plan {
    let number = |feature| json!({"name": name(feature), "default": 0.0});
    let word = |feature| {
        json!({"name": name(feature), "vocabulary": ["a", "long one"],
        "out_of_vocabulary": 2, "default": "a"})
    };
    let input = |tensor: &str, dtype: &str, features: Vec<Json>| json!({"tensor": tensor, "entity": "treatment", "dtype": dtype, "features": features});
    let metadata = json!({
        "schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [
            input("numbers", "float32", (0..NUMBERS).map(number).collect()),
            input("words", "int64", (NUMBERS..FEATURES).map(word).collect()),
        ],
        "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}],
    });
    Plan::compile(Metadata::parse(metadata.to_string().as_bytes()).expect("valid"))
}

/// A treatment with a single feature.
fn entry(feature: usize, treatment: usize) -> Vec<u8> {
    let kind = match feature < NUMBERS {
        true => Kind::Number(treatment as f32),
        false => Kind::Text(["a", "long one"][treatment % 2].into()),
    };
    let features = [(name(feature), Value { kind: Some(kind) })].into();
    Treatment { id: String::new(), features }.encode_to_vec()
}

/// A request whose treatments have these features, in this order, and ids of
/// varying length.
fn request(features: impl Fn(usize) -> Vec<usize>) -> Vec<u8> {
    let mut request = Vec::new();
    for treatment in 0..TREATMENTS {
        let id = Treatment { id: "x".repeat(treatment % 7), ..Treatment::default() };
        let entries = features(treatment).into_iter().map(|feature| entry(feature, treatment));
        let parts: Vec<_> = iter::once(id.encode_to_vec()).chain(entries).collect();
        prost::encoding::bytes::encode(6, &parts.concat(), &mut request);
    }
    request
}

/// A request whose every treatment has the keys in another order than the one before.
fn shuffled() -> Vec<u8> {
    request(|treatment| match treatment % 2 {
        0 => (0..FEATURES).collect(),
        _ => (0..FEATURES).rev().collect(),
    })
}

/// A request whose treatments each lack one feature, a different one in turn; the first has all.
fn lacking() -> Vec<u8> {
    let lacks = |treatment: usize, feature| treatment > 0 && feature == treatment % FEATURES;
    request(|treatment| (0..FEATURES).filter(|it| !lacks(treatment, *it)).collect())
}

/// The methods by which the treatments of a call's last request were read.
#[derive(Debug, PartialEq, Eq)]
struct Ways {
    /// The number read by the template.
    templates: u32,
    /// Whether the template was still in use at the end.
    templates_trusted: bool,
    /// The number of keys that were predicted, and of wrong predictions among them.
    foreseen: u32,
    missed: u32,
    /// Whether keys were still predicted at the end.
    order_trusted: bool,
}

fn ways(requests: &[&[u8]]) -> Ways {
    let (plan, limits) = (plan(), Limits::default());
    let call = Call { prefixed: true, ..Call::new(&limits) };
    let scanned = requests.iter().map(|message| Request::scan(message, &limits));
    let requests: Vec<_> = scanned.map(|request| request.expect("a message")).collect();
    let packer = read_all(&plan, &requests, &call).expect("packs");
    let order = &packer.treatments.as_ref().expect("the first treatment has no template").order;
    Ways {
        templates: packer.template.hits,
        templates_trusted: packer.template.trusted,
        foreseen: order.asked,
        missed: order.missed,
        order_trusted: order.trusted,
    }
}

#[test]
fn treatments_with_the_keys_of_the_one_before_are_read_by_its_template() {
    let request = request(|_| (0..FEATURES).rev().collect());
    let all_but_the_first = Ways {
        templates: TREATMENTS as u32 - 1,
        templates_trusted: true,
        foreseen: 0,
        missed: 0,
        order_trusted: false,
    };
    assert_eq!(ways(&[&request]), all_but_the_first);
    let all_of_the_second = Ways { templates: TREATMENTS as u32, ..all_but_the_first };
    assert_eq!(ways(&[&request, &request]), all_of_the_second);
}

#[test]
fn keys_are_foreseen_where_each_treatment_lacks_another_one() {
    let others = TREATMENTS as u32 - 1;
    // No key follows the last one, so its absence is not a wrong prediction.
    let lacks_last = (1..TREATMENTS).filter(|treatment| treatment % FEATURES == FEATURES - 1);
    let expected = Ways {
        templates: 0,
        templates_trusted: false,
        foreseen: others * (FEATURES as u32 - 1),
        missed: others - lacks_last.count() as u32,
        order_trusted: true,
    };
    assert_eq!(ways(&[&lacking()]), expected);
}

#[test]
fn nothing_is_tried_any_more_for_a_request_that_keeps_changing_the_order() {
    let found = ways(&[&shuffled()]);
    assert_eq!((found.templates, found.templates_trusted), (0, false));
    assert!(!found.order_trusted);
    assert!(found.foreseen < 3 * FEATURES as u32, "given up at once, not after {found:?}");
}

#[test]
fn a_request_that_keeps_changing_the_order_spoils_nothing_for_the_next_one() {
    let shuffled = shuffled();
    let regular = request(|_| (0..FEATURES).rev().collect());
    let found = ways(&[&shuffled, &regular]);
    assert_eq!((found.templates, found.templates_trusted), (TREATMENTS as u32 - 1, true));
    let lacking = lacking();
    let found = ways(&[&shuffled, &lacking]);
    assert!(found.order_trusted, "{found:?}");
    assert_eq!(found.missed, ways(&[&lacking]).missed);
}
