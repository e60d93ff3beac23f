//! The requests of a batch.

use outrigger_core::{Failure, Reason};

use crate::{
    entries::check_outputs,
    limits::{Limits, check_users},
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};

/// `BatchPredictRequest.requests`.
const REQUESTS: u32 = 4;
/// `BatchPredictRequest.options`.
const OPTIONS: u32 = 9;

/// Splits an encoded `outrigger.v1.BatchPredictRequest` into its requests without copying
/// or parsing them.
///
/// # Errors
/// REQUEST_MALFORMED: the bytes are not a valid message, or it has no request, or more than a call
/// may have. Requests beyond the limit are counted but not stored, because two bytes can encode a
/// request.
pub fn requests<'r>(message: &'r [u8], limits: &Limits) -> Result<Vec<&'r [u8]>, Failure> {
    let (requests, sent) = scan(message, limits.max_users).map_err(|error| {
        Failure::new(Reason::RequestMalformed, format!("the message cannot be read: {error}"))
    })?;
    check_users(sent, limits)?;
    Ok(requests)
}

/// The first `max` requests, and the number of all.
fn scan(message: &[u8], max: usize) -> Result<(Vec<&[u8]>, usize), Malformed> {
    let (mut rest, mut requests, mut sent) = (Reader::new(message), Vec::new(), 0);
    while !rest.is_empty() {
        match rest.key()? {
            (REQUESTS, wire_type) => {
                let request = rest.bytes_field(wire_type)?;
                sent += 1;
                if sent <= max {
                    requests.push(request);
                }
            }
            (OPTIONS, WireType::Bytes) => check_outputs(rest.bytes()?)?,
            (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
        }
    }
    Ok((requests, sent))
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{BatchPredictRequest, PredictRequest, ResponseOptions};
    use prost::Message as _;

    use super::*;

    fn batch(requests: usize) -> Vec<u8> {
        let request =
            |number| PredictRequest { request_id: format!("r{number}"), ..Default::default() };
        let options = Some(ResponseOptions { top_k: 2, ..Default::default() });
        let requests = (0..requests).map(request).collect();
        BatchPredictRequest { requests, options, ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn requests_are_found_in_their_order() {
        let message = batch(2);
        let found = requests(&message, &Limits::default()).unwrap();
        let ids = found.iter().map(|it| PredictRequest::decode(*it).unwrap().request_id);
        assert_eq!(ids.collect::<Vec<_>>(), ["r0", "r1"]);
    }

    #[test]
    fn no_request_and_more_than_a_call_may_have_are_refused() {
        let limits = Limits { max_users: 2, ..Limits::default() };
        for (sent, message) in
            [(0, "no request in the batch"), (5, "5 requests in one call, at most 2 are allowed")]
        {
            let failure = requests(&batch(sent), &limits).unwrap_err();
            assert_eq!((failure.reason, &*failure.message), (Reason::RequestMalformed, message));
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for garbage in [&b"\x22\x05ab"[..], b"\x20\x01", b"\xff"] {
            let failure = requests(garbage, &Limits::default()).unwrap_err();
            assert!(failure.message.starts_with("the message cannot be read: "), "{failure:?}");
        }
    }
}
