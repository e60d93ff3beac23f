//! The engine over the real TensorFlow, as its clients see it.

mod connections;
mod harness;
mod memory;
mod models;
mod predict;
mod raw;
mod reload;
