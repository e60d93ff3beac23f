//! How the server as a whole fails.

use std::io;

use outrigger_core::Reason;

use crate::{listen::BindError, live::FileError, logs, metrics::ExpositionError};

/// Why the server could not start, or stopped before it was told to.
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
    /// An address is not to be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The files of a certificate or of tokens cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Threads or sockets are not to be had.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The model store cannot be used.
    #[error("the model store cannot be used")]
    Store(#[from] outrigger_store::Error),
    /// The client of registries could not be made.
    #[error("the registry client could not be made")]
    Registry(#[from] outrigger_oci::Error),
    /// The engine's client could not be made.
    #[error("the engine's client could not be made")]
    Engine(#[from] outrigger_tfserving::Error),
    /// The exporter of traces could not be made.
    #[error("traces cannot be exported")]
    Traces(#[from] outrigger_trace::Error),
    /// Models could not be taken charge of.
    #[error("the models' lifecycle could not start")]
    Lifecycle(#[from] outrigger_lifecycle::Error),
    /// A task that must run for as long as the server has ended.
    #[error("{task} ended unexpectedly")]
    Ended {
        /// Which.
        task: &'static str,
    },
}

impl Error {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Store(error) => error.reason(),
            Self::Registry(error) => error.reason(),
            Self::Engine(error) => error.reason(),
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
