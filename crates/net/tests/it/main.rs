//! Sockets as a connection uses them.

mod cork;
mod traffic;
