//! The listener of a batch job: a status page in the look of `/ui`, changes of the job's settings,
//! and metrics.
//!
//! The page and the changes are for callers on the same machine, and changes need a token. The
//! metrics are for everybody who reaches the listener.

mod change;
pub mod metrics;
mod page;
mod routes;
mod serve;
mod token;

use std::{io, net::SocketAddr, path::PathBuf};

use outrigger_batch::{Store, Watch};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{
    page::Page,
    routes::{App, routes},
    token::Token,
};

/// The settings of a listener.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its address.
    pub address: SocketAddr,
    /// The file with the token that changes need; there are none if it is absent.
    pub token_file: Option<PathBuf>,
}

/// The reason why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("listen: {0}: {1}")]
    Address(SocketAddr, io::Error),
    /// The token cannot be used.
    #[error("token_file: {0}")]
    Token(String),
}

/// A worker of the job in this process, whose figures are newer than those of the store.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its progress.
    pub watch: Watch,
    /// The model of the job, for the metrics.
    pub model: String,
}

/// A listener that is bound and does not serve yet.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
}

impl Listener {
    /// Binds the address, and reads the token.
    ///
    /// # Errors
    /// The address or the token cannot be used.
    pub async fn bind(settings: Settings) -> Result<Self, Error> {
        let Settings { address, token_file } = settings;
        let token = Token::of(token_file).map_err(Error::Token)?;
        let failed = |error| Error::Address(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, token })
    }

    /// The address, with the port that the system chose if the settings have none.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the job in `store` until this is dropped. `worker` is the one in this process, if there
    /// is one: without it there are no metrics.
    pub async fn serve(self, store: Store, worker: Option<Worker>) {
        let Self { listener, token, .. } = self;
        let end = CancellationToken::new();
        // Streams of events end with the listener.
        let _ended = end.clone().drop_guard();
        let watch = worker.as_ref().map(|worker| worker.watch.clone());
        let page = Page::new(store.clone(), watch, token.is_set(), end.clone());
        let app = App::new(store, worker, token, page.feed().clone());
        tokio::join!(page.run(), serve::serve(listener, routes(app), end));
    }
}
