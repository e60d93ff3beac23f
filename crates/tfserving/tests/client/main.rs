//! The client against a fake TensorFlow Serving, over TCP and unix sockets.

mod control;
mod frames;
mod harness;
mod outage;
mod peer;
mod predict;
mod scripted;
mod semantics;
