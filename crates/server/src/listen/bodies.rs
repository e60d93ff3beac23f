//! The bodies of a connection that nobody has taken charge of, and the handlers that read others.
//!
//! h2 keeps such bodies within the windows of their peer. Their bytes count in the pool of unread
//! bytes, and the connection's windows follow from them ([`windows`](super::windows)).

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Context,
};

use futures::task::AtomicWaker;
use h2::FlowControl;

use super::{
    ahead,
    unread::{Member, Unread},
    windows::LEAST_STREAM,
};
use crate::sending::Unsent;

/// The bodies of a connection.
#[derive(Debug)]
pub(super) struct Bodies {
    _member: Member,
    pool: Unread,
    unsent: Arc<Unsent>,
    waiting: Mutex<Waiting>,
    /// The bodies that handlers read.
    readers: AtomicUsize,
    /// True if the windows depend on the bodies now.
    is_pressed: AtomicBool,
    is_held_up: AtomicBool,
    connection: AtomicWaker,
}

/// The bodies that count as unread.
#[derive(Debug, Default)]
struct Waiting {
    bodies: BTreeMap<u32, Entry>,
    /// Their bytes, as the pool counts them.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    flow: FlowControl,
    bytes: usize,
    /// True until its handler has had a turn.
    is_new: bool,
}

/// The state that the windows of a connection depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    /// The bytes of bodies that nobody has taken charge of.
    pub(super) unread: usize,
    /// The number of those bodies.
    pub(super) waiting: usize,
    /// The handlers that read bodies.
    pub(super) readers: usize,
    /// The connection's share of the pool, in bytes.
    pub(super) share: usize,
    /// True if bodies are left out that count after the turn of their handlers.
    pub(super) is_partial: bool,
}

/// A body. It counts as unread until a handler takes charge of it.
#[derive(Debug)]
pub(super) struct Body {
    bodies: Arc<Bodies>,
    stream: u32,
    is_read: bool,
}

impl Demand {
    /// True if the unread bytes are a large part of the share.
    pub(super) fn is_pressed(&self) -> bool {
        self.unread >= self.share / 2
    }
}

impl Bodies {
    /// Those of a new connection, whose unsent answers are `unsent`.
    pub(super) fn new(pool: &Unread, unsent: &Arc<Unsent>) -> Self {
        Self {
            _member: pool.enter(),
            pool: pool.clone(),
            unsent: Arc::clone(unsent),
            waiting: Mutex::default(),
            readers: AtomicUsize::new(0),
            is_pressed: AtomicBool::new(false),
            is_held_up: AtomicBool::new(false),
            connection: AtomicWaker::new(),
        }
    }

    /// The connection's share of the pool, in bytes.
    pub(super) fn share(&self) -> usize {
        self.pool.share()
    }

    /// The most bytes of one read, which are in no account until h2 has them.
    pub(super) fn read_ahead(&self) -> usize {
        (self.share() / 4).clamp(LEAST_STREAM, ahead::MOST)
    }

    /// Enters the body of a request that was accepted.
    pub(super) fn enter(self: &Arc<Self>, flow: FlowControl) -> Body {
        let stream = flow.stream_id().as_u32();
        let entry = Entry { flow, bytes: 0, is_new: true };
        self.waiting().bodies.insert(stream, entry);
        Body { bodies: Arc::clone(self), stream, is_read: false }
    }

    /// Counts what has arrived. A body counts once its handler has had a turn to take charge of it.
    pub(super) fn count(&self) -> Demand {
        let mut waiting = self.waiting();
        let mut unread = 0;
        let mut new = 0;
        for entry in waiting.bodies.values_mut() {
            let bytes = entry.flow.used_capacity();
            if std::mem::take(&mut entry.is_new) {
                new += bytes;
            } else {
                entry.bytes = bytes;
                unread += bytes;
            }
        }
        self.replace(&mut waiting, unread);
        let share = self.share();
        let is_pressed = unread + new >= share / 2;
        self.is_pressed.store(is_pressed, SeqCst);
        Demand {
            unread,
            waiting: waiting.bodies.len(),
            readers: self.readers.load(SeqCst),
            share,
            is_partial: is_pressed && new > 0,
        }
    }

    fn replace(&self, waiting: &mut Waiting, bytes: usize) {
        if waiting.bytes != bytes {
            self.pool.replace(waiting.bytes, bytes);
            waiting.bytes = bytes;
        }
    }

    /// Removes a body of a stream.
    fn leave(&self, stream: u32) {
        let mut waiting = self.waiting();
        let Some(entry) = waiting.bodies.remove(&stream) else { return };
        let bytes = waiting.bytes - entry.bytes;
        self.replace(&mut waiting, bytes);
        // Its windows depend on the bodies.
        if self.is_pressed.load(SeqCst) {
            self.connection.wake();
        }
    }

    /// Registers the connection's task.
    pub(super) fn register(&self, context: &Context<'_>) {
        self.connection.register(context.waker());
    }

    /// True if the peer must be held up: the pool of unread bytes is full, the connection has more than
    /// its share in it, and nothing in the process waits for what the peer sends.
    pub(super) fn must_wait(&self) -> bool {
        if !self.pool.is_full() {
            return false;
        }
        let waiting = self.waiting();
        let most = self.share().max(waiting.bodies.len() * LEAST_STREAM);
        // The peer may have to update its windows before it gets an answer.
        let is_waited_for = self.readers.load(SeqCst) > 0 || !self.unsent.is_empty();
        waiting.bytes > most && !is_waited_for
    }

    /// Records whether the socket is read.
    pub(super) fn hold_up(&self, is_held_up: bool) {
        self.is_held_up.store(is_held_up, Relaxed);
    }

    /// True while the socket is not read.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_held_up.load(Relaxed)
    }

    #[cfg(test)]
    pub(super) fn set_unread(&self, bytes: usize) {
        let mut waiting = self.waiting();
        self.replace(&mut waiting, bytes);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A poisoned lock is used: a panic ends the connection.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body {
    /// Called when a handler takes charge of the body: it reads it from now on.
    pub(super) fn read(&mut self) {
        if !std::mem::replace(&mut self.is_read, true) {
            self.bodies.readers.fetch_add(1, SeqCst);
            self.bodies.leave(self.stream);
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        match self.is_read {
            true => _ = self.bodies.readers.fetch_sub(1, SeqCst),
            false => self.bodies.leave(self.stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use h2::{RecvStream, client, server};
    use tokio::{io::duplex, task::JoinSet};

    use super::{super::crowds::until, *};

    /// Two bodies of which 1000 bytes have arrived. The connection lives as long as the set.
    async fn arrived() -> (Vec<RecvStream>, JoinSet<()>) {
        let (client, server) = duplex(1 << 16);
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let (mut sender, connection) = client::handshake(client).await.unwrap();
            for _ in 0..2 {
                let request = Request::post("http://a/").body(()).unwrap();
                let (_answer, mut body) = sender.send_request(request, false).unwrap();
                body.send_data(vec![0; 1000].into(), false).unwrap();
                std::mem::forget(body);
            }
            let _ = connection.await;
        });
        let mut connection = server::handshake(server).await.unwrap();
        let mut bodies = Vec::new();
        for _ in 0..2 {
            let (request, respond) = connection.accept().await.unwrap().unwrap();
            bodies.push(request.into_body());
            std::mem::forget(respond);
        }
        driver.spawn(async move { while connection.accept().await.is_some() {} });
        let flows: Vec<_> = bodies.iter_mut().map(|body| body.flow_control().clone()).collect();
        until(|| flows.iter().all(|flow| flow.used_capacity() == 1000)).await;
        (bodies, driver)
    }

    #[tokio::test]
    async fn a_body_is_unread_until_a_handler_reads_it_or_gives_it_up() {
        let pool = Unread::of(1 << 20);
        let bodies = Arc::new(Bodies::new(&pool, &Arc::default()));
        let (mut received, _driver) = arrived().await;
        let entered = received.iter_mut().map(|body| bodies.enter(body.flow_control().clone()));
        let mut entered: Vec<_> = entered.collect();
        assert_eq!(bodies.count().unread, 0, "their handlers have not had a turn");
        let demand = bodies.count();
        assert_eq!((demand.unread, demand.waiting, demand.readers), (2000, 2, 0));
        assert_eq!(pool.used(), 2000);
        entered[0].read();
        assert_eq!(pool.used(), 1000, "at once");
        assert_eq!((bodies.count().waiting, bodies.count().readers), (1, 1));
        drop(entered);
        assert_eq!(pool.used(), 0);
        assert_eq!((bodies.count().waiting, bodies.count().readers), (0, 0));
    }
}
