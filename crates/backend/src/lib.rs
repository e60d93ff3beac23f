//! What runs models: the [`Backend`] trait, and [`TfServing`], the client of
//! TensorFlow Serving.

mod backend;
mod error;
pub mod metrics;
mod placeholder;
mod tfserving;
pub mod wire;

pub use backend::{Backend, Call, ServedModel, ServingConfig, State, VersionStatus};
pub use error::{Error, ReloadError};
pub use placeholder::placeholder;
pub use tfserving::{Config, Endpoint, InvalidEndpoint, TfServing, TransportError};
