//! The viewers of the stream of events: their number is bounded, and none keeps the others out.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The most viewers.
pub(crate) const MOST: usize = 64;
/// A viewer that has not taken an event for this long does not read: the traffic changes every two
/// seconds. One that has is not sure to read, because the system's buffers take some minutes of
/// events.
const UNREAD: Duration = Duration::from_secs(10);
/// A client's own viewers keep their places at least for this long, so that more pages than places
/// do not take turns without a pause.
const SPARED: Duration = Duration::from_secs(30);

/// The client behind a viewer, such as its address: the server adds it to requests for the page.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Viewer(pub String);

/// The viewers. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Viewers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, Open>,
}

struct Open {
    viewer: Viewer,
    came: Instant,
    /// The time at which it took its last event.
    took: Instant,
    end: CancellationToken,
}

/// A viewer's place, given back when dropped.
pub(crate) struct Place {
    viewers: Viewers,
    number: u64,
    end: CancellationToken,
}

impl Viewers {
    /// Takes a place. If all are taken, the client with the most viewers loses one: the oldest that
    /// does not read, or else the oldest. Returns `None` if that client is `viewer` itself and its
    /// oldest came moments ago.
    pub(crate) fn enter(&self, viewer: Viewer) -> Option<Place> {
        let mut state = self.state();
        if state.open.len() >= MOST {
            state.end_one(&viewer)?;
        }
        let (number, end) = (state.next, CancellationToken::new());
        state.next += 1;
        let now = Instant::now();
        state.open.insert(number, Open { viewer, came: now, took: now, end: end.clone() });
        Some(Place { viewers: self.clone(), number, end })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end_one(&mut self, newcomer: &Viewer) -> Option<()> {
        let mut held = HashMap::<&Viewer, usize>::new();
        self.open.values().for_each(|open| *held.entry(&open.viewer).or_default() += 1);
        let most = held.values().copied().max();
        let of_most = self.open.iter().filter(|(_, open)| held.get(&open.viewer).copied() == most);
        let reads = |open: &Open| open.took.elapsed() < UNREAD;
        let (number, oldest) = of_most.min_by_key(|(_, open)| (reads(open), open.came))?;
        let own = held.get(newcomer).copied() == most;
        let number = (!own || oldest.came.elapsed() >= SPARED).then_some(*number)?;
        self.open.remove(&number)?.end.cancel();
        Some(())
    }
}

impl Place {
    /// Records that the viewer took an event.
    pub(crate) fn took(&self) {
        if let Some(open) = self.viewers.state().open.get_mut(&self.number) {
            open.took = Instant::now();
        }
    }

    /// Waits until the place is given to another viewer.
    pub(crate) async fn lost(&self) {
        self.end.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.viewers.state().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewer(name: &str) -> Viewer {
        Viewer(name.to_owned())
    }

    /// Fills all places, one viewer a second.
    async fn fill(viewers: &Viewers, name: &str) -> Vec<Place> {
        let mut open = Vec::new();
        while open.len() < MOST {
            open.push(viewers.enter(viewer(name)).expect("a place"));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        open
    }

    fn lost(open: &[Place]) -> Vec<usize> {
        let lost = |&at: &usize| open[at].end.is_cancelled();
        (0..open.len()).filter(lost).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_all_places_gives_the_oldest_to_another() {
        let viewers = Viewers::default();
        let open = fill(&viewers, "many").await;
        open.iter().for_each(Place::took);
        let first = viewers.enter(viewer("operator")).expect("a place");
        let second = viewers.enter(viewer("operator")).expect("a place");
        assert_eq!(lost(&open), [0, 1]);
        assert_eq!(lost(&[first, second]), [0; 0], "these hold fewer");
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_are_not_read_are_the_first_to_end() {
        let viewers = Viewers::default();
        let open = fill(&viewers, "forwarded").await;
        open[..3].iter().for_each(Place::took);
        let _operator = viewers.enter(viewer("forwarded")).expect("a place");
        assert_eq!(lost(&open), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn pages_do_not_take_turns_without_a_pause() {
        let viewers = Viewers::default();
        let _open: Vec<_> = (0..MOST).map(|_| viewers.enter(viewer("one"))).collect();
        assert!(viewers.enter(viewer("one")).is_none());
        assert!(viewers.enter(viewer("another")).is_some());
    }
}
