//! What runs models: the [`Backend`] trait, and [`TfServing`], the client of
//! TensorFlow Serving.

mod backend;
mod error;
mod load_error;
pub mod metrics;
mod placeholder;
mod target;
mod tfserving;
pub mod wire;

pub use backend::{Backend, Call, ServedModel, ServingConfig, State, VersionStatus};
pub use error::{Error, ReloadError};
pub use load_error::LoadError;
/// What [`Backend::signature`] answers, for those who implement the trait.
pub use outrigger_proto::tensorflow::SignatureDef;
/// How the engine is reached.
pub use outrigger_rpc::{Endpoint, InvalidEndpoint, TransportError};
pub use placeholder::placeholder;
pub use target::Target;
pub use tfserving::{Config, TfServing};
