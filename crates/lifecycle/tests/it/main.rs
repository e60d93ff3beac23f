//! Tests of the lifecycle with a fake engine and a scripted registry; everything between them is
//! real.

mod canaries;
mod engine;
mod engines;
mod failures;
mod idle;
mod loading;
mod promotions;
mod reconfigure;
mod removals;
mod restart;
mod rig;
mod signatures;
mod tags;
mod trials;
mod verdicts;
