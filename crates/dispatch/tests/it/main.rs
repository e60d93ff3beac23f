//! The dispatcher in jobs of virtual time, and driven call by call.

mod evidence;
mod figures;
mod hosts;
mod hours;
mod properties;
mod seeds;
#[path = "../simulation/mod.rs"]
mod simulation;
