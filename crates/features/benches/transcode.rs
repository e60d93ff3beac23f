//! Compares the transcoder with the reference implementation (prost, maps, packing) and
//! with a copy of the bytes that it reads. Both sides of a ratio run in turns, so that
//! other load on the machine affects both.
//!
//! Prints `bench <name> <value> <unit>`, the median of the ratios; what they
//! were made of stands in the lines that begin with `#`. With `--json` a line is
//! an object that has every turn. Names as arguments choose among the figures.

#![allow(missing_docs)]

#[path = "transcode/borrowed.rs"]
mod borrowed;

use std::{
    env,
    hint::black_box,
    time::{Duration, Instant},
};

use borrowed::Borrowed;
use bytes::Bytes;
use outrigger_core::{Content, DType, Tensor};
use outrigger_features::{Limits, Metadata, Plan, json, reference::Reference};
use outrigger_proto::outrigger::v1::{
    FeatureMap, Matrix, PredictRequest, ServedModel, TreatmentTable, Value, predict_request::User,
    value::Kind,
};
use prost::Message;
use serde_json::json;

/// The allocator of the released binary, used by both sides.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TREATMENTS: usize = 1000;
const PAGE: usize = 4096;
/// The minimum number of turns per figure.
const LEAST_TURNS: usize = 21;
/// The minimum time that the turns of a figure span: other load slows the machine for tenths of a
/// second.
const LEAST_TIME: Duration = Duration::from_secs(2);
const WORDS: [&str; 12] = [
    "phone",
    "web",
    "multichannel",
    "store",
    "partner",
    "letter",
    "mail",
    "app",
    "desk",
    "agent",
    "unlisted",
    "other",
];

/// Treatments on the wire: fields in the order given here.
#[derive(Clone, PartialEq, Message)]
struct Treatment {
    #[prost(string, tag = "1")]
    id: String,
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

#[derive(Clone, PartialEq, Message)]
struct Treatments {
    #[prost(message, repeated, tag = "6")]
    treatments: Vec<Treatment>,
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    fn number(&mut self) -> f32 {
        self.below(1 << 20) as f32 / 1024.0
    }
}

fn main() {
    let (numbers, mixed) = (numbers_plan(), mixed_plan());
    let mut random = Random(0x1234_5678_9abc_def1);
    let ordered = key_values(&mut random, false, |random, _| Kind::Number(random.number()));
    let shuffled = key_values(&mut random, true, |random, _| Kind::Number(random.number()));
    let mixture = key_values(&mut random, false, mixed_value);
    let (table, with_ids) = (table(&mut random, false), table(&mut random, true));

    let bench = Bench::from_arguments();
    bench.speedup("transcode-kv-speedup", &numbers, &ordered);
    bench.over_copy("transcode-kv-memcpy", &numbers, &ordered);
    bench.speedup("transcode-shuffled-speedup", &numbers, &shuffled);
    bench.speedup("transcode-mixed-speedup", &mixed, &mixture);
    bench.over_copy("transcode-table", &numbers, &table);
    bench.over_copy("transcode-table-ids", &numbers, &with_ids);
    let [one, five] = [1, 5].map(|times| document(&mut random, times * TREATMENTS));
    bench.over_tree("json-over-serde", &numbers, &one);
    bench.evenly("json-5000", &numbers, (&one, &five));
}

fn plan(inputs: serde_json::Value) -> Plan {
    let metadata = json!({
        "schema": "outrigger.dev/model/v1", "framework": "tensorflow", "inputs": inputs,
        "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}],
    });
    Plan::compile(Metadata::parse(metadata.to_string().as_bytes()).expect("valid"))
}

fn name(index: usize) -> String {
    format!("treat_feature_{index:02}")
}

fn user() -> serde_json::Value {
    let features: Vec<_> = (0..4)
        .map(|index| json!({"name": format!("user_feature_{index:02}"), "required": true}))
        .collect();
    json!({"tensor": "user", "entity": "user", "dtype": "float32", "features": features})
}

fn numbers_plan() -> Plan {
    let features: Vec<_> =
        (0..20).map(|index| json!({"name": name(index), "required": true})).collect();
    plan(json!([
        user(),
        {"tensor": "treatment", "entity": "treatment", "dtype": "float32", "features": features},
    ]))
}

/// 12 numbers, 4 words of a vocabulary, 4 texts to be hashed.
fn mixed_plan() -> Plan {
    let number = |index| json!({"name": name(index), "required": true});
    let word = |index| json!({"name": name(index), "vocabulary": WORDS[..10], "out_of_vocabulary": 10, "required": true});
    let text = |index| json!({"name": name(index), "hash_buckets": 100_000, "required": true});
    plan(json!([
        user(),
        {"tensor": "numbers", "entity": "treatment", "dtype": "float32", "features": (0..12).map(number).collect::<Vec<_>>()},
        {"tensor": "words", "entity": "treatment", "dtype": "int64",
         "features": (12..16).map(word).chain((16..20).map(text)).collect::<Vec<_>>()},
    ]))
}

fn mixed_value(random: &mut Random, feature: usize) -> Kind {
    match feature {
        0..12 => Kind::Number(random.number()),
        12..16 => Kind::Text(WORDS[random.below(WORDS.len())].to_owned()),
        _ => Kind::Text(format!("sku-{}", random.below(1_000_000))),
    }
}

fn key_values(
    random: &mut Random,
    shuffled: bool,
    mut value: impl FnMut(&mut Random, usize) -> Kind,
) -> Vec<u8> {
    let mut treatment = |_| {
        let mut entry = |feature| Entry {
            key: name(feature),
            value: Some(Value { kind: Some(value(random, feature)) }),
        };
        let mut features: Vec<_> = (0..20).map(&mut entry).collect();
        for end in (1..features.len()).rev().filter(|_| shuffled) {
            features.swap(end, random.below(end + 1));
        }
        Treatment { id: format!("t{}", random.below(100_000_000)), features }
    };
    let treatments = Treatments { treatments: (0..TREATMENTS).map(&mut treatment).collect() };
    [head(), treatments.encode_to_vec()].concat()
}

/// The user's part of a request.
fn head() -> Vec<u8> {
    let feature = |index| {
        let kind = Some(Kind::Number(index as f32));
        (format!("user_feature_{index:02}"), Value { kind })
    };
    let user = FeatureMap { features: (0..4).map(feature).collect() };
    let user = Some(User::UserFeatures(user));
    PredictRequest { request_id: "r".into(), user, ..Default::default() }.encode_to_vec()
}

/// A table whose columns are in the model's order.
fn table(random: &mut Random, ids: bool) -> Vec<u8> {
    let values: Vec<_> = (0..20 * TREATMENTS).map(|_| random.number()).collect();
    let numbers = Matrix {
        names: (0..20).map(name).collect(),
        values: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        ..Default::default()
    };
    let named = if ids { TREATMENTS } else { 0 };
    let ids = (0..named).map(|_| format!("t{}", random.below(100_000_000))).collect();
    let count = TREATMENTS as u32;
    let table = TreatmentTable { ids, count, numbers: Some(numbers), ..Default::default() };
    let table = PredictRequest { treatment_table: Some(table), ..Default::default() };
    [head(), table.encode_to_vec()].concat()
}

/// A request in JSON, as serde_json writes it: the keys are sorted.
fn document(random: &mut Random, treatments: usize) -> Bytes {
    let mut treatment = |_| {
        let features = (0..20).map(|index| {
            let short: f64 = random.number().to_string().parse().expect("a number");
            (name(index), json!(short))
        });
        let features: serde_json::Map<_, _> = features.collect();
        json!({"id": format!("t{}", random.below(100_000_000)), "features": features})
    };
    let treatments: Vec<_> = (0..treatments).map(&mut treatment).collect();
    let user: serde_json::Map<_, _> =
        (0..4).map(|index| (format!("user_feature_{index:02}"), json!(index))).collect();
    json!({"model": {"name": "m"}, "request_id": "r", "user": user, "treatments": treatments})
        .to_string()
        .into()
}

/// All that is done with a request in JSON, except for the model.
fn answer(plan: &Plan, body: &Bytes) {
    let request = json::Request::read(black_box(body).clone()).expect("a request");
    let packed = plan.pack_json(&request, &Limits::default()).expect("packs");
    let scores = (0..packed.treatments).flat_map(|row| (row as f32 / 7.0).to_le_bytes());
    let output = Tensor {
        name: "scores".into(),
        dtype: DType::Float32,
        shape: vec![1, packed.treatments as i64],
        content: Content::Bytes(scores.collect()),
    };
    let (outputs, model) = ([output], ServedModel::default());
    let answer = plan.answer(&packed, &outputs, &[]).expect("answers");
    black_box(answer.to_json(&model, None));
}

fn transcode(plan: &Plan, request: &[u8]) {
    black_box(plan.pack(&[black_box(request)], &Limits::default()).expect("packs"));
}

/// The figures to measure, and the output format.
struct Bench {
    names: Vec<String>,
    json: bool,
}

impl Bench {
    /// Parses the arguments; cargo adds a flag of its own, which is ignored.
    fn from_arguments() -> Self {
        let (flags, names): (Vec<_>, Vec<_>) =
            env::args().skip(1).partition(|argument| argument.starts_with("--"));
        Self { names, json: flags.iter().any(|flag| flag == "--json") }
    }

    fn speedup(&self, name: &str, plan: &Plan, request: &[u8]) {
        let (limits, reference) = (Limits::default(), Reference::new(plan));
        let plain = || {
            black_box(reference.pack(&[black_box(request)], &limits).expect("packs"));
        };
        self.compare(name, request.len(), (plain, 4), (|| transcode(plan, request), 40));
    }

    fn over_copy(&self, name: &str, plan: &Plan, request: &[u8]) {
        let mut room = vec![0; request.len() + PAGE];
        // The copy is placed half a page apart from the request: at the same offset within their
        // pages, a copy waits for its own writes and takes three times as long.
        let apart = (request.as_ptr().addr() + PAGE / 2).wrapping_sub(room.as_ptr().addr()) % PAGE;
        let copy = &mut room[apart..][..request.len()];
        let copy = || black_box(&mut *copy).copy_from_slice(black_box(request));
        self.compare(name, request.len(), (|| transcode(plan, request), 40), (copy, 400));
    }

    /// JSON over parsing its text into borrowed values, and nothing else.
    fn over_tree(&self, name: &str, plan: &Plan, body: &Bytes) {
        let tree = || {
            black_box(serde_json::from_slice::<Borrowed<'_>>(black_box(body)).expect("JSON"));
        };
        self.compare(name, body.len(), (|| answer(plan, body), 10), (tree, 10));
    }

    /// Five times the treatments over five requests.
    fn evenly(&self, name: &str, plan: &Plan, (one, five): (&Bytes, &Bytes)) {
        let several = || (0..5).for_each(|_| answer(plan, one));
        self.compare(name, five.len(), (|| answer(plan, five), 2), (several, 2));
    }

    /// The ratio of the times of `one` and `other`, each called a fixed number of times
    /// per turn.
    fn compare(
        &self,
        name: &str,
        bytes: usize,
        (mut one, ones): (impl FnMut(), usize),
        (mut other, others): (impl FnMut(), usize),
    ) {
        if !self.names.is_empty() && !self.names.iter().any(|wanted| wanted == name) {
            return;
        }
        let mut turn = |number: usize| {
            // The order alternates, so that a machine that gets slower does not always
            // slow the same side.
            if number.is_multiple_of(2) {
                let one = time(&mut one, ones);
                Turn { one, other: time(&mut other, others) }
            } else {
                let other = time(&mut other, others);
                Turn { one: time(&mut one, ones), other }
            }
        };
        turn(0); // Warms up.
        let begin = Instant::now();
        let turns: Vec<_> = (1..)
            .take_while(|number| *number <= LEAST_TURNS || begin.elapsed() < LEAST_TIME)
            .map(turn)
            .collect();
        if self.json { print_json(name, bytes, &turns) } else { print(name, bytes, turns) }
    }
}

/// The mean times of both sides.
struct Turn {
    one: Duration,
    other: Duration,
}

impl Turn {
    fn ratio(&self) -> f64 {
        self.one.as_secs_f64() / self.other.as_secs_f64()
    }
}

fn print(name: &str, bytes: usize, mut turns: Vec<Turn>) {
    turns.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let count = turns.len();
    let median = &turns[count / 2];
    let (low, high) = (turns[count / 4].ratio(), turns[count - 1 - count / 4].ratio());
    println!(
        "# {name}: {:.1?} over {:.1?}, {bytes} bytes; half of {count} turns within {low:.2} to {high:.2}",
        median.one, median.other,
    );
    println!("bench {name} {:.2} x", median.ratio());
}

/// Prints every turn, in seconds.
fn print_json(name: &str, bytes: usize, turns: &[Turn]) {
    let seconds = |side: fn(&Turn) -> Duration| {
        turns.iter().map(|turn| side(turn).as_secs_f64()).collect::<Vec<_>>()
    };
    let (one, other) = (seconds(|turn| turn.one), seconds(|turn| turn.other));
    println!("{}", json!({"name": name, "bytes": bytes, "one": one, "other": other}));
}

/// The mean time of `calls` calls.
fn time(call: &mut impl FnMut(), calls: usize) -> Duration {
    let start = Instant::now();
    (0..calls).for_each(|_| call());
    start.elapsed() / calls as u32
}
