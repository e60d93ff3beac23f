//! Lifecycle with a fake engine and a scripted registry: everything between
//! them is real.

mod canaries;
mod engine;
mod failures;
mod idle;
mod loading;
mod restart;
mod rig;
mod signatures;
mod tags;
mod verdicts;
