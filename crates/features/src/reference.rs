//! A simple reference implementation of packing and answering: prost decodes the
//! requests, maps are looked up, and prost encodes the responses.
//!
//! Not for production: tests compare the transcoder and the response writer with it, and
//! benchmarks measure against it. Both share the encoding of single values, but not the
//! reading.

mod answer;
mod document;
mod fields;
mod names;
mod object;
mod output;
mod packer;
mod plain;
mod table;
mod view;

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{ExplainResponse, PredictRequest, ResponseOptions};
use prost::Message;

use crate::{
    call::{Call, Trace},
    explain,
    limits::{Limits, check_size, check_users, refuse_too_many},
    options::Options,
    packed::Packed,
    place::Place,
    plan::Plan,
};
pub use answer::answer;
pub use document::predict_response;
use fields::fields;
use names::Names;
use packer::Packer;
use view::View;

/// A plan with the name tables of the reference implementation.
#[derive(Debug)]
pub struct Reference<'p> {
    plan: &'p Plan,
    names: Names,
}

impl<'p> Reference<'p> {
    /// Builds the name tables of a plan.
    pub fn new(plan: &'p Plan) -> Self {
        Self { plan, names: Names::of(&plan.metadata) }
    }

    /// As [`Plan::pack`].
    ///
    /// # Errors
    /// As [`Plan::pack`].
    pub fn pack(&self, requests: &[&[u8]], limits: &Limits) -> Result<Packed, Failure> {
        let call = Call { prefixed: requests.len() > 1, ..Call::new(limits) };
        self.pack_traced(requests, &call).map(|(packed, _)| packed)
    }

    /// As [`Plan::pack_batch`].
    ///
    /// # Errors
    /// As [`Plan::pack_batch`].
    pub fn pack_batch(
        &self,
        requests: &[&[u8]],
        options: &ResponseOptions,
        limits: &Limits,
    ) -> Result<Packed, Failure> {
        let call = Call { prefixed: true, batch: Some(options), ..Call::new(limits) };
        self.pack_traced(requests, &call).map(|(packed, _)| packed)
    }

    /// As [`Plan::explain`].
    ///
    /// # Errors
    /// As [`Plan::explain`].
    pub fn explain(
        &self,
        requests: &[&[u8]],
        limits: &Limits,
    ) -> Result<Vec<ExplainResponse>, Failure> {
        let call = Call { prefixed: requests.len() > 1, traced: true, ..Call::new(limits) };
        let (packed, trace) = self.pack_traced(requests, &call)?;
        Ok(explain::users(self.plan, &packed, &trace))
    }

    fn pack_traced(&self, requests: &[&[u8]], call: &Call<'_>) -> Result<(Packed, Trace), Failure> {
        check_users(requests.len(), call.limits)?;
        let messages = decode(requests, call)?;
        let counts = self.count(&messages, call)?;
        check_size(self.plan, counts.iter().copied(), call.limits, (call.traced, call.meter))?;
        let mut packer = Packer::new(self.plan, call.traced, counts.iter().copied());
        for (index, (message, count)) in messages.iter().zip(counts).enumerate() {
            // One request at a time: its rows take several times the memory of its
            // tensors.
            let added = self.add(&mut packer, message, count, call, &call.place(index));
            added.unwrap_or_else(|failure| packer.faults.end(failure));
            if packer.faults.room() == 0 {
                break;
            }
        }
        packer.faults.check()?;
        Ok(packer.finish())
    }

    fn add(
        &self,
        packer: &mut Packer<'p>,
        message: &PredictRequest,
        count: usize,
        call: &Call<'_>,
        place: &Place,
    ) -> Result<(), Failure> {
        let view = View::read(message, count, &self.names, call.traced, place)?;
        let (own, has_model) = (message.options.as_ref(), message.model.is_some());
        let options = Options::read(own, has_model, call, self.plan, place)?;
        packer.add(&message.request_id, view, options, place);
        Ok(())
    }

    fn count(&self, messages: &[PredictRequest], call: &Call<'_>) -> Result<Vec<usize>, Failure> {
        let max = call.limits.max_treatments;
        let messages = messages.iter().enumerate();
        messages
            .map(|(index, message)| View::count(message, max, &self.names, &call.place(index)))
            .collect()
    }
}

fn decode(requests: &[&[u8]], call: &Call<'_>) -> Result<Vec<PredictRequest>, Failure> {
    let decode = |(index, bytes): (usize, &&[u8])| {
        let (place, max) = (call.place(index), call.limits.max_treatments);
        refuse_too_many(count_treatments(bytes), max, "treatments", &place)?;
        PredictRequest::decode(*bytes).map_err(|error| place.undecodable(error))
    };
    requests.iter().enumerate().map(decode).collect()
}

/// `PredictRequest.treatments`.
const TREATMENTS: u32 = 6;

/// Counts treatments before they are decoded: two bytes can encode a treatment, which
/// takes some fifty times that when decoded. Stops where the bytes are invalid; decoding
/// reports the error.
fn count_treatments(bytes: &[u8]) -> usize {
    let mut count = 0;
    let _ = fields(bytes, |tag, _| {
        count += usize::from(tag == TREATMENTS);
        Ok(())
    });
    count
}
