//! Packing: encodes the rows of all requests of a call as the engine's tensors.

use std::slice;

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{ExplainResponse, ResponseOptions};

use crate::{
    call::{Call, Trace},
    limits::{Limits, check_users},
    meter::{Meter, Unmetered},
    packed::Packed,
    plan::Plan,
    transcode::{self, Request},
};

/// A plan whose calls are metered.
#[derive(Debug, Clone, Copy)]
pub struct Metered<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) meter: &'a dyn Meter,
}

impl Plan {
    /// The plan for calls that `meter` measures.
    pub fn metered<'a>(&'a self, meter: &'a dyn Meter) -> Metered<'a> {
        Metered { plan: self, meter }
    }

    pub(crate) fn unmetered(&self) -> Metered<'_> {
        self.metered(&Unmetered)
    }

    /// [`Metered::pack_request`] without a meter.
    ///
    /// # Errors
    /// As there.
    pub fn pack_request(&self, request: &Request<'_>) -> Result<Packed, Failure> {
        self.unmetered().pack_request(request)
    }

    /// [`Metered::pack_batch`] without a meter.
    ///
    /// # Errors
    /// As there.
    pub fn pack_batch(
        &self,
        requests: &[&[u8]],
        options: &ResponseOptions,
        limits: &Limits,
    ) -> Result<Packed, Failure> {
        self.unmetered().pack_batch(requests, options, limits)
    }

    /// [`Metered::explain`] without a meter.
    ///
    /// # Errors
    /// As there.
    pub fn explain(
        &self,
        requests: &[&[u8]],
        limits: &Limits,
    ) -> Result<Vec<ExplainResponse>, Failure> {
        self.unmetered().explain(requests, limits)
    }
}

impl Plan {
    /// Packs encoded `outrigger.v1.PredictRequest`s, one per user, each with its own
    /// options. Field paths begin with `requests[i].` when there are several.
    ///
    /// # Errors
    /// INVALID_ARGUMENT reasons: REQUEST_MALFORMED, TOO_MANY_TREATMENTS,
    /// TOO_LARGE, or FEATURE_… naming the feature and the treatment.
    pub fn pack(&self, requests: &[&[u8]], limits: &Limits) -> Result<Packed, Failure> {
        self.unmetered().pack(requests, limits)
    }
}

impl Metered<'_> {
    /// As [`Plan::pack`].
    ///
    /// # Errors
    /// As there, and those of the meter.
    pub fn pack(self, requests: &[&[u8]], limits: &Limits) -> Result<Packed, Failure> {
        let Self { plan, meter } = self;
        let call = Call { prefixed: requests.len() > 1, meter, ..Call::new(limits) };
        pack_traced(plan, requests, &call).map(|(packed, _)| packed)
    }

    /// As [`Plan::pack`], for one request that has already been split into parts within
    /// its limits.
    ///
    /// # Errors
    /// As [`Plan::pack`], and those of the meter.
    pub fn pack_request(self, request: &Request<'_>) -> Result<Packed, Failure> {
        check_users(1, &request.limits)?;
        let call = Call { meter: self.meter, ..Call::new(&request.limits) };
        let packed = transcode::pack_requests(self.plan, slice::from_ref(request), &call);
        packed.map(|(packed, _)| packed)
    }

    /// Packs the requests of a `BatchPredictRequest`, whose `options` hold for
    /// all of them. Field paths begin with `requests[i].`.
    ///
    /// # Errors
    /// As [`Self::pack_request`]; also REQUEST_MALFORMED for a request that brings a
    /// model or options of its own.
    pub fn pack_batch(
        self,
        requests: &[&[u8]],
        options: &ResponseOptions,
        limits: &Limits,
    ) -> Result<Packed, Failure> {
        let Self { plan, meter } = self;
        let call = Call { prefixed: true, batch: Some(options), meter, ..Call::new(limits) };
        pack_traced(plan, requests, &call).map(|(packed, _)| packed)
    }
}

/// Packs a call; the trace is empty unless the call is traced.
pub(crate) fn pack_traced(
    plan: &Plan,
    requests: &[&[u8]],
    call: &Call<'_>,
) -> Result<(Packed, Trace), Failure> {
    check_users(requests.len(), call.limits)?;
    transcode::pack(plan, requests, call)
}

#[cfg(test)]
mod tests;
