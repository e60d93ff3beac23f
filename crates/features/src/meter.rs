//! The memory and the time of a call while it is packed.

use std::fmt;

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{ExplainResponse, ResponseOptions};

use crate::{Limits, Packed, Plan, Request};

/// Admits the memory of a call, and ends the call when it takes too long.
pub trait Meter: fmt::Debug {
    /// Admits tensors of this size. Called before they are allocated.
    ///
    /// # Errors
    /// They do not fit.
    fn admit(&self, bytes: u64) -> Result<(), Failure>;

    /// Called repeatedly while a call is packed.
    ///
    /// # Errors
    /// The call's time is over.
    fn proceed(&self) -> Result<(), Failure>;
}

/// Admits everything.
#[derive(Debug)]
pub(crate) struct Unmetered;

impl Meter for Unmetered {
    fn admit(&self, _: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn proceed(&self) -> Result<(), Failure> {
        Ok(())
    }
}

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

#[cfg(test)]
mod tests;
