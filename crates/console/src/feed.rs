//! The stream of events behind a page. Its state is made once for all viewers.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    topic::Topic,
    viewers::{Place, Viewer, Viewers},
};

/// The longest age at which a state counts as current for a new viewer.
const FRESH: Duration = Duration::from_millis(1500);

/// The stream of a page with `N` topics. Clones share it.
#[derive(Clone)]
pub struct Feed<const N: usize>(Arc<Shared<N>>);

struct Shared<const N: usize> {
    news: watch::Sender<News<N>>,
    viewers: Viewers,
    came: Notify,
    end: CancellationToken,
}

/// A consistent state of all topics. Cloning it copies no text.
#[derive(Clone)]
struct News<const N: usize> {
    made: Option<Instant>,
    topics: [Topic; N],
}

impl<const N: usize> Feed<N> {
    /// A stream without a state. Those of its viewers end with `end`.
    pub fn new(end: CancellationToken) -> Self {
        let topics = std::array::from_fn(|_| Topic::default());
        let news = watch::Sender::new(News { made: None, topics });
        Self(Arc::new(Shared { news, viewers: Viewers::default(), came: Notify::new(), end }))
    }

    /// True while somebody watches.
    pub fn has_viewers(&self) -> bool {
        self.0.news.receiver_count() > 0
    }

    /// Waits until a viewer comes for which there is no current state.
    pub async fn viewer(&self) {
        self.0.came.notified().await;
    }

    /// Waits until the page ends.
    pub async fn ended(&self) {
        self.0.end.cancelled().await;
    }

    /// Publishes a state.
    pub fn publish(&self, topics: [Topic; N]) {
        self.0.news.send_replace(News { made: Some(Instant::now()), topics });
    }

    /// Serves the stream as `text/event-stream`, or an error if all places are taken and `viewer` has
    /// to wait for one.
    pub fn events(&self, viewer: Viewer) -> Response {
        let Some(stream) = self.watch(viewer) else {
            let why = "as many pages as allowed are open; try again later\n";
            let again = [(header::RETRY_AFTER, "10")];
            return (again, (StatusCode::SERVICE_UNAVAILABLE, why)).into_response();
        };
        let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
        (kind, Body::from_stream(stream)).into_response()
    }

    /// Streams the full state, then changes. Returns `None` if all places are taken and `viewer` has
    /// to wait for one. A slow viewer skips intermediate states; at most one pending update is buffered
    /// for it.
    fn watch(
        &self,
        viewer: Viewer,
    ) -> Option<impl Stream<Item = Result<Bytes, Infallible>> + use<N>> {
        let place = self.0.viewers.enter(viewer)?;
        let mut news = self.0.news.subscribe();
        let fresh = news.borrow_and_update().made.is_some_and(|made| made.elapsed() < FRESH);
        if fresh {
            news.mark_changed();
        } else {
            self.0.came.notify_one();
        }
        let watcher = Watcher { news, sent: [0; N], end: self.0.end.clone(), place };
        Some(stream::unfold(watcher, Watcher::next))
    }
}

/// A viewer of the stream.
struct Watcher<const N: usize> {
    news: watch::Receiver<News<N>>,
    sent: [u64; N],
    end: CancellationToken,
    place: Place,
}

impl<const N: usize> Watcher<N> {
    /// The next chunk of the stream; `None` when the page ends or another viewer gets the place.
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
            if let Some(event) = topic.event_after(sent) {
                piece.extend_from_slice(&event);
            }
        }
        Some((Ok(piece.freeze()), self))
    }
}
