//! Requests that are not read in one pass, because they are malformed or most unusual: they are
//! encoded as an `outrigger.v1.PredictRequest` first. It finds the first error in the text, and
//! names it.

use bytes::Bytes;
use outrigger_core::Failure;

use super::{encode_request, selector};
use crate::{
    call::{Call, Trace},
    meter::Meter,
    packed::Packed,
    plan::Plan,
    transcode::{self, Request},
};

/// The memory of a body that is encoded, as a multiple of its length; a test holds it.
const MEMORY: u64 = 16;

/// Packs any request.
///
/// # Errors
/// As `Plan::pack`, and those of the meter.
#[cold]
pub(super) fn pack(plan: &Plan, body: &[u8], call: &Call<'_>) -> Result<(Packed, Trace), Failure> {
    let beside = Beside { meter: call.meter, bytes: MEMORY * body.len() as u64 };
    beside.admit(0)?;
    selector(body)?;
    call.meter.proceed()?;
    let encoded = Bytes::from(encode_request(plan, body)?);
    let request = Request::read(&encoded, call.limits)?;
    transcode::pack_requests(plan, &[request], &Call { meter: &beside, ..*call })
}

/// A meter of what is admitted beside other memory.
#[derive(Debug)]
struct Beside<'a> {
    meter: &'a dyn Meter,
    bytes: u64,
}

impl Meter for Beside<'_> {
    fn admit(&self, bytes: u64) -> Result<(), Failure> {
        self.meter.admit(self.bytes.saturating_add(bytes))
    }

    fn proceed(&self) -> Result<(), Failure> {
        self.meter.proceed()
    }
}
