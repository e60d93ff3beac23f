//! The listener of a job: its flags, and the time that it serves.

use std::{net::SocketAddr, path::PathBuf};

use outrigger_batch::{Job, Store};
use outrigger_batch_ui::{Error, Listener, Settings, Worker};

use crate::exit::Exit;

/// The flags of the listener.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Flags {
    /// The address of the status page and the metrics, such as 127.0.0.1:9910. The page is for
    /// callers on this machine, /metrics for all [default: none].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The file with the token that changes on the status page need [default: there are no changes].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Flags {
    /// Replaces the job's keys by the flags that are given.
    pub(super) fn apply(self, job: &mut Job) {
        job.listen = self.listen.or(job.listen);
        job.token_file = self.token_file.or(job.token_file.take());
    }

    /// The settings of a listener without a job's keys.
    pub(super) fn settings(self) -> Option<Settings> {
        settings(self.listen, self.token_file)
    }
}

/// The settings of a job's listener.
pub(super) fn settings_of(job: &Job) -> Option<Settings> {
    settings(job.listen, job.token_file.clone())
}

fn settings(listen: Option<SocketAddr>, token_file: Option<PathBuf>) -> Option<Settings> {
    listen.map(|address| Settings { address, token_file })
}

/// Binds a listener, and prints the address of its page.
pub(super) async fn bind(settings: Settings) -> Result<Listener, Exit> {
    let listener = Listener::bind(settings).await.map_err(|error| match error {
        Error::Token(_) => Exit::usage(error),
        Error::Address(..) => Exit::failed(error),
    })?;
    eprintln!("status page: http://{}/ui", listener.address());
    Ok(listener)
}

/// Carries out `work`, and serves the job's page meanwhile if there is a listener.
pub(super) async fn beside<T>(
    listener: Option<Listener>,
    (store, worker): (Store, Option<Worker>),
    work: impl Future<Output = T>,
) -> T {
    let Some(listener) = listener else { return work.await };
    tokio::select! {
        done = work => done,
        () = listener.serve(store, worker) => unreachable!("a listener serves until it is dropped"),
    }
}
