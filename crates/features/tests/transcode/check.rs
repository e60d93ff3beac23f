//! Compares the transcoder and the response writer with the reference implementation, for
//! one case.

use std::sync::LazyLock;

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_features::{
    Limits, Packed, Plan, Request, Routing, metadata::Input, reference::Reference,
};
use outrigger_proto::outrigger::v1::{ModelSelector, PredictRequest};
use prost::Message;

use super::{answers, entropy::Entropy, joined, lists, models, requests};

/// Draws a model, a call and the engine's outputs from `bytes`; packs and answers the
/// call by both implementations.
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
    let mut packed = both(&plan, &requests, &limits);
    if let Some(options) = &options {
        let expected = Reference::new(&plan).pack_batch(&requests, options, &limits);
        packed = same_tensors(plan.pack_batch(&requests, options, &limits), expected);
    }
    if let Some(packed) = &packed {
        let limits = Limits { max_tensor_bytes: usize::MAX, ..limits };
        let pack = |other: Plan| match &options {
            Some(options) => other.pack_batch(&requests, options, &limits),
            None => other.pack(&requests, &limits),
        };
        let metadata = plan.metadata();
        if metadata.is_joined() {
            let apart = joined::apart(metadata);
            let of_apart = apart.metadata().clone();
            let apart = pack(apart).expect("packs as well");
            joined::same(metadata, packed, &apart, &of_apart);
        }
        if metadata.inputs.iter().any(|input| is_ragged(input)) {
            let padded = pack(lists::padded(metadata)).expect("packs as well");
            lists::same(metadata, packed, &padded);
        }
    }
    if let Some(packed) = packed {
        answers::both(&plan, &packed, &mut entropy);
    }
}

fn is_ragged(input: &Input) -> bool {
    input.lengths.is_some() && input.weights.is_none()
}

/// Packs and explains a call by both implementations; `None` if it is refused.
fn both(plan: &Plan, requests: &[&[u8]], limits: &Limits) -> Option<Packed> {
    agree(plan.explain(requests, limits), Reference::new(plan).explain(requests, limits));
    if let [request] = requests {
        let shared = Bytes::copy_from_slice(request);
        let parts = Request::read(&shared, limits);
        same_routing(request, parts.as_ref().ok().map(Request::routing));
        let packed = parts.and_then(|parts| plan.pack_request(&parts));
        same_tensors(packed, Reference::new(plan).pack(requests, limits));
    }
    same_tensors(plan.pack(requests, limits), Reference::new(plan).pack(requests, limits))
}

/// The fields of a request that decide its route.
#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(message, optional, tag = "1")]
    model: Option<ModelSelector>,
    #[prost(string, tag = "2")]
    request_id: String,
    #[prost(string, tag = "3")]
    routing_key: String,
}

/// Compares the route of a request with the one that prost decodes.
fn same_routing(request: &[u8], found: Option<Routing<'_>>) {
    let Some(found) = found else {
        assert!(PredictRequest::decode(request).is_err());
        return;
    };
    let Head { model, request_id, routing_key } = &Head::decode(request).expect("a message");
    assert_eq!(found, Routing { model: model.as_ref(), request_id, routing_key });
    assert_eq!(outrigger_features::routing_key(request), Some(routing_key.as_str()));
}

fn same_tensors(
    found: Result<Packed, Failure>,
    expected: Result<Packed, Failure>,
) -> Option<Packed> {
    agree(found.clone(), expected);
    found.ok()
}

/// Both results or both failures are equal; only the message about invalid bytes may
/// differ.
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

/// Packs bytes as a request of a model that uses every option.
pub(crate) fn raw(bytes: &[u8]) {
    static PLAN: LazyLock<Plan> = LazyLock::new(models::everything);
    let half = bytes.len() / 2;
    both(&PLAN, &[bytes], &Limits::default());
    both(&PLAN, &[&bytes[..half], &bytes[half..]], &Limits::default());
}
