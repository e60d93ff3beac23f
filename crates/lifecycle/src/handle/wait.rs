//! The wait of a request for a version that is not served yet.

use std::{sync::Arc, time::Duration};

use outrigger_core::{Failure, ModelName, Reason, Selector};
use tokio::time::{Instant, timeout_at};

use super::{Handle, stopping};
use crate::{
    lease::{Choice, Lease, Using},
    routes::Route,
};

impl Handle {
    /// Asks for a version, and waits for it.
    pub(super) async fn wait(
        &self,
        model: &ModelName,
        selector: &Selector,
        choice: Choice<'_>,
        deadline: Instant,
    ) -> Result<Lease, Failure> {
        self.ask(model, selector)?;
        let refused = |handle: &Self| handle.refuse_unknown(model, selector);
        self.wait_until_up(model, selector, choice, deadline, refused).await
    }

    /// Waits for a version that was asked for, unless the request for it is `refused` meanwhile.
    pub(super) async fn wait_until_up(
        &self,
        model: &ModelName,
        selector: &Selector,
        choice: Choice<'_>,
        deadline: Instant,
        refused: impl Fn(&Self) -> Option<Result<Lease, Failure>>,
    ) -> Result<Lease, Failure> {
        // The subscription comes before the look-up, so that no publication is missed.
        let mut routed = self.shared.routed.clone();
        routed.mark_unchanged();
        let answer = || self.find(model, selector, choice).or_else(|| refused(self));
        if let Some(result) = answer() {
            return result;
        }
        let until = answer_by(deadline);
        let mut waiting: Option<Using> = None;
        loop {
            let found = self.waiting_for(model, selector);
            if waiting.is_some() && found.is_none() {
                // The tag was forgotten to make room for others.
                self.ask(model, selector)?;
            }
            waiting = found;
            if let Some(failure) = self.hopeless(model, selector, until) {
                return Err(failure);
            }
            match timeout_at(until, routed.changed()).await {
                Err(_) => return Err(self.late(model, selector)),
                Ok(Err(_)) => return Err(stopping()),
                Ok(Ok(())) => {}
            }
            if let Some(result) = answer() {
                return result;
            }
        }
    }

    /// Marks the selector as in use while a request waits for it, so that it does not become idle.
    fn waiting_for(&self, model: &ModelName, selector: &Selector) -> Option<Using> {
        let routes = self.shared.routes.load();
        let asked = &routes.find(model, selector)?.asked;
        Some(Using::new(Arc::clone(asked), self.shared.clock))
    }

    /// The failure of a version whose next attempt is not before `until`, or not soon.
    fn hopeless(&self, model: &ModelName, selector: &Selector, until: Instant) -> Option<Failure> {
        let routes = self.shared.routes.load();
        let Route::Retrying(failure, at) = &routes.find(model, selector)?.route else {
            return None;
        };
        let soon = until.min(Instant::now() + self.shared.patience);
        let retry_at = self.shared.clock.instant(*at);
        let wait = retry_at.saturating_duration_since(Instant::now());
        (retry_at > soon).then(|| failure.clone().retry_after(wait))
    }

    /// The failure for a caller whose wait has ended.
    fn late(&self, model: &ModelName, selector: &Selector) -> Failure {
        let routes = self.shared.routes.load();
        match routes.find(model, selector).map(|entry| &entry.route) {
            Some(Route::Waiting(Some(failure)) | Route::Refused(failure)) => failure.clone(),
            Some(Route::Retrying(failure, _)) => failure.clone().retry_after(RETRY_LOADING),
            _ => Failure::new(Reason::ModelLoading, format!("{model}{selector} is being loaded"))
                .retry_after(RETRY_LOADING),
        }
    }
}

/// The retry delay for a model on its way: a pull and a load rarely take less.
const RETRY_LOADING: Duration = Duration::from_secs(2);

/// The deadline for the answer: leaves a tenth of the time, at most 50 ms, to send it.
pub(super) fn answer_by(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    deadline - (left / 10).min(Duration::from_millis(50))
}
