//! An engine whose servers all requests share.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Jobs on servers, for example cores, in the order in which they came, with the events
/// that lie ahead. A job is never stopped: an engine goes on with a call whose caller has
/// given up.
#[derive(Debug)]
pub(super) struct Engine<E> {
    idle: usize,
    queue: VecDeque<Job<E>>,
    /// The events by their times; those of one time in the order in which they were known.
    events: BTreeMap<(Duration, u64), Ahead<E>>,
    last: u64,
}

#[derive(Debug)]
struct Job<E> {
    takes: Duration,
    /// Happens when the job is done.
    then: E,
}

/// An event that lies ahead.
#[derive(Debug)]
struct Ahead<E> {
    event: E,
    /// True if a server is then done with its job.
    is_done: bool,
}

impl<E> Engine<E> {
    /// An engine of idle servers.
    pub(super) fn new(servers: usize) -> Self {
        Self { idle: servers, queue: VecDeque::new(), events: BTreeMap::new(), last: 0 }
    }

    /// Lets an event happen at that time.
    pub(super) fn at(&mut self, at: Duration, event: E) {
        self.schedule(at, Ahead { event, is_done: false });
    }

    /// Gives a job to a server as soon as one is idle.
    pub(super) fn submit(&mut self, now: Duration, takes: Duration, then: E) {
        self.queue.push_back(Job { takes, then });
        self.start(now);
    }

    /// The next event with its time; `None` if nothing lies ahead.
    pub(super) fn next(&mut self) -> Option<(Duration, E)> {
        let ((now, _), Ahead { event, is_done }) = self.events.pop_first()?;
        if is_done {
            self.idle += 1;
            self.start(now);
        }
        Some((now, event))
    }

    fn start(&mut self, now: Duration) {
        while self.idle > 0
            && let Some(Job { takes, then }) = self.queue.pop_front()
        {
            self.idle -= 1;
            self.schedule(now.saturating_add(takes), Ahead { event: then, is_done: true });
        }
    }

    fn schedule(&mut self, at: Duration, ahead: Ahead<E>) {
        self.last += 1;
        self.events.insert((at, self.last), ahead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_wait_for_an_idle_server_in_their_order() {
        let second = Duration::from_secs;
        let mut engine = Engine::new(2);
        for (takes, name) in [(5, "a"), (1, "b"), (1, "c"), (1, "d")] {
            engine.submit(second(0), second(takes), name);
        }
        engine.at(second(2), "timer");
        let happened: Vec<_> = std::iter::from_fn(|| engine.next()).collect();
        let expected = [(1, "b"), (2, "timer"), (2, "c"), (3, "d"), (5, "a")];
        assert_eq!(happened, expected.map(|(at, name)| (second(at), name)));
    }
}
