//! Sockets that need fewer system calls, and threads that wake each other less.
//!
//! The crate h2 issues a system call for every HTTP/2 frame: an answer is written as one piece and
//! the ten bytes of its status as another; input is read to the end of a frame, and then once more
//! to find that nothing is left. On a connection with many small answers, most of the time is spent
//! there.
//!
//! - [`ReadAhead`] reads all available bytes, beyond those asked for, and concludes from a short
//!   read that no more are available.
//! - [`Corked`] combines small writes until its [`Cork`] is pulled, which [`Cork::pulled_after`]
//!   does after each poll of the connection.
//! - [`timeout_at`] sets deadlines without waking the runtime that it is called on.
//! - [`Workers`] are threads with a runtime each, over which connections are distributed;
//!   [`Scheduling`] is how the kernel schedules them, and [`lower_priority`] is for other threads.
//! - [`run_beside`] runs work on such a thread, and lets another one serve the connections if the
//!   work takes long.

mod ahead;
mod cork;
mod deadline;
mod relief;
mod schedule;
mod stream;
mod workers;

pub use ahead::ReadAhead;
pub use cork::{Cork, Corked};
pub use deadline::timeout_at;
pub use relief::run_beside;
pub use schedule::{Scheduling, lower_priority};
pub use stream::{Socket, Stream};
pub use workers::{Seat, Seats, Workers};
