//! The seam between the control plane and the engines that run models.
//!
//! [`Run`] is what requests have: one loaded version that turns tensors into tensors.
//! [`Engine`] is what the lifecycle of models has: it takes and sends the messages of
//! [`outrigger_core::engine`]. A [`Framework`] says what a model package of one kind
//! holds. [`local`] makes an engine in this process out of a function that loads a
//! directory.

mod clock;
mod engine;
mod error;
mod framework;
pub mod local;
mod run;

pub use clock::Clock;
pub use engine::{Adopted, Engine, Event, Failed, Location, Start, Target};
pub use error::RunError;
pub use framework::Framework;
pub use run::{Call, Run};
