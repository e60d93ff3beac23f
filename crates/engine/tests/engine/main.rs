//! The engine with the real TensorFlow, as its clients see it.

mod batching;
mod connections;
mod harness;
mod memory;
mod models;
mod predict;
mod raw;
mod reload;
mod step_stats;
