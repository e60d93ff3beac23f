//! The second lease of a request whose engine ended during the run.

use std::{pin::pin, sync::atomic::Ordering::Relaxed, time::Duration};

use outrigger_core::{EngineId, Failure};
use tokio::time::{Instant, timeout_at};

use super::{Handle, wait::answer_by};
use crate::lease::{Choice, Interrupted, Lease};

/// The time within which the return of an engine is noticed: a failed call causes a look at it.
const BACK: Duration = Duration::from_millis(100);

/// The time within which the end of an engine is noticed.
const NOTICED: Duration = Duration::from_secs(2);

impl Handle {
    /// Leases the same version again after the engine ended, once it is served again, outside of any
    /// trial. `None` if another version answers by then, or the engine stays away until the deadline.
    /// A call that the engine did not have when it ended waits no longer than other requests do:
    /// `unsent_since` is the time of its first attempt then.
    ///
    /// # Errors
    /// Those of [`Handle::acquire`].
    pub async fn again(
        &self,
        interrupted: &Interrupted,
        unsent_since: Option<Instant>,
        deadline: Instant,
    ) -> Result<Option<Lease>, Failure> {
        let mut again = pin!(self.again_by(interrupted, unsent_since.is_some(), deadline));
        let Some(since) = unsent_since else { return again.await };
        if let Ok(result) = timeout_at(since + self.shared.patience, again.as_mut()).await {
            return result;
        }
        let Interrupted { key, engine, selector, .. } = interrupted;
        let is_routed = self.try_acquire_by(&key.name, selector, Choice::Live).is_some();
        // Otherwise its version is being loaded.
        if is_routed || self.is_away(engine) { Ok(None) } else { again.await }
    }

    fn is_away(&self, engine: &EngineId) -> bool {
        self.models().engines.get(engine).is_some_and(|it| !it.reachable)
    }

    async fn again_by(
        &self,
        interrupted: &Interrupted,
        is_unsent: bool,
        deadline: Instant,
    ) -> Result<Option<Lease>, Failure> {
        let Interrupted { key, engine, selector, route } = interrupted;
        let is_away = || self.is_away(engine);
        let is_old = |lease: &Lease| lease.route.load(Relaxed) == *route;
        let acquire = || self.acquire_by(&key.name, selector, Choice::Live, deadline);
        let until = answer_by(deadline);
        let noticed = (Instant::now() + NOTICED).min(until);
        let mut routed = self.shared.routed.clone();
        // Routes are published before the state of the engines: one that is away and routed has been
        // away for long.
        let routed_now = || self.try_acquire_by(&key.name, selector, Choice::Live).is_some();
        let mut was_away = is_away() && (is_unsent || routed_now());
        loop {
            routed.mark_unchanged();
            let lease = acquire().await?;
            if lease.key != *key {
                return Ok(None);
            }
            if !is_old(&lease) {
                return Ok(Some(lease));
            }
            drop(lease);
            // If the engine did not end, but only its connection, the route stays.
            let stays = !is_away();
            let wait = match (was_away, stays) {
                // It may be back, and have refused the call before its return was noticed.
                (true, _) => (Instant::now() + BACK).min(until),
                (false, true) => noticed,
                (false, false) => until,
            };
            match timeout_at(wait, routed.changed()).await {
                Err(_) if stays || !is_away() => return acquire().await.map(Some),
                Err(_) => return Ok(None),
                Ok(_) => was_away = is_unsent && is_away(),
            }
        }
    }
}
