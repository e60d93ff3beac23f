//! The places of connections. When all are taken, the peer that holds the most gives one up.
//!
//! Every connection takes a file descriptor, and peers decide how many they open. Without a bound,
//! idle connections on one port would use up the descriptors of all listeners; with a bound that
//! only refuses, they would keep everybody else out.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    caller::{Party, Peer},
    metrics::{self, Ending},
};

/// The descriptors of a process whose limit cannot be read: the usual soft limit.
const USUAL_DESCRIPTORS: u64 = 1024;
/// The most places of the listeners for predictions together.
const MOST: usize = 16384;
/// The most places of each of the listeners for probes and for operators.
const MOST_ASIDE: usize = 256;
/// One in this many places may be held, in addition, by connections that are leaving.
const LEAVING: usize = 16;

/// The numbers of places, by the number of file descriptors that the process may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The places of the listeners for predictions together.
    pub(crate) callers: usize,
    /// The places of each other listener, which those callers cannot take.
    pub(crate) aside: usize,
}

/// The places of a group of listeners. Clones share them.
#[derive(Clone)]
pub(crate) struct Places(Arc<Shared>);

struct Shared {
    most: usize,
    began: Instant,
    open: Mutex<Open>,
    /// Signals each place that is given back.
    gone: Notify,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// By number, so that the earlier of two comes first.
    connections: BTreeMap<u64, Connection>,
}

struct Connection {
    listener: &'static str,
    party: Party,
    activity: Arc<Activity>,
}

/// A connection's place, given back when dropped.
pub(crate) struct Place {
    places: Places,
    number: u64,
    activity: Arc<Activity>,
}

/// The state of a connection by which it is chosen to leave.
struct Activity {
    /// Requests being answered.
    answering: AtomicUsize,
    /// The end of the last answer, in milliseconds since the places exist.
    since: AtomicU64,
    /// True once the peer has sent anything. Then it is told before it is cut off.
    talks: AtomicBool,
    leave: CancellationToken,
    cut: CancellationToken,
}

/// A request that is being answered.
pub(super) struct Answering {
    places: Places,
    activity: Arc<Activity>,
}

/// Raises the soft limit of file descriptors to the hard one, and returns it. Service managers and
/// shells set a low soft limit for programs that use select(2).
pub(crate) fn raise_descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit { current: maximum, maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of file descriptors could not be raised");
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(USUAL_DESCRIPTORS.max(MOST as u64 * 4))
}

impl Shares {
    /// Half of the descriptors are for predictions, a sixteenth for each other listener, and the
    /// rest for files, engines and registries.
    pub(crate) fn of(descriptors: u64) -> Self {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let share = |part: usize, most: usize| (descriptors / part).clamp(8, most);
        Self { callers: share(2, MOST), aside: share(16, MOST_ASIDE) }
    }
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Shared {
            most,
            began: Instant::now(),
            open: Mutex::default(),
            gone: Notify::new(),
        }))
    }

    /// Takes a place for a new connection. If all are taken, another connection is asked to leave. If
    /// too many have not left yet, they are cut off, and the first of them that has gone is waited
    /// for.
    pub(super) async fn enter(&self, listener: &'static str, from: SocketAddr) -> Place {
        loop {
            // Enabled before the look, so that no departure after it is missed.
            let mut gone = pin!(self.0.gone.notified());
            gone.as_mut().enable();
            if let Some(place) = self.try_enter(listener, from) {
                return place;
            }
            gone.await;
        }
    }

    fn try_enter(&self, listener: &'static str, from: SocketAddr) -> Option<Place> {
        let mut open = self.open();
        if !open.make_room(self.0.most) {
            return None;
        }
        let activity = Arc::new(Activity {
            answering: AtomicUsize::new(0),
            since: AtomicU64::new(self.now()),
            talks: AtomicBool::new(false),
            leave: CancellationToken::new(),
            cut: CancellationToken::new(),
        });
        let number = open.next;
        open.next += 1;
        let party = Peer::new(from, None).party();
        let connection = Connection { listener, party, activity: Arc::clone(&activity) };
        open.connections.insert(number, connection);
        Some(Place { places: self.clone(), number, activity })
    }

    /// Asks a connection to leave, as when the system has no descriptor left.
    pub(super) fn relieve(&self) {
        self.open().shed();
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Open {
    /// Makes room for one more connection, so that at most `most` stay. False if too many have not
    /// left yet; those are cut off then.
    fn make_room(&mut self, most: usize) -> bool {
        let margin = (most / LEAVING).max(1);
        let leaving = self.connections.values().filter(|connection| connection.is_leaving());
        let leaving: Vec<_> = leaving.map(|connection| &connection.activity).collect();
        if leaving.len() >= margin {
            leaving.iter().for_each(|activity| activity.cut.cancel());
        }
        if self.connections.len() >= most + 2 * margin {
            return false;
        }
        if self.connections.len() - leaving.len() >= most {
            self.shed();
        }
        true
    }

    /// Asks a connection to leave: of the party that holds the most, the one that has been idle for
    /// the longest time.
    fn shed(&self) {
        let staying = || self.connections.values().filter(|connection| !connection.is_leaving());
        let mut held = HashMap::<&Party, usize>::new();
        staying().for_each(|connection| *held.entry(&connection.party).or_default() += 1);
        let most = held.values().copied().max();
        let idlest = staying()
            .filter(|connection| held.get(&connection.party).copied() == most)
            .min_by_key(|connection| connection.activity.order());
        let Some(Connection { listener, activity, .. }) = idlest else { return };
        metrics::connection_ended(listener, Ending::Places);
        activity.leave.cancel();
        if !activity.talks.load(Relaxed) {
            activity.cut.cancel();
        }
    }
}

impl Connection {
    fn is_leaving(&self) -> bool {
        self.activity.leave.is_cancelled()
    }
}

impl Activity {
    /// The order in which connections leave: idle ones first, the longest idle one before others.
    fn order(&self) -> (bool, u64) {
        (self.answering.load(Relaxed) > 0, self.since.load(Relaxed))
    }
}

impl Place {
    /// Records that the peer has begun to send, and its identity.
    pub(super) fn begins(&self, peer: &Peer) {
        self.activity.talks.store(true, Relaxed);
        if let Some(connection) = self.places.open().connections.get_mut(&self.number) {
            connection.party = peer.party();
        }
    }

    /// Counts a request as being answered, until the value is dropped.
    pub(super) fn answering(&self) -> Answering {
        self.activity.answering.fetch_add(1, Relaxed);
        Answering { places: self.places.clone(), activity: Arc::clone(&self.activity) }
    }

    /// Waits until the connection is asked to leave.
    pub(super) async fn leave(&self) {
        self.activity.leave.cancelled().await;
    }

    /// Waits until the connection must end at once.
    pub(super) async fn cut(&self) {
        self.activity.cut.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open().connections.remove(&self.number);
        self.places.0.gone.notify_waiters();
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.activity.since.store(self.places.now(), Relaxed);
        self.activity.answering.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn from(address: &str) -> SocketAddr {
        format!("{address}:1").parse().unwrap()
    }

    fn is_leaving(place: &Place) -> bool {
        place.activity.leave.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_of_the_party_that_holds_the_most_leaves() {
        let places = Places::new(4);
        let mut open = Vec::new();
        for address in ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"] {
            open.push(places.try_enter("grpc", from(address)).unwrap());
            open.last().unwrap().begins(&Peer::new(from(address), None));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let busy = open[1].answering();
        drop(open[2].answering());
        let newcomer = places.try_enter("http", from("10.0.0.3")).unwrap();
        let leaving: Vec<_> = open.iter().map(is_leaving).collect();
        assert_eq!(leaving, [false, false, false, true], "the others are busy, or were later");
        assert!(!is_leaving(&newcomer));
        drop(busy);
    }

    #[tokio::test]
    async fn a_peer_that_says_nothing_is_cut_off_and_one_that_talks_is_told() {
        let places = Places::new(2);
        let silent = places.try_enter("grpc", from("10.0.0.1")).unwrap();
        let talking = places.try_enter("grpc", from("10.0.0.1")).unwrap();
        talking.begins(&Peer::new(from("10.0.0.1"), None));
        let _one = places.try_enter("grpc", from("10.0.0.2")).unwrap();
        assert!(silent.activity.cut.is_cancelled());
        drop(silent);
        let _another = places.try_enter("grpc", from("10.0.0.3")).unwrap();
        assert!(is_leaving(&talking) && !talking.activity.cut.is_cancelled());
    }

    #[test]
    fn connections_that_do_not_leave_in_time_are_cut_off_and_the_number_stays_bounded() {
        let places = Places::new(32);
        let mut open = Vec::new();
        for _ in 0..100 {
            if let Some(place) = places.try_enter("grpc", from("10.0.0.1")) {
                place.begins(&Peer::new(from("10.0.0.1"), None));
                open.push(place);
            }
        }
        assert_eq!(open.len(), 32 + 2 * 2, "as many as are leaving stay for a moment");
        let cut = open.iter().filter(|place| place.activity.cut.is_cancelled()).count();
        assert!(cut >= 2, "{cut}");
    }

    #[test]
    fn every_listener_has_a_share_of_few_descriptors() {
        assert_eq!(Shares::of(1024), Shares { callers: 512, aside: 64 });
        assert_eq!(Shares::of(1 << 20), Shares { callers: MOST, aside: MOST_ASIDE });
        for descriptors in [256, 1024, 4096, 65536] {
            let Shares { callers, aside } = Shares::of(descriptors);
            let most = |places: usize| places + 2 * (places / LEAVING).max(1);
            let all = most(callers) + 2 * most(aside);
            assert!(all as u64 <= descriptors * 3 / 4, "{all} of {descriptors}");
        }
    }
}
