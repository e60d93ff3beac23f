//! Decisions about hosts that fail or have too much work, as values without I/O, which take the time
//! as a [`outrigger_core::Moment`].
//!
//! [`Class`] sorts failures, [`Backoff`] gives the pauses between attempts, [`RetryBudget`] bounds
//! the retries of all messages, [`Ejection`] withdraws a host that fails its calls (a circuit
//! breaker), [`retry_after`] and [`rate_limit_pause`] read the pause that a server asks for, and a [`Limiter`] bounds the
//! calls that a host has in flight: [`Aimd`] by its refusals, [`Pipe`] by its rate and its round
//! trips, [`Adaptive`] by both.

mod adaptive;
mod backoff;
mod budget;
mod class;
mod ejection;
mod limiter;
mod pipe;
mod rate_limit;
mod retry_after;

pub use self::{
    adaptive::Adaptive,
    backoff::Backoff,
    budget::{BudgetSettings, RetryBudget},
    class::{Class, Cut},
    ejection::{Ejection, EjectionSettings, Outcome, Place},
    limiter::{Aimd, Limiter, Sample},
    pipe::Pipe,
    rate_limit::rate_limit_pause,
    retry_after::retry_after,
};
