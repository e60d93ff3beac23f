//! Verdicts on simulated traffic, and merged statistics.

mod drift;
mod merge;
mod verdicts;
