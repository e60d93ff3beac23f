//! Holds the transcoder and what is written to the plain way, for one case.

use std::sync::LazyLock;

use outrigger_core::Failure;
use outrigger_features::{Limits, Metadata, Plan, reference};

use super::{answers, entropy::Entropy, models, requests};

/// Makes a model, a call and the engine's outputs of `bytes`; packs and answers
/// it both ways.
pub(crate) fn generated(bytes: &[u8]) {
    let mut entropy = Entropy::new(bytes);
    let metadata = models::metadata(&mut entropy);
    let batch = entropy.chance(50);
    let users = if batch || entropy.chance(30) { 1 + entropy.below(3) } else { 1 };
    let request = |_| requests::request(&metadata, batch, &mut entropy);
    let mut requests: Vec<_> = (0..users).map(request).collect();
    if entropy.chance(60) {
        let at = entropy.below(users);
        requests::damage(&mut requests[at], &mut entropy);
    }
    let limits = match entropy.chance(12) {
        true => Limits { max_treatments: 4, max_users: 2, max_tensor_bytes: 400 },
        false => Limits::default(),
    };
    let options = batch.then(|| requests::options(&mut entropy));
    let requests: Vec<_> = requests.iter().map(Vec::as_slice).collect();
    let plan = Plan::compile(metadata);
    both(&plan, &requests, &limits);
    let packed = match &options {
        Some(options) => {
            let expected = reference::pack_batch(&plan, &requests, options, &limits);
            agree(plan.pack_batch(&requests, options, &limits), expected);
            plan.pack_batch(&requests, options, &limits)
        }
        None => plan.pack(&requests, &limits),
    };
    if let Ok(packed) = packed {
        answers::both(&plan, &packed, &mut entropy);
    }
}

/// Packs and explains a call both ways.
pub(crate) fn both(plan: &Plan, requests: &[&[u8]], limits: &Limits) {
    agree(plan.pack(requests, limits), reference::pack(plan, requests, limits));
    agree(plan.explain(requests, limits), reference::explain(plan, requests, limits));
}

/// The same answer, or the same refusal; only how bytes are no message may be
/// said in other words.
fn agree<T: PartialEq + std::fmt::Debug>(found: Result<T, Failure>, expected: Result<T, Failure>) {
    const UNDECODABLE: &str = " cannot be decoded: ";
    match (found, expected) {
        (Err(found), Err(expected)) => match expected.message.split_once(UNDECODABLE) {
            Some((request, _)) => {
                let (found_request, _) =
                    found.message.split_once(UNDECODABLE).expect("as malformed");
                assert_eq!((found_request, found.reason), (request, expected.reason));
                assert_eq!(found.violations, expected.violations);
            }
            None => assert_eq!(found, expected),
        },
        (found, expected) => assert_eq!(found, expected),
    }
}

/// Takes bytes as the request of a model that has everything.
pub(crate) fn raw(bytes: &[u8]) {
    static PLAN: LazyLock<Plan> = LazyLock::new(|| {
        let json = include_bytes!("../metadata/good/everything.json");
        Plan::compile(Metadata::parse(json).expect("valid"))
    });
    let half = bytes.len() / 2;
    both(&PLAN, &[bytes], &Limits::default());
    both(&PLAN, &[&bytes[..half], &bytes[half..]], &Limits::default());
}
