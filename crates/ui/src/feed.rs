//! The stream of events behind the page. Events are made once a second, and shared by all viewers.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use outrigger_lifecycle::Handle;
use outrigger_proto::outrigger::v1::ListCanariesResponse;
use tokio::{
    sync::{Notify, watch},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    canaries::Trials,
    figures::Figures,
    models::Listed,
    overview::{self, About, milliseconds},
    topic::Topic,
    traffic::Traffic,
    viewers::{Place, Viewer, Viewers},
};
use crate::Server;

/// The interval at which the page receives changes.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the figures are read, also without viewers, so that a new viewer sees the
/// last two minutes.
const READ_EVERY: Duration = Duration::from_secs(2);
/// Reading the figures takes at most one part in this many of a core's time.
const READ_PART: u32 = 100;
/// The longest age at which a state counts as current for a new viewer.
const FRESH: Duration = Duration::from_millis(1500);

/// The source of the page's events. Clones share it.
#[derive(Clone)]
pub struct Feed(Arc<Shared>);

struct Shared {
    about: About,
    models: Handle,
    server: Arc<dyn Server>,
    news: watch::Sender<News>,
    viewers: Viewers,
    came: Notify,
    end: CancellationToken,
}

/// A consistent state of all topics. Cloning it copies no text.
#[derive(Clone, Default)]
struct News {
    made: Option<Instant>,
    topics: [Topic; 4],
}

impl Feed {
    /// A feed that publishes nothing until [`Self::run`]; its streams end with `end`.
    pub fn new(
        about: About,
        models: Handle,
        server: Arc<dyn Server>,
        end: CancellationToken,
    ) -> Self {
        let news = watch::Sender::new(News::default());
        let viewers = Viewers::default();
        let came = Notify::new();
        Self(Arc::new(Shared { about, models, server, news, viewers, came, end }))
    }

    pub(crate) fn server(&self) -> &dyn Server {
        &*self.0.server
    }

    /// Streams the full state, then changes. Returns `None` if all places are taken and `viewer` has
    /// to wait for one. A slow viewer skips intermediate states; at most one pending update is buffered
    /// for it.
    pub(crate) fn watch(
        &self,
        viewer: Viewer,
    ) -> Option<impl Stream<Item = Result<Bytes, Infallible>> + use<>> {
        let place = self.0.viewers.enter(viewer)?;
        let mut news = self.0.news.subscribe();
        let fresh = news.borrow_and_update().made.is_some_and(|made| made.elapsed() < FRESH);
        if fresh {
            news.mark_changed();
        } else {
            self.0.came.notify_one();
        }
        let watcher = Watcher { news, sent: [0; 4], end: self.0.end.clone(), place };
        Some(stream::unfold(watcher, Watcher::next))
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
            let woken = async {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = self.0.came.notified() => {}
                }
            };
            if self.0.end.run_until_cancelled(woken).await.is_none() {
                return Ok(());
            }
            let canaries = self.0.server.canaries();
            state.read(&self.0, &canaries).await;
            if self.0.news.receiver_count() > 0 {
                self.0.news.send_replace(state.news(&self.0, &canaries));
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

    fn news(&mut self, shared: &Shared, canaries: &ListCanariesResponse) -> News {
        let snapshot = shared.models.models();
        let server = &*shared.server;
        let overview =
            overview::topic(&self.overview, &shared.about, server, &snapshot, &self.figures);
        self.overview = overview.clone();
        let models = self.listed.topic(&snapshot, |name, view| {
            (shared.server.model(name, view), shared.models.default_selector(name))
        });
        let canaries = self.trials.topic(canaries);
        let topics = [overview, models, canaries, self.traffic.topic()];
        News { made: Some(Instant::now()), topics }
    }
}

/// A viewer of the stream.
struct Watcher {
    news: watch::Receiver<News>,
    sent: [u64; 4],
    end: CancellationToken,
    place: Place,
}

impl Watcher {
    /// The next chunk of the stream; `None` when the server ends or another viewer gets the place.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        self.place.took();
        tokio::select! {
            changed = self.news.changed() => changed.ok()?,
            () = self.end.cancelled() => return None,
            () = self.place.lost() => return None,
        }
        let news = self.news.borrow_and_update().clone();
        let mut piece = BytesMut::new();
        for (topic, sent) in news.topics.iter().zip(&mut self.sent) {
            piece.extend(topic.event_after(sent));
        }
        Some((Ok(piece.freeze()), self))
    }
}
