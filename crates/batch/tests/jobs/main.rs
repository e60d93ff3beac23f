//! Jobs against scripted hosts.

mod faults;
mod harness;
mod kills;
mod parts;
mod runs;
mod workers;
