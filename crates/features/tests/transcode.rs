//! The transcoder and the reference implementation agree on tensors, counts, rows kept,
//! responses, error messages, and on which bytes are invalid.

#[cfg(target_arch = "x86_64")]
#[path = "support/vectors.rs"]
mod narrower;
#[path = "transcode/mod.rs"]
mod transcode;

use std::{fs, path::Path, sync::LazyLock};

use proptest::{collection::vec, prelude::*, sample::Index};
use transcode::{check, json};

const CASES: u32 = 2000;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_call_of_any_model_is_packed_and_answered_as_by_the_plain_way(bytes in vec(any::<u8>(), 0..4000)) {
        check::generated(&bytes);
    }

    #[test]
    fn any_request_in_json_is_packed_as_its_protobuf_form_is(bytes in vec(any::<u8>(), 0..3000)) {
        json::generated(&bytes);
    }

    #[test]
    fn text_that_is_nearly_json_is_taken_or_refused_as_its_protobuf_form_is(
        seed in any::<Index>(),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        end in any::<Index>(),
    ) {
        let mut bytes = seed.get(&JSON).clone();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        json::raw(&bytes);
        bytes.truncate(end.index(bytes.len() + 1));
        json::raw(&bytes);
    }

    #[test]
    fn bytes_that_are_nearly_a_request_are_taken_or_refused_as_by_the_plain_way(
        seed in any::<Index>(),
        changes in vec((any::<Index>(), any::<u8>()), 1..8),
        end in any::<Index>(),
    ) {
        let mut bytes = seed.get(&RAW).clone();
        prop_assume!(!bytes.is_empty());
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        check::raw(&bytes);
        bytes.truncate(end.index(bytes.len() + 1));
        check::raw(&bytes);
    }
}

/// The corpus that fuzzing starts from.
static RAW: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| corpus("raw"));

static JSON: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| corpus("json"));

#[test]
fn the_fuzzing_corpus_packs_as_the_reference_does() {
    type Check = fn(&[u8]);
    for (target, check) in
        [("generated", check::generated as Check), ("raw", check::raw), ("json", json::any)]
    {
        let corpus = corpus(target);
        assert!(corpus.len() > 10, "{target}");
        corpus.iter().for_each(|bytes| check(bytes));
    }
}

/// The stored cases of a fuzz target, in no particular order.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&corpus).expect("the corpus is there");
    files.map(|file| fs::read(file.expect("readable").path()).expect("readable")).collect()
}
