//! The stream of events behind the page. Events are made once a second, and shared by all viewers.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::response::Response;
use outrigger_console::{Topic, Viewer};
use outrigger_lifecycle::Handle;
use outrigger_proto::outrigger::v1::ListCanariesResponse;
use tokio::{
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    canaries::Trials,
    figures::Figures,
    models::Listed,
    overview::{self, About, milliseconds},
    traffic::Traffic,
};
use crate::Server;

/// The interval at which the page receives changes.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the figures are read, also without viewers, so that a new viewer sees the
/// last two minutes.
const READ_EVERY: Duration = Duration::from_secs(2);
/// Reading the figures takes at most one part in this many of a core's time.
const READ_PART: u32 = 100;

/// The source of the page's events. Clones share it.
#[derive(Clone)]
pub struct Feed(Arc<Shared>);

struct Shared {
    about: About,
    models: Handle,
    server: Arc<dyn Server>,
    stream: outrigger_console::Feed<4>,
}

impl Feed {
    /// A feed that publishes nothing until [`Self::run`]; its streams end with `end`.
    pub fn new(
        about: About,
        models: Handle,
        server: Arc<dyn Server>,
        end: CancellationToken,
    ) -> Self {
        let stream = outrigger_console::Feed::new(end);
        Self(Arc::new(Shared { about, models, server, stream }))
    }

    pub(crate) fn server(&self) -> &dyn Server {
        &*self.0.server
    }

    /// The answer to a viewer: the stream, or an error if it has to wait for a place.
    pub(crate) fn events(&self, viewer: Viewer) -> Response {
        self.0.stream.events(viewer)
    }

    /// Reads and publishes until the server ends.
    ///
    /// # Errors
    /// Never fails.
    pub async fn run(self) -> Result<(), Infallible> {
        let mut ticks = interval(PUBLISH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = State::default();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.0.stream.viewer() => {}
                () = self.0.stream.ended() => return Ok(()),
            }
            let canaries = self.0.server.canaries();
            state.read(&self.0, &canaries).await;
            if self.0.stream.has_viewers() {
                self.0.stream.publish(state.topics(&self.0, &canaries));
            }
        }
    }
}

/// The data of the topics, and the revisions published so far.
#[derive(Default)]
struct State {
    figures: Figures,
    traffic: Traffic,
    /// The time of the last reading of the figures, and the time when the next is due.
    read: Option<(Instant, Instant)>,
    trials: Trials,
    listed: Listed,
    overview: Topic,
}

impl State {
    async fn read(&mut self, shared: &Shared, canaries: &ListCanariesResponse) {
        self.trials.record(canaries);
        let now = Instant::now();
        if self.read.is_some_and(|(_, due)| now < due) {
            return;
        }
        let server = Arc::clone(&shared.server);
        // With many series, reading takes longer than a probe should wait, so it runs on a blocking
        // thread.
        let Ok(figures) = spawn_blocking(move || Figures::read(&*server)).await else { return };
        let before = std::mem::replace(&mut self.figures, figures);
        if let Some((last, _)) = self.read {
            let at = milliseconds(SystemTime::now());
            let seconds = now.duration_since(last).as_secs_f64();
            self.traffic.add(at, seconds, &before, &self.figures);
        }
        let pause = (now.elapsed() * READ_PART).max(READ_EVERY);
        // A tick may come slightly early, so the reading is due a quarter of a tick before its
        // time.
        self.read = Some((now, now + pause - PUBLISH_EVERY / 4));
    }

    fn topics(&mut self, shared: &Shared, canaries: &ListCanariesResponse) -> [Topic; 4] {
        let snapshot = shared.models.models();
        let server = &*shared.server;
        let overview =
            overview::topic(&self.overview, &shared.about, server, &snapshot, &self.figures);
        self.overview = overview.clone();
        let models = self.listed.topic(&snapshot, |name, view| {
            (shared.server.model(name, view), shared.models.default_selector(name))
        });
        let canaries = self.trials.topic(canaries);
        [overview, models, canaries, self.traffic.topic()]
    }
}
