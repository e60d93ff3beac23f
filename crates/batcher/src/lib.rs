//! Batches for engines that do not batch by themselves.
//!
//! [`Batched`] is an engine that wraps another one. Calls of one version that arrive within a short
//! time become one run: their rows are joined, and the outputs are divided among the callers.
//!
//! - The calls of a batch have the same outputs, and inputs of the same names, types and row
//!   shapes. Where inputs have a row per user, the treatments are padded with the first element of
//!   each call's own tensor ([`outrigger_run::Engine::batches`]).
//! - A run that may have failed because of one call is made again for each half of its calls, so
//!   that this call fails alone.
//! - Calls that cannot be joined run by themselves: those of models with lists or without features,
//!   those with contributions, and those of more rows than a batch.
//! - The number and the size of waiting calls are limited; one more is refused as overloaded.

mod batch;
mod batcher;
mod engine;
mod form;
mod merge;
pub mod metrics;
mod queue;

use std::time::Duration;

pub use engine::Batched;

/// The settings of batches. They hold for each version of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The most rows of a batch. A row is a user, or for a model with joined inputs a treatment.
    pub max_rows: usize,
    /// The longest time that a call waits for others, also while the engine is idle. A call never
    /// waits longer than half of the time until its deadline for that.
    pub max_delay: Duration,
    /// The most batches in the engine at a time.
    pub max_in_flight: usize,
    /// The most calls that wait.
    pub max_calls: usize,
    /// The largest total size of the inputs of waiting calls, in bytes.
    pub max_bytes: usize,
}

#[cfg(test)]
mod tests;
