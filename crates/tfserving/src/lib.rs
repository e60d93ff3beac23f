//! TensorFlow Serving as an engine; no other crate depends on its details. The control plane uses
//! [`Engine`]; [`Client`] makes the calls; [`machine`] decides.

mod calls;
mod client;
mod describe;
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
pub use error::{InvalidConfig, ReloadError};
pub use framework::TENSORFLOW;
pub use interface::interface;
pub use load_error::LoadError;
pub use machine::EngineState;
/// The endpoint types used by the client's configuration.
pub use outrigger_rpc::{Endpoint, InvalidEndpoint, TransportError};
pub use placeholder::placeholder;
pub use saved_model::{SavedModelError, read_interface};
pub use target::Target;
