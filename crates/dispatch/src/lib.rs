//! Gives the rows of a table to the hosts that serve a model: which host gets which rows, and when;
//! what follows from the end of each call.
//!
//! [`Dispatcher`] is a state machine without I/O, threads or a clock. Its caller adds batches of rows,
//! sends the calls that [`Dispatcher::next`] returns, reports their ends with
//! [`Dispatcher::ended`], and asks again at [`Dispatcher::wake_at`]. The same inputs with the same
//! seed give the same calls.
//!
//! - **Hosts pull.** A host that has a place free gets the next rows. Its places are bounded by its
//!   limiter ([`outrigger_resilience::Adaptive`]), by the user's [`Limits`], by its circuit breaker
//!   ([`outrigger_resilience::Ejection`]) and by the pauses that it asks for. A failed call keeps its
//!   place until a success would have ended, so a host that fails fast gets no more calls than one
//!   that works.
//! - **Rows are judged by evidence.** A failure that may be the fault of the rows is held against
//!   them only if the host then succeeds on other rows, and against the host if it does not. Rows
//!   that have failed on two hosts are cut in two, down to the rows at fault, which are dead. Rows
//!   that may have ended two hosts are never sent to a third one. Hosts that are away are no evidence.
//!   A failure that may pass is none either, unless it comes again and again for the same rows.
//! - **Nothing is lost.** Each row of each batch is settled once: scored or dead. Rows to be sent
//!   again have a queue of their own, so no full queue keeps them out.

mod call;
mod dispatcher;
mod ends;
mod errors;
mod evidence;
mod fate;
mod host;
mod next;
mod pace;
mod piece;
mod pool;
mod rate;
mod settings;
mod status;

pub use self::{
    call::{
        BatchId, Call, CallId, Dead, End, Failure, HostId, Purpose, Reason, Scored, Settled, Stop,
    },
    dispatcher::Dispatcher,
    host::{Bound, Hold, Totals},
    rate::RateCap,
    settings::{Limits, MaxErrors, Settings, Share},
    status::{Breaker, HostStatus, Status},
};
