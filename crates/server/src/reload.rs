//! Reloads the configuration at run time: a change takes effect completely or not at all.

mod reloads;

#[cfg(test)]
mod tests;

use std::fmt;

use outrigger_lifecycle::{self as lifecycle, Handle};
use outrigger_ui::Reload;
use tokio::{
    task::{JoinError, spawn_blocking},
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::reloads::Reloads;
use crate::{
    config::{Change, Config, Invalid, Source},
    live::{self, FileError},
    metrics::{self, ReloadOutcome as Outcome},
    request_limits::RequestLimits,
    wiring,
};

/// The reason why a changed configuration is not applied.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("a restart is needed for {0}")]
    Fixed(Fixed),
    #[error(transparent)]
    Models(#[from] lifecycle::Error),
}

/// The part of the server that accepts new models and settings at run time.
pub(crate) trait Models: Send + 'static {
    /// Replaces the models and their settings: all of them, or nothing.
    fn reconfigure(
        &self,
        tunables: lifecycle::Tunables,
    ) -> impl Future<Output = Result<(), lifecycle::Error>> + Send;
}

impl Models for Handle {
    fn reconfigure(
        &self,
        tunables: lifecycle::Tunables,
    ) -> impl Future<Output = Result<(), lifecycle::Error>> + Send {
        self.reconfigure(tunables)
    }
}

/// Changed settings that do not reload.
#[derive(Debug)]
struct Fixed(Vec<Change>);

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.0.iter().map(|change| format!("{} ({})", change.key, change.kind));
        f.write_str(&named.collect::<Vec<_>>().join(", "))
    }
}

/// A state of the file: its text, or the reason why it cannot be read.
type Look = Result<Option<String>, FileError>;

/// Reloads the configuration.
pub(crate) struct Reloader<M> {
    source: Source,
    /// The configuration in force.
    config: Config,
    models: M,
    limits: RequestLimits,
    reloads: Reloads,
    /// The state of the file that was tried last.
    tried: Look,
    /// The latest state of the file.
    seen: Look,
}

impl<M: Models> Reloader<M> {
    /// Creates a reloader of the configuration in force, which was loaded from `source`.
    pub(crate) fn new(
        source: Source,
        config: Config,
        models: M,
        limits: RequestLimits,
        reloads: Reloads,
    ) -> Self {
        let text = Ok(source.text().map(ToOwned::to_owned));
        metrics::config_reloads_begin();
        Self { source, config, models, limits, reloads, tried: text.clone(), seen: text }
    }

    /// Reloads when the file has changed or a reload is requested, until `end`.
    ///
    /// # Errors
    /// A defect: the task that reads the file panicked.
    pub(crate) async fn run(mut self, end: CancellationToken) -> Result<(), JoinError> {
        let (reloads, mut ticks) = (self.reloads.clone(), interval(live::EVERY));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_requested = tokio::select! {
                biased;
                () = end.cancelled() => return Ok(()),
                () = reloads.requested() => true,
                _ = ticks.tick() => false,
            };
            let source = self.source.clone();
            let look = spawn_blocking(move || source.read()).await?;
            if self.has_changed(&look) || is_requested {
                self.reload(look).await;
            }
        }
    }

    /// Whether the file has changed since the last attempt, and is at rest: editors that truncate
    /// a file before they write it must not make its first half the configuration.
    fn has_changed(&mut self, look: &Look) -> bool {
        let is_at_rest = self.seen == *look;
        self.seen.clone_from(look);
        is_at_rest && self.tried != *look
    }

    async fn reload(&mut self, look: Look) {
        self.tried.clone_from(&look);
        let result = self.attempt(look).await;
        let outcome = match &result {
            Ok(changes) if changes.is_empty() => Outcome::Unchanged,
            Ok(_) => Outcome::Ok,
            Err(Error::Fixed(_) | Error::Models(_)) => Outcome::Refused,
            Err(Error::File(_) | Error::Invalid(_)) => Outcome::Invalid,
        };
        match &result {
            Ok(changes) if changes.is_empty() => tracing::debug!("the configuration is unchanged"),
            Ok(changes) => {
                let keys: Vec<_> = changes.iter().map(|change| change.key.as_str()).collect();
                tracing::info!(changed = keys.join(", "), "the configuration was reloaded");
            }
            Err(error) => {
                let outcome = outcome.as_str();
                tracing::warn!(outcome, %error, "refused to reload: the previous configuration stays");
            }
        }
        metrics::config_reloaded(outcome);
        let error = result.err().map(|error| error.to_string());
        self.reloads.set_last(Reload::new(outcome.as_str(), error));
    }

    /// Brings the configuration with this text into force; returns the changes.
    async fn attempt(&mut self, look: Look) -> Result<Vec<Change>, Error> {
        let config = self.source.parse(look?.as_deref())?.config;
        let changes = self.config.changes(&config);
        let fixed: Vec<_> = changes.iter().filter(|change| !change.reloads).cloned().collect();
        if !fixed.is_empty() {
            return Err(Error::Fixed(Fixed(fixed)));
        }
        // The lifecycle is reconfigured first, because it is the only part that can still refuse.
        let tunables = wiring::tunables(&config);
        if tunables != wiring::tunables(&self.config) {
            self.models.reconfigure(tunables).await?;
        }
        self.limits.apply(&config);
        self.config = config;
        Ok(changes)
    }
}
