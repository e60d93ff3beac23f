//! What runs models: the [`Backend`] trait, and [`TfServing`], the client of
//! TensorFlow Serving.

mod backend;
mod error;
mod interface;
mod load_error;
pub mod metrics;
mod placeholder;
mod saved_model;
mod target;
mod tfserving;
pub mod wire;

/// The framework of the models that TensorFlow Serving runs, as metadata.json
/// names it.
pub const FRAMEWORK: &str = "tensorflow";

pub use backend::{Backend, Call, ServedModel, ServingConfig, State, VersionStatus};
pub use error::{Error, ReloadError};
pub use interface::interface;
pub use load_error::LoadError;
/// How the engine is reached.
pub use outrigger_rpc::{Endpoint, InvalidEndpoint, TransportError};
pub use placeholder::placeholder;
pub use saved_model::{SavedModelError, read_interface};
pub use target::Target;
pub use tfserving::{Config, TfServing};
