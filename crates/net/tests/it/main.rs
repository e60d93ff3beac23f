//! Tests of the sockets with real connections.

mod cork;
mod traffic;
