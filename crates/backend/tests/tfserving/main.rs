//! The client against a fake TensorFlow Serving, over TCP and unix sockets.

mod control;
mod harness;
mod outage;
mod predict;
mod semantics;
