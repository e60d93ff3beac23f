//! Sockets that need fewer system calls, and threads that wake each other less.
//!
//! HTTP/2 as h2 writes it asks for every frame alone: an answer is written as one
//! piece and the ten bytes of its status as another, and what comes in is read up
//! to the end of a frame and then once more to learn that there is nothing left.
//! On a connection with many small answers most of the time goes there.
//!
//! - [`ReadAhead`] reads what has come in beyond what it is asked for, and knows
//!   from a short read that there is no more.
//! - [`Corked`] keeps small writes together until its [`Cork`] is pulled, which
//!   [`Cork::pulled_after`] does whenever the connection has done what it could.
//! - [`timeout_at`] sets deadlines without waking the runtime that it is called on.
//! - [`Workers`] are threads with a runtime each, over which connections are spread; how
//!   they are scheduled is their [`Scheduling`].

mod ahead;
mod cork;
mod deadline;
mod schedule;
mod stream;
mod workers;

pub use ahead::ReadAhead;
pub use cork::{Cork, Corked};
pub use deadline::timeout_at;
pub use schedule::Scheduling;
pub use stream::{Socket, Stream};
pub use workers::{Seat, Seats, Workers};
