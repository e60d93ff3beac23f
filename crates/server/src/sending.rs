//! Answers that are being sent: what they hold until then, and those that a connection has not sent
//! yet. A peer that takes none of them keeps their memory and their places, so its connection ends
//! after a time.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::sleep;

/// The number of intervals that a timeout is divided into.
const PARTS: u32 = 4;
/// One interval more, because an answer may come at the end of one.
const SLOTS: usize = PARTS as usize + 1;

/// The unsent answers of a connection, counted by the interval in which they came.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    counts: [AtomicU32; SLOTS],
    now: AtomicUsize,
}

/// An answer that has not been sent; it has been when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    unsent: Arc<Unsent>,
    slot: usize,
}

impl Unsent {
    /// Counts an answer.
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        let slot = self.now.load(Relaxed);
        self.counts[slot].fetch_add(1, SeqCst);
        Ticket { unsent: Arc::clone(self), slot }
    }

    /// True if every answer has been sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| count.load(SeqCst) == 0)
    }

    /// Returns when an answer is older than `timeout`, by at most a quarter of it.
    pub(crate) async fn overdue(&self, timeout: Duration) {
        loop {
            sleep(timeout / PARTS).await;
            let next = (self.now.load(Relaxed) + 1) % SLOTS;
            if self.counts[next].load(SeqCst) > 0 {
                return;
            }
            self.now.store(next, Relaxed);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.unsent.counts[self.slot].fetch_sub(1, SeqCst);
    }
}

/// Bytes that hold something until they are dropped, which is when the connection has written them
/// or has ended.
struct Holding<T>(Bytes, #[allow(dead_code)] T);

impl<T> AsRef<[u8]> for Holding<T> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// `bytes` that hold `with` until they are dropped.
pub(crate) fn hold<T: Send + 'static>(bytes: Bytes, with: T) -> Bytes {
    Bytes::from_owner(Holding(bytes, with))
}

/// A response body whose data passes through a function.
struct Mapped<F> {
    body: Body,
    map: F,
}

/// `body`, whose data `map` replaces by the same bytes that hold something.
pub(crate) fn holding<F>(body: Body, map: F) -> Body
where
    F: FnMut(Bytes) -> Bytes + Send + Unpin + 'static,
{
    Body::new(Mapped { body, map })
}

/// Counts the frames of `body` as unsent. A body of a known length counts from its beginning,
/// because the connection may never ask for it; a stream waits for events, and counts only by its
/// frames.
pub(crate) fn counted(body: Body, unsent: &Arc<Unsent>) -> Body {
    let is_known = body.size_hint().exact().is_some_and(|size| size > 0);
    let (mut first, unsent) = (is_known.then(|| unsent.ticket()), Arc::clone(unsent));
    holding(body, move |data| hold(data, first.take().unwrap_or_else(|| unsent.ticket())))
}

impl<F: FnMut(Bytes) -> Bytes + Send + Unpin + 'static> HttpBody for Mapped<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        Poll::Ready(Some(Ok(frame.map_data(&mut self.map))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stays_is_overdue_after_the_timeout() {
        let unsent = Arc::new(Unsent::default());
        let began = Instant::now();
        let overdue = tokio::spawn({
            let unsent = Arc::clone(&unsent);
            async move { unsent.overdue(TIMEOUT).await }
        });
        // Answers that are sent in time keep the connection.
        for _ in 0..20 {
            let ticket = unsent.ticket();
            sleep(TIMEOUT - Duration::from_millis(1)).await;
            drop(ticket);
        }
        assert!(!overdue.is_finished());
        let (_stays, since) = (unsent.ticket(), Instant::now());
        overdue.await.unwrap();
        let after = since.elapsed();
        assert!((TIMEOUT..=TIMEOUT + TIMEOUT / 4).contains(&after), "{after:?} of {began:?}");
    }
}
