//! Errors of the server as a whole.

use std::io;

use outrigger_core::{EngineId, Failure, Reason};

use crate::{listen::BindError, live::FileError, logs, metrics::ExpositionError};

/// An error at the start of the server, or one that stops it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong: exit code 64.
    #[error(transparent)]
    Config(#[from] crate::config::Invalid),
    /// Logs could not be set up.
    #[error("logs could not be set up")]
    Logs(#[from] logs::Error),
    /// The recorder of metrics could not be installed.
    #[error("metrics could not be set up")]
    Metrics(#[from] ExpositionError),
    /// A listener could not bind its address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The files of a certificate or of tokens cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system provided no threads or sockets.
    #[error("{what}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The model store cannot be used.
    #[error("the model store cannot be used")]
    Store(#[from] outrigger_store::Error),
    /// The client of registries could not be made.
    #[error("the registry client could not be made")]
    Registry(#[from] outrigger_oci::Error),
    /// An engine could not be made.
    #[error("engine {engine} cannot be used")]
    Engine {
        /// The engine's name.
        engine: EngineId,
        /// The cause.
        source: Failure,
    },
    /// The exporter of traces could not be made.
    #[error("traces cannot be exported")]
    Traces(#[from] outrigger_trace::Error),
    /// The lifecycle of the models could not start.
    #[error("the models' lifecycle could not start")]
    Lifecycle(#[from] outrigger_lifecycle::Error),
    /// A task that must run as long as the server ended.
    #[error("{task} ended unexpectedly")]
    Ended {
        /// The name of the task.
        task: &'static str,
    },
}

impl Error {
    /// The stable reason of the error.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Store(error) => error.reason(),
            Self::Registry(error) => error.reason(),
            Self::Engine { source, .. } => source.reason,
            Self::Lifecycle(error) => error.reason(),
            Self::Config(_) => Reason::RequestMalformed,
            Self::Logs(_)
            | Self::Metrics(_)
            | Self::Traces(_)
            | Self::Bind(_)
            | Self::File(_)
            | Self::System { .. }
            | Self::Ended { .. } => Reason::Internal,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
