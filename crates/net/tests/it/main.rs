//! Tests of the sockets with real connections.

mod cork;
mod scatter;
mod traffic;
