//! Jobs against scripted hosts.

mod faults;
mod harness;
mod kills;
mod runs;
mod workers;
