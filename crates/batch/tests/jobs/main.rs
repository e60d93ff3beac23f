//! Jobs against scripted hosts.

mod faults;
mod harness;
mod kills;
mod names;
mod runs;
mod workers;
