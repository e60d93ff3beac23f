//! Jobs against scripted hosts.

mod compactions;
mod diffs;
mod faults;
mod harness;
mod kills;
mod runs;
mod verifications;
mod workers;
