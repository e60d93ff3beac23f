//! Canaries whose tag is taken out of the registry.

use std::sync::Arc;

use outrigger_core::{
    Digest, Failure, Moment,
    fleet::{Event, TagKey},
    tags,
};

use crate::{
    jobs::{
        Done,
        removal::{self, is_not_found},
    },
    service::Service,
    world::defect,
};

const WHY: &str = "the canary's tag was removed";

impl Service {
    /// Makes sure of it where a tag that named a canary was not found.
    pub(super) fn look_for_removal(&mut self, canary_tag: &TagKey) {
        let Some(tag) = self.fleet.tag(canary_tag) else { return };
        let lost = tag.trouble().is_some_and(|trouble| is_not_found(trouble.failure.reason));
        let Some(live) = self.fleet.accompanied(canary_tag).filter(|_| lost) else { return };
        if tag.canary().is_none() {
            return;
        }
        let found_at = tag.checked_at();
        let (world, canary, live) = (Arc::clone(&self.world), canary_tag.clone(), live.clone());
        let done = {
            let canary = canary.clone();
            move |result| Done::Missed { canary, found_at, result }
        };
        self.jobs.start(done.clone()(Err(defect())), async move {
            done(removal::look(&world, &canary, &live).await)
        });
    }

    /// What came of that, for a tag that was last found at `found_at`.
    pub(in crate::service) fn missed(
        &mut self,
        canary_tag: &TagKey,
        found_at: Option<Moment>,
        result: Result<Option<Digest>, Failure>,
    ) {
        // It may have been found again meanwhile.
        let Some(tag) = self.fleet.tag(canary_tag).filter(|it| it.checked_at() == found_at) else {
            return;
        };
        let Some(canary) = tag.canary() else { return };
        let Some(live) = self.fleet.accompanied(canary_tag).cloned() else { return };
        let named = match result {
            Ok(named) => named,
            Err(failure) => {
                tracing::warn!(
                    model.name = %live.name, model.tag = %canary_tag.tag,
                    reason = %failure.reason, error = %failure.message,
                    "the canary's tag is not found, and perhaps not gone: its trial goes on"
                );
                return;
            }
        };
        if named == Some(canary) && self.is_tried(&live, canary) {
            // Promoted, and cleared up behind: the trial ends with the live tag's move.
            return self.apply(Event::Tag(live, tags::Event::Retry));
        }
        let running = self.canaries.trials.get(&live).filter(|it| it.canary_tag == *canary_tag);
        match running.map(|running| running.promotion.retract()) {
            // It is being promoted, or was: the next look knows more.
            Some(false) => return,
            Some(true) => self.supersede(&live, WHY),
            None if self.waits(&live, canary) => self.supersede_waiting(&live, WHY),
            None => {}
        }
        // Who asks for it by its name is still answered.
        let used = self.used(self.clock.now());
        self.apply(used);
        self.apply(Event::Tag(canary_tag.clone(), tags::Event::Removed));
    }

    /// Whether a trial of that canary runs, or waits to go on.
    fn is_tried(&self, live: &TagKey, canary: Digest) -> bool {
        let running = self.canaries.trials.get(live);
        running.is_some_and(|it| it.pair.canary == canary) || self.waits(live, canary)
    }

    fn waits(&self, live: &TagKey, canary: Digest) -> bool {
        let waiting = self.canaries.unfinished.get(live);
        waiting.is_some_and(|it| it.pair.canary == canary)
    }
}
