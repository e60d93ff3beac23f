//! Separate runtimes for predictions, heavy requests, pulls and probes, so that a heavy request or a
//! pull cannot delay a prediction, and a prediction cannot delay a probe.

use std::{io, time::Duration};

use outrigger_net::lower_priority;
pub(crate) use outrigger_net::{Seats, Workers};
use tokio::runtime::{Builder, Runtime};

use crate::{Error, config};

/// The time that threads get to end after their work is done or abandoned.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// The runtimes of the process.
pub(crate) struct Runtimes {
    /// Runs predictions and the engine's connections; nothing on it blocks.
    pub(crate) serving: Workers,
    /// Runs heavy requests, at a lower priority.
    pub(crate) heavy: Runtime,
    /// Runs pulls, hashing, disk access, the reading of packages and the state machines of models, at
    /// a lower priority.
    pub(crate) lifecycle: Runtime,
    /// Runs the admin listener, and the order of start and stop.
    pub(crate) control: Runtime,
    /// Runs the health listener alone: a probe that is not answered in time has the pod restarted.
    pub(crate) health: Runtime,
}

impl Runtimes {
    /// Starts the threads; `threads` of them serve predictions.
    ///
    /// # Errors
    /// They cannot be created.
    pub(crate) fn build(config: &config::Server, threads: usize) -> Result<Self, Error> {
        let failed = Error::system;
        Ok(Self {
            serving: Workers::start(threads, config.scheduling.into())
                .map_err(failed("no threads for serving"))?,
            heavy: lower("heavy", threads).map_err(failed("no threads for heavy requests"))?,
            lifecycle: lower("lifecycle", 2).map_err(failed("no threads for lifecycle"))?,
            control: runtime("control", 1).map_err(failed("no threads for control"))?,
            health: runtime("health", 1).map_err(failed("no threads for health"))?,
        })
    }

    /// Ends all threads; work that still runs is abandoned.
    pub(crate) fn end(self) {
        self.serving.end(LAST_MOMENT);
        for runtime in [self.heavy, self.lifecycle, self.control, self.health] {
            runtime.shutdown_timeout(LAST_MOMENT);
        }
    }

    /// Abandons runtimes on which nothing has been started. It does not block, so it may be called
    /// in any context.
    pub(crate) fn abandon(self) {
        for runtime in [self.heavy, self.lifecycle, self.control, self.health] {
            runtime.shutdown_background();
        }
    }
}

/// A runtime whose threads get about a tenth of the processor's time while others need all of it.
///
/// # Errors
/// The threads cannot be created.
pub(crate) fn lower(name: &str, threads: usize) -> io::Result<Runtime> {
    let begin = || {
        if let Err(error) = lower_priority() {
            tracing::warn!(%error, "a thread has the priority of those that serve");
        }
    };
    builder(name, threads).on_thread_start(begin).build()
}

fn runtime(name: &str, threads: usize) -> io::Result<Runtime> {
    builder(name, threads).build()
}

fn builder(name: &str, threads: usize) -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name).enable_all();
    builder
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[tokio::test]
    async fn threads_of_a_lower_priority_are_the_only_ones() {
        let lower = lower("lower", 1).unwrap();
        let priority = || getpriority_process(None).unwrap();
        let here = priority();
        let running = lower.spawn(async move { priority() }).await.unwrap();
        let blocking = lower.spawn_blocking(priority).await.unwrap();
        assert_eq!((running, blocking), (here.max(10), here.max(10)));
        assert_eq!(priority(), here);
        lower.shutdown_background();
    }
}
