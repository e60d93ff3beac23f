//! The interface between the control plane and the engines that run models.
//!
//! Requests use [`Run`]: one loaded version that maps tensors to tensors. The lifecycle of models
//! uses [`Engine`], which receives and sends the messages of [`outrigger_core::engine`]. A
//! [`Framework`] describes one kind of model package. [`local`] builds an engine in this process
//! from a function that loads a model. [`Pace`] estimates whether the next run of a model is
//! short, so that an engine knows whether to run it on the thread that serves the request.
//! [`StageTimes`] are the times of a run's stages.

mod clock;
mod engine;
mod error;
mod framework;
pub mod local;
mod pace;
mod packaged;
mod run;
mod stages;

pub use clock::Clock;
pub use engine::{Adopted, Engine, Event, Failed, Location, RowLayout, Start, Target};
pub use error::RunError;
pub use framework::{Framework, layouts, memory_to_read, remarks};
pub use pace::Pace;
pub use packaged::PackagedModel;
pub use run::{Call, Run};
pub use stages::StageTimes;
