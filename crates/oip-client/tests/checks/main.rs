//! The checks of clients of the Open Inference Protocol, each against a scripted server that has the
//! quirk of a known one. The number of a test is that of its check.

mod failures;
mod forms;
mod grpc;
mod harness;
mod hosts;
mod memory;
mod replies;
mod sockets;
mod tls;
