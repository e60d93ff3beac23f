//! The input as the golden.jsonl of a model that has everything. Every case that is valid is packed
//! like a request.
#![no_main]

use std::sync::LazyLock;

use outrigger_features::{GoldenCases, Limits, Metadata, Plan};
use prost::Message as _;

static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let json = include_bytes!("../../crates/features/tests/metadata/good/everything.json");
    Plan::compile(Metadata::parse(json).expect("valid"))
});

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let mut cases = GoldenCases::new(text);
    let lines = 1 + text.iter().filter(|byte| **byte == b'\n').count();
    while let Ok(Some(case)) = cases.next(&PLAN) {
        assert!((1..=lines).contains(&case.line));
        let _refused_or_packed = PLAN.pack(&[&case.request.encode_to_vec()], &Limits::default());
    }
});
