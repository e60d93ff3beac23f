//! The input as a metadata.json. A plan is compiled for each one that is valid, and packs an empty
//! request.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use outrigger_features::{Limits, Metadata, Plan};

fuzz_target!(|json: &[u8]| -> Corpus {
    let Ok(metadata) = Metadata::parse(json) else { return Corpus::Keep };
    let plan = Plan::compile(metadata);
    let limits = Limits { max_tensor_bytes: 1 << 20, ..Limits::default() };
    let _refused_or_packed = plan.pack(&[b""], &limits);
    Corpus::Keep
});
