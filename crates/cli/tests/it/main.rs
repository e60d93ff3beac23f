//! The binary as a process.

mod batch;
mod bench;
mod commands;
mod common;
mod diff;
mod serve;
mod validate;
