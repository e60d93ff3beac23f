//! Tests of the lifecycle with a fake engine and a scripted registry; everything between them is
//! real.

mod batches;
mod canaries;
mod directories;
mod durable;
mod engine;
mod engines;
mod failures;
mod gate;
mod idle;
mod kinds;
mod loading;
mod promotions;
mod reconfigure;
mod remote;
mod removals;
mod restart;
mod rig;
mod rollover;
mod signatures;
mod starvation;
mod tags;
mod trials;
mod two_engines;
mod verdicts;
mod whole_life;
