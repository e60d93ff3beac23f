//! TensorFlow Serving as an engine: everything that knows it. [`Engine`] is what the
//! control plane has; [`Client`] makes the calls; [`machine`] decides.

mod calls;
mod client;
pub mod engine;
mod error;
mod framework;
mod interface;
mod load_error;
pub mod machine;
pub mod metrics;
mod placeholder;
mod saved_model;
mod target;
pub mod wire;

pub use calls::{Call, ServedModel, ServingConfig, VersionStatus};
pub use client::{Client, Config};
pub use engine::{Engine, Settings};
pub use error::{Error, ReloadError};
pub use framework::TENSORFLOW;
pub use interface::interface;
pub use load_error::LoadError;
pub use machine::EngineState;
/// How the engine is reached.
pub use outrigger_rpc::{Endpoint, InvalidEndpoint, TransportError};
pub use placeholder::placeholder;
pub use saved_model::{SavedModelError, read_interface};
pub use target::Target;
