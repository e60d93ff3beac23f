//! The binary as a process.

mod bench;
mod commands;
mod common;
mod diff;
mod serve;
mod validate;
