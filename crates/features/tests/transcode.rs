//! The transcoder and the plain way agree about everything: tensors, counts,
//! rows kept, refusals in every word, and what is no message at all.

#[path = "transcode/check.rs"]
mod check;
#[path = "transcode/entropy.rs"]
mod entropy;
#[path = "transcode/models.rs"]
mod models;
#[path = "transcode/requests.rs"]
mod requests;
#[path = "transcode/wire.rs"]
mod wire;

use proptest::{collection::vec, prelude::*};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_call_of_any_model_is_packed_as_by_the_plain_way(bytes in vec(any::<u8>(), 0..4000)) {
        check::generated(&bytes);
    }
}
