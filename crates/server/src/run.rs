//! The life of the process: an ordered start, service, and an ordered stop.

use std::{
    io,
    thread::{self, JoinHandle},
};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    config::{Config, Kinds},
    logs,
    metrics::{self, Exposition},
    runtimes::Runtimes,
    security::Security,
    supervise::{Stop, supervise},
    wiring::{self, Addresses, Listeners},
};

/// A server that has been started. Dropping it requests the stop, but does not wait for it.
#[derive(Debug)]
pub struct Running {
    addresses: Addresses,
    stop: Stop,
    ended: CancellationToken,
    supervisor: Option<JoinHandle<Result<(), Error>>>,
}

/// Serves until the process receives SIGTERM or SIGINT. Engines are of `kinds`.
///
/// # Errors
/// The server cannot start, or a part of it ended before the stop was requested.
pub fn run(config: Config, kinds: &Kinds) -> Result<(), Error> {
    logs::start(&config.log)?;
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let waiting = waiting.map_err(Error::system("no runtime to wait for signals"))?;
    // The handlers are installed before the start, so that a signal during it is not lost.
    let signals = waiting.block_on(async { Signals::listen() });
    let signals = signals.map_err(Error::system("signals cannot be heard"))?;
    let running = start(config, kinds)?;
    waiting.block_on(running.ended.run_until_cancelled(signals.pass_on(&running.stop)));
    running.join()
}

/// Starts a server with engines of `kinds`. Returns once its addresses are bound and its parts are connected; models come
/// up afterwards.
///
/// # Errors
/// An address, the store or the threads cannot be had.
pub fn start(config: Config, kinds: &Kinds) -> Result<Running, Error> {
    config.validate(kinds)?;
    let exposition = Exposition::install()?;
    outrigger_lifecycle::limit_models(config.metrics.max_models as usize);
    let security = Security::open(&config)?;
    let listeners = Listeners::bind(&config, &security)?;
    let addresses = listeners.addresses()?;
    let runtimes = Runtimes::build(&config.server)?;
    let (parts, service) = match wiring::connect(&config, kinds, &runtimes, exposition, security) {
        Ok(parts) => parts,
        Err(error) => {
            runtimes.abandon();
            return Err(error);
        }
    };
    metrics::begin();
    let Addresses { grpc, http, health, admin } = addresses;
    tracing::info!(%grpc, %http, %health, %admin, version = env!("CARGO_PKG_VERSION"), "listening");
    let (stop, ended) = (Stop::default(), CancellationToken::new());
    let supervisor = {
        let (stop, ended) = (stop.clone(), ended.clone().drop_guard());
        let supervise = move || {
            let _ended = ended;
            let supervised = supervise(&config, &runtimes, parts, service, listeners, &stop);
            let result = runtimes.control.block_on(supervised);
            runtimes.end();
            result
        };
        let thread = thread::Builder::new().name("supervisor".to_owned()).spawn(supervise);
        thread.map_err(Error::system("no thread for the supervisor"))?
    };
    Ok(Running { addresses, stop, ended, supervisor: Some(supervisor) })
}

impl Running {
    /// The addresses of the listeners.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Requests an ordered stop within the grace period.
    pub fn stop(&self) {
        self.stop.gently.cancel();
    }

    /// Returns when the server has stopped, for any reason. After that [`Self::join`] does not
    /// block.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Blocks the thread until the server has stopped.
    ///
    /// # Errors
    /// A part of the server ended before the stop was requested.
    pub fn join(mut self) -> Result<(), Error> {
        let supervisor = self.supervisor.take().expect("taken only here");
        supervisor.join().unwrap_or(Err(Error::Ended { task: "the supervisor" }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            self.stop.gently.cancel();
            self.stop.now.cancel();
        }
    }
}

/// The signals that stop the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Handles signals: the first one stops the server in order, the second one at once. Further
    /// ones are ignored.
    async fn pass_on(mut self, stop: &Stop) {
        for token in [&stop.gently, &stop.now] {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
            };
            tracing::info!(
                signal = name,
                at_once = stop.gently.is_cancelled(),
                "received a signal to stop"
            );
            token.cancel();
        }
        std::future::pending().await
    }
}
