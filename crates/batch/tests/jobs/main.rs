//! Jobs against scripted hosts.

mod disk;
mod faults;
mod formats;
mod harness;
mod kills;
mod runs;
mod workers;
