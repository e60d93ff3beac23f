//! The second lease of a request whose engine ended during the run.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use outrigger_core::Failure;
use tokio::time::{Instant, timeout_at};

use super::{Handle, wait::answer_by};
use crate::lease::{Choice, Interrupted, Lease};

/// The time within which the return of an engine is noticed: a failed call causes a look at it.
const BACK: Duration = Duration::from_millis(100);

/// The time within which the end of an engine is noticed.
const NOTICED: Duration = Duration::from_secs(2);

impl Handle {
    /// Leases the same version again after the engine ended, once it is served again, outside of any
    /// trial. `None` if another version answers by then, or the engine stays away until the deadline,
    /// or the request was sent although the engine had been away for long.
    ///
    /// # Errors
    /// Those of [`Handle::acquire`].
    pub async fn again(
        &self,
        interrupted: &Interrupted,
        deadline: Instant,
    ) -> Result<Option<Lease>, Failure> {
        let Interrupted { key, engine, selector, route } = interrupted;
        let is_away = || self.models().engines.get(engine).is_some_and(|it| !it.reachable);
        let is_old = |lease: &Lease| lease.route.load(Relaxed) == *route;
        let acquire = || self.acquire_by(&key.name, selector, Choice::Live, deadline);
        let until = answer_by(deadline);
        let noticed = (Instant::now() + NOTICED).min(until);
        let mut routed = self.shared.routed.clone();
        // Routes are published before the state of the engines.
        let was_away = is_away();
        let routed_now = self.try_acquire_by(&key.name, selector, Choice::Live);
        if was_away && routed_now.is_some_and(|lease| lease.is_ok_and(|lease| is_old(&lease))) {
            // The engine may have come back and refused the call, before its return was noticed.
            let back = (Instant::now() + BACK).min(until);
            if timeout_at(back, routed.changed()).await.is_err() {
                return Ok(None);
            }
        }
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
            let wait = if stays { noticed } else { until };
            match timeout_at(wait, routed.changed()).await {
                Err(_) if stays => {
                    return acquire().await.map(Some);
                }
                Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }
}
