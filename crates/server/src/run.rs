//! The life of the process: an ordered start, service, and an ordered stop.

use std::{
    io,
    thread::{self, JoinHandle},
};

use outrigger_ui::{Cpus, Reload};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    config::{Config, Kinds, Source},
    cpus, logs,
    metrics::{self, Exposition},
    reload::Reloads,
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
    reloads: Reloads,
    ended: CancellationToken,
    supervisor: Option<JoinHandle<Result<(), Error>>>,
}

/// Serves until the process receives SIGTERM or SIGINT. The configuration is reloaded from `source`
/// when its file changes, and on SIGHUP.
///
/// # Errors
/// The server cannot start, or a part of it ended before the stop was requested.
pub fn run(config: Config, source: Source) -> Result<(), Error> {
    logs::start(&config.log)?;
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let waiting = waiting.map_err(Error::system("no runtime to wait for signals"))?;
    // The handlers are installed before the start, so that a signal during it is not lost.
    let signals = waiting.block_on(async { Signals::listen() });
    let signals = signals.map_err(Error::system("signals cannot be heard"))?;
    let running = start_reloading(config, source)?;
    waiting.block_on(running.ended.run_until_cancelled(signals.pass_on(&running)));
    running.join()
}

/// Starts a server with engines of `kinds`. Returns once its addresses are bound and its parts are connected; models come
/// up afterwards.
///
/// # Errors
/// An address, the store or the threads cannot be had.
pub fn start(config: Config, kinds: &Kinds) -> Result<Running, Error> {
    start_from(config, kinds, None)
}

/// Starts a server as [`start`] does. Its configuration was loaded from `source`, and is reloaded
/// when the file changes.
///
/// # Errors
/// Those of [`start`].
pub fn start_reloading(config: Config, source: Source) -> Result<Running, Error> {
    let kinds = source.kinds().clone();
    start_from(config, &kinds, Some(source))
}

fn start_from(config: Config, kinds: &Kinds, source: Option<Source>) -> Result<Running, Error> {
    config.validate(kinds)?;
    let exposition = Exposition::install()?;
    outrigger_lifecycle::limit_models(config.metrics.max_models as usize);
    let security = Security::open(&config)?;
    let listeners = Listeners::bind(&config, &security)?;
    let addresses = listeners.addresses()?;
    let Cpus { cores, quota, threads } = cpus::detect(config.server.threads);
    let runtimes = Runtimes::build(&config.server, threads)?;
    let (parts, service) = match wiring::connect(&config, kinds, &runtimes, exposition, security) {
        Ok(parts) => parts,
        Err(error) => {
            runtimes.abandon();
            return Err(error);
        }
    };
    metrics::begin();
    tracing::info!(cores, quota, threads, "the processors of this process");
    let Addresses { grpc, http, health, admin, xgboost_serving } = addresses;
    let xgboost_serving = xgboost_serving.map(tracing::field::display);
    tracing::info!(%grpc, %http, %health, %admin, xgboost_serving, version = env!("CARGO_PKG_VERSION"), "listening");
    let reloads = parts.reloads.clone();
    let (stop, ended) = (Stop::default(), CancellationToken::new());
    let supervisor = {
        let (stop, ended) = (stop.clone(), ended.clone().drop_guard());
        let supervise = move || {
            let _ended = ended;
            let supervised = supervise(config, source, &runtimes, parts, service, listeners, &stop);
            let result = runtimes.control.block_on(supervised);
            runtimes.end();
            result
        };
        let thread = thread::Builder::new().name("supervisor".to_owned()).spawn(supervise);
        thread.map_err(Error::system("no thread for the supervisor"))?
    };
    Ok(Running { addresses, stop, reloads, ended, supervisor: Some(supervisor) })
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

    /// The last reload of the configuration, now and after every change; `None` before the first.
    pub fn last_reload(&self) -> watch::Receiver<Option<Reload>> {
        self.reloads.last()
    }

    /// Requests a reload of the configuration, even if its file has not changed.
    pub fn reload(&self) {
        self.reloads.request();
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

/// The signals that the process handles.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Handles signals: SIGHUP reloads the configuration. The first one to stop stops the server in
    /// order, the second one at once; further ones are ignored.
    async fn pass_on(mut self, running: &Running) {
        let stop = &running.stop;
        for token in [&stop.gently, &stop.now] {
            let name = loop {
                tokio::select! {
                    _ = self.terminate.recv() => break "SIGTERM",
                    _ = self.interrupt.recv() => break "SIGINT",
                    _ = self.hangup.recv() => running.reload(),
                }
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
