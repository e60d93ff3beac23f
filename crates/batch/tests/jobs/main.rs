//! Jobs against scripted hosts.

mod faults;
mod harness;
mod kills;
mod objects;
mod outage;
mod runs;
mod scripted;
mod workers;
