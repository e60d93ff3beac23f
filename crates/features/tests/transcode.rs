//! The transcoder and the plain way agree about everything: tensors, counts,
//! rows kept, responses, refusals in every word, and what is no message at all.

#[path = "transcode/mod.rs"]
mod transcode;

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*};
use transcode::check;

const CASES: u32 = 2000;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_call_of_any_model_is_packed_and_answered_as_by_the_plain_way(bytes in vec(any::<u8>(), 0..4000)) {
        check::generated(&bytes);
    }
}

#[test]
fn what_fuzzing_has_found_worth_keeping_is_done_as_by_the_plain_way() {
    assert!(replay("generated", check::generated) > 10);
    assert!(replay("raw", check::raw) > 10);
}

/// Runs a fuzz target over its corpus; says how many cases there are.
fn replay(target: &str, check: fn(&[u8])) -> usize {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&corpus).expect("the corpus is there");
    let cases = files.map(|file| fs::read(file.expect("readable").path()).expect("readable"));
    cases.map(|bytes| check(&bytes)).count()
}
