//! The publication of changes: what is shown has happened, and the next process knows it.

use std::collections::BTreeSet;

use outrigger_core::{ModelName, Moment};

use super::Service;
use crate::{
    journal::Changes,
    publishing::{Publishing, inputs::Inputs},
};

/// A publication under way.
struct Publication {
    now: Moment,
    /// The models that may have changed.
    changed: BTreeSet<ModelName>,
    /// The routing table is another one.
    is_routed: bool,
}

type Step = fn(&mut Service, &mut Publication);

/// The steps of a publication once the journal has the state. Their order is a contract: requests
/// are answered by the new routes before anybody can learn of the change, from a log, a metric, a
/// trace, another control plane, a list, a page or an answer.
const STEPS: [Step; 9] = [
    // Requests get the new routes.
    Service::route,
    // Data and files that only the old routes or the old journal needed may go.
    Service::release,
    // Directories of versions select others in place of those that cannot be served.
    Service::select,
    // Log lines, audit lines, counts and traces say that it happened.
    Service::report,
    // The registry, and other control planes through it, learn of decisions.
    Service::push,
    // ListCanaries and the page show the canaries and the decisions.
    Service::show_canaries,
    // ListModels, WatchModels, health and the page show the models.
    Service::show_models,
    // Requests that waited see the routes: a caller finds its version in the lists.
    Service::wake,
    // Callers who asked for the changes get their answers.
    Service::answer,
];

impl Service {
    /// Lets trials begin and end after an event, and collects its changes. Only the models that
    /// changed are processed, so that no model can slow another.
    pub(super) fn collect(&mut self) {
        let now = self.clock.now();
        let mut changed = self.machines.take_changed();
        let flights = &self.world.flights;
        changed.extend(self.publishing.routing.set_outages(&self.machines, flights, now));
        self.try_canaries(|trials, cx| trials.renew(&changed, cx));
        changed.extend(self.trials.take_changed());
        changed.extend(self.machines.take_changed());
        let (publishing, inputs) = self.publishing(now);
        publishing.follow(&changed, &inputs);
        self.changed.append(&mut changed);
    }

    /// Publishes the collected changes once they are in the journal, as far as that can be written.
    pub(super) async fn publish(&mut self) {
        let canaries = self.trials.take_record(self.clock.now());
        self.world.durable.update(Changes { canaries, ..Changes::default() });
        let number = self.world.durable.number();
        self.world.durable.settled(number).await;
        self.show();
    }

    fn show(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        let mut publication = Publication { now: self.clock.now(), changed, is_routed: false };
        STEPS.iter().for_each(|step| step(self, &mut publication));
    }

    fn route(&mut self, publication: &mut Publication) {
        let (publishing, inputs) = self.publishing(publication.now);
        publication.is_routed = publishing.routing.publish(&publication.changed, &inputs);
    }

    fn release(&mut self, publication: &mut Publication) {
        if publication.is_routed {
            self.versions.forget_drained(&publication.changed);
        }
        self.versions.forget_deleted(&publication.changed, &self.machines);
        let released = std::mem::take(&mut self.released).into_iter();
        self.world.release(released.filter(|digest| !self.machines.needs_files(digest)));
    }

    fn select(&mut self, publication: &mut Publication) {
        let names = self.world.names.load();
        for name in &publication.changed {
            if let Some(versions) = names.directory(name) {
                versions.set_failing(self.machines.failing(name));
            }
        }
    }

    fn report(&mut self, _: &mut Publication) {
        self.publishing.report(&self.machines);
        self.trials.reports().emit();
    }

    fn push(&mut self, _: &mut Publication) {
        self.start_registry_jobs();
    }

    fn show_canaries(&mut self, publication: &mut Publication) {
        let mut models = std::mem::take(&mut self.tried);
        models.extend(publication.changed.iter().cloned());
        self.try_canaries(|trials, cx| trials.show(&models, cx));
        publication.changed.extend(self.trials.take_changed());
    }

    fn show_models(&mut self, publication: &mut Publication) {
        let (publishing, inputs) = self.publishing(publication.now);
        publishing.show(&publication.changed, &inputs);
    }

    fn wake(&mut self, publication: &mut Publication) {
        if publication.is_routed {
            self.publishing.routing.announce();
        }
    }

    fn answer(&mut self, _: &mut Publication) {
        std::mem::take(&mut self.replies).into_iter().for_each(|reply| reply());
        self.answer_decisions();
    }

    fn publishing(&mut self, now: Moment) -> (&mut Publishing, Inputs<'_>) {
        let inputs = Inputs {
            world: &self.world,
            machines: &self.machines,
            versions: &self.versions,
            trials: &self.trials,
            clock: self.clock,
            now,
        };
        (&mut self.publishing, inputs)
    }

    #[cfg(test)]
    pub(crate) fn world(&self) -> std::sync::Arc<crate::world::World> {
        std::sync::Arc::clone(&self.world)
    }

    /// Publishes the changes of events that a test applied, without the journal.
    #[cfg(test)]
    pub(crate) fn publish_now(&mut self) {
        self.collect();
        self.show();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::SeqCst},
        },
        task::Poll,
    };

    use outrigger_core::{
        Digest, Failure, Reason,
        machines::{Event, TagKey},
        tags,
    };
    use outrigger_trials::CanaryRecord;
    use serde_json::json;

    use super::*;
    use crate::{
        Config, Handle,
        rig::{churn, latest, service},
    };

    /// The ways to learn of a change.
    struct Shown {
        handle: Handle,
        reported: Arc<AtomicBool>,
        answered: Arc<AtomicBool>,
    }

    impl Shown {
        /// The result of a look-up, of a decision, and of a caller's change, to be published.
        fn of(handle: Handle, service: &mut Service) -> Self {
            let key = TagKey { name: churn(), tag: "latest".parse().expect("valid") };
            service.apply(Event::Ask(churn(), latest()));
            let attempt = service.machines.tag(&key).expect("asked for").last();
            let failure = Failure::new(Reason::TagNotFound, "there is none");
            let resolved = tags::Event::Resolved(attempt, Err(failure));
            service.apply(Event::Tag(key.clone(), resolved));
            // The next process has to know this.
            service.apply(Event::Tag(key, tags::Event::Reject(Digest::of(b"canary"))));
            service.trials.restore(decided());
            let reported = Arc::<AtomicBool>::default();
            let answered = Arc::<AtomicBool>::default();
            let report = Arc::clone(&reported);
            service.publishing.reports.add(move || report.store(true, SeqCst));
            let answer = Arc::clone(&answered);
            service.replies.push(Box::new(move || answer.store(true, SeqCst)));
            service.collect();
            Self { handle, reported, answered }
        }

        fn is_routed(&self) -> bool {
            self.handle.try_acquire(&churn(), &latest(), "").is_some()
        }

        /// Returns for logs and metrics, canaries, models, and answers if they show the change.
        fn places(&self) -> [bool; 4] {
            [
                self.reported.load(SeqCst),
                !self.handle.canaries().borrow().decisions.is_empty(),
                !self.handle.models().models.is_empty(),
                self.answered.load(SeqCst),
            ]
        }
    }

    fn decided() -> CanaryRecord {
        let decision = json!({
            "at": {"secs_since_epoch": 0, "nanos_since_epoch": 0},
            "model": "churn", "tag": "latest", "live": null, "canary": Digest::of(b"canary"),
            "outcome": "rolled_back", "by": "judge", "reason": "errors", "verdict": null,
        });
        let record = json!({"trials": [], "decisions": [decision]});
        serde_json::from_value(record).expect("a record")
    }

    #[tokio::test]
    async fn requests_get_the_new_routes_before_anything_shows_them() {
        let (handle, mut service, _dir) = service(Config::default());
        let shown = Shown::of(handle, &mut service);
        let changed = std::mem::take(&mut service.changed);
        let now = service.clock.now();
        let mut publication = Publication { now, changed, is_routed: false };
        for (number, step) in STEPS.into_iter().enumerate() {
            step(&mut service, &mut publication);
            assert!(shown.is_routed() || shown.places() == [false; 4], "step {number}");
        }
        assert_eq!((shown.is_routed(), shown.places()), (true, [true; 4]));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_changes_before_the_journal_has_it() {
        let (handle, mut service, _dir) = service(Config::default());
        let world = Arc::clone(&service.world);
        let shown = Shown::of(handle, &mut service);
        let mut publishing = std::pin::pin!(service.publish());
        assert_eq!(futures::poll!(&mut publishing), Poll::Pending);
        assert_eq!((shown.is_routed(), shown.places()), (false, [false; 4]));
        world.write_journal().expect("written");
        assert_eq!(futures::poll!(&mut publishing), Poll::Ready(()));
        assert_eq!((shown.is_routed(), shown.places()), (true, [true; 4]));
    }
}
