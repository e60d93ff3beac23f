//! The renderings of `/metrics`, shared by concurrent readers and bounded in number.
//!
//! With many models a rendering takes a hundredth of a second of a core and megabytes. Readers that
//! ask at the same time get the same one, and readers that do not read what they asked for keep
//! only a bounded number in memory.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// The most renderings in memory.
const MOST: usize = 16;

type Rendering = BoxFuture<'static, Option<Bytes>>;

/// The renderings of a text. Clones share them.
#[derive(Clone)]
pub(super) struct Renders(Arc<Inner>);

struct Inner {
    render: Box<dyn Fn() -> String + Send + Sync>,
    /// Its blocking threads render.
    runtime: Handle,
    current: Mutex<Option<WeakShared<Rendering>>>,
    places: Arc<Semaphore>,
}

/// A text that holds a place until its last reader has dropped it.
struct Text(
    String,
    #[allow(dead_code, reason = "held until the text is dropped")] OwnedSemaphorePermit,
);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Renders {
    pub(super) fn new(
        runtime: Handle,
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        let (render, places) = (Box::new(render), Arc::new(Semaphore::new(MOST)));
        Self(Arc::new(Inner { render, runtime, current: Mutex::default(), places }))
    }

    /// The text of a rendering that began before now and is not finished, or else of a new one.
    ///
    /// # Errors
    /// The reason why none can be had.
    pub(super) async fn text(&self) -> Result<Bytes, String> {
        let too_many = || format!("{MOST} renderings are still being read; read them first");
        let rendering = self.rendering().ok_or_else(too_many)?;
        rendering.await.ok_or_else(|| "the server is stopping".to_owned())
    }

    fn rendering(&self) -> Option<Shared<Rendering>> {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        let running = current.as_ref().and_then(WeakShared::upgrade);
        if let Some(running) = running.filter(|running| running.peek().is_none()) {
            return Some(running);
        }
        let place = Arc::clone(&self.0.places).try_acquire_owned().ok()?;
        let inner = Arc::clone(&self.0);
        let text = move || Bytes::from_owner(Text((inner.render)(), place));
        let rendered = self.0.runtime.spawn_blocking(text);
        let rendering = rendered.map(Result::ok).boxed().shared();
        *current = rendering.downgrade();
        Some(rendering)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    };

    use super::*;

    #[tokio::test]
    async fn concurrent_readers_share_a_rendering() {
        let (go, wait) = mpsc::channel();
        let (count, wait) = (Arc::new(AtomicUsize::new(0)), Mutex::new(wait));
        let counted = Arc::clone(&count);
        let renders = Renders::new(Handle::current(), move || {
            wait.lock().unwrap().recv().unwrap();
            counted.fetch_add(1, SeqCst).to_string()
        });
        let readers: Vec<_> = (0..64).map(|_| renders.rendering().unwrap()).collect();
        go.send(()).unwrap();
        for reader in readers {
            assert_eq!(reader.await.unwrap(), "0");
        }
        go.send(()).unwrap();
        assert_eq!(renders.text().await.unwrap(), "1", "a finished one is not served again");
    }

    #[tokio::test]
    async fn texts_that_are_not_read_are_bounded_in_number() {
        let renders = Renders::new(Handle::current(), String::new);
        let mut unread = Vec::new();
        for _ in 0..MOST {
            unread.push(renders.text().await.unwrap());
        }
        assert!(renders.text().await.unwrap_err().contains("still being read"));
        unread.pop();
        renders.text().await.unwrap();
    }
}
