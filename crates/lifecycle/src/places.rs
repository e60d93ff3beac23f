//! Places for pulls, shared out between registries, tenants and callers.

use std::{collections::BTreeMap, time::Duration};

use outrigger_oci::{Reference, Repository};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::location::Location;

/// The looks at a pull's bytes in one turn.
const LOOKS: u32 = 4;
/// A turn doubles at most this often.
const DOUBLINGS: u32 = 4;

/// The places for pulls. Versions of models in service, and models that the configuration names,
/// have places of their own, so that they never wait behind models that only requests named.
#[derive(Debug)]
pub(crate) struct PullPlaces {
    own: watch::Sender<Places>,
    strangers: watch::Sender<Places>,
}

/// The origin of the demand for a pull.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asker {
    /// The model is in service, or the configuration names it.
    Own,
    /// Only requests named the model: first one of this caller, if known.
    Stranger(Option<u64>),
}

/// A pull's place, given back when dropped.
#[derive(Debug)]
pub(crate) struct PullPlace {
    number: u64,
    places: watch::Sender<Places>,
}

/// The least that a pull receives in a turn, so that it keeps its place while others wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) bytes: u64,
    pub(crate) turn: Duration,
}

/// Places, of which one registry gets at most three quarters, and the repositories of one registry
/// with the same first path segment at most half: a slow registry, or the slow repositories of one
/// tenant, leave places to all others. Of such a half, one caller gets at most three quarters.
#[derive(Debug)]
struct Places {
    count: usize,
    next: u64,
    /// The pulls that have a place, and those that wait, in order of arrival.
    held: BTreeMap<u64, Pull>,
    waiting: BTreeMap<u64, Pull>,
}

/// A directory is a registry and a tenant.
#[derive(Debug)]
struct Pull {
    registry: String,
    tenant: String,
    caller: Option<u64>,
    /// The number of places that it has given up.
    turns: u32,
}

impl PullPlaces {
    /// `count` places for versions of models in service, and as many for all others.
    pub(crate) fn new(count: usize) -> Self {
        let places = || watch::Sender::new(Places::new(count));
        Self { own: places(), strangers: places() }
    }

    /// Waits for a place to pull from `location`. Callers with fewer places get theirs first, then
    /// pulls that have given up fewer, then those that came first.
    pub(crate) async fn take(&self, location: &Location, asker: Asker) -> PullPlace {
        let (places, caller) = match asker {
            Asker::Own => (&self.own, None),
            Asker::Stranger(caller) => (&self.strangers, caller),
        };
        let place = PullPlace::ask(places, Pull::new(location, caller));
        place.wait().await;
        place
    }
}

impl PullPlace {
    fn ask(places: &watch::Sender<Places>, pull: Pull) -> Self {
        let mut number = 0;
        places.send_modify(|places| number = places.enter(pull));
        Self { number, places: places.clone() }
    }

    async fn wait(&self) {
        let mut places = self.places.subscribe();
        let granted = places.wait_for(|places| places.held.contains_key(&self.number));
        granted.await.expect("this is a sender");
    }

    /// Runs a transfer, of which `received` returns the bytes so far. If it drips while others wait,
    /// it gives its place to one of them, waits for the next, and begins again there.
    pub(crate) async fn hold<T, F: Future<Output = T>>(
        &self,
        pace: Pace,
        received: impl Fn() -> u64,
        mut transfer: impl FnMut() -> F,
    ) -> T {
        loop {
            tokio::select! {
                result = transfer() => return result,
                () = self.given_way(pace, &received) => self.wait().await,
            }
        }
    }

    /// Ends when the pull drips, and its place has another.
    async fn given_way(&self, pace: Pace, received: impl Fn() -> u64) {
        let mut since = Instant::now();
        let mut before = received();
        loop {
            sleep(pace.turn / LOOKS).await;
            let now = received();
            // A transfer that starts over subtracts its bytes.
            if now.abs_diff(before) >= pace.bytes {
                (since, before) = (Instant::now(), now);
            } else if self.give_way(since.elapsed(), pace.turn) {
                return;
            }
        }
    }

    fn give_way(&self, dripped: Duration, turn: Duration) -> bool {
        self.places.send_if_modified(|places| places.give_way(self.number, dripped, turn))
    }
}

impl Drop for PullPlace {
    fn drop(&mut self) {
        self.places.send_modify(|places| places.leave(self.number));
    }
}

impl Places {
    fn new(count: usize) -> Self {
        Self { count: count.max(1), next: 0, held: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    fn enter(&mut self, pull: Pull) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, pull);
        self.fill();
        self.next
    }

    fn leave(&mut self, number: u64) {
        self.held.remove(&number);
        self.waiting.remove(&number);
        self.fill();
    }

    /// Gives the place of a pull that has dripped for so long to one that waits: of the same caller,
    /// or of a caller with at least two places less, so that the only pull of a caller gives way to
    /// no other caller. One that has given way itself waits twice as long for that each time, so
    /// that pulls which all need long for their first byte get it.
    fn give_way(&mut self, number: u64, dripped: Duration, turn: Duration) -> bool {
        let pull = self.held.remove(&number).expect("it has a place");
        let is_next = |next: &Pull| {
            let is_due = dripped >= turn * (1 << next.turns.min(DOUBLINGS));
            let has_more = self.of_caller(pull.caller) > self.of_caller(next.caller);
            is_due && (next.caller == pull.caller || has_more)
        };
        let Some(next) = self.next(is_next) else {
            self.held.insert(number, pull);
            return false;
        };
        self.grant(next);
        self.waiting.insert(number, Pull { turns: pull.turns + 1, ..pull });
        self.fill();
        true
    }

    fn fill(&mut self) {
        while let Some(next) = self.next(|_| true) {
            self.grant(next);
        }
    }

    fn grant(&mut self, number: u64) {
        let pull = self.waiting.remove(&number).expect("it waits");
        self.held.insert(number, pull);
    }

    /// The next of these pulls that gets a place, if there is one for it.
    fn next(&self, among: impl Fn(&Pull) -> bool) -> Option<u64> {
        let fits = self.waiting.iter().filter(|(_, pull)| self.has_room(pull) && among(pull));
        let order =
            |&(number, pull): &(&u64, &Pull)| (self.of_caller(pull.caller), pull.turns, *number);
        fits.min_by_key(order).map(|(number, _)| *number)
    }

    fn has_room(&self, pull: &Pull) -> bool {
        let of_tenant = |it: &Pull| it.tenant == pull.tenant;
        self.held.len() < self.count
            && self.number(|it| it.registry == pull.registry) < (self.count * 3).div_ceil(4)
            && self.number(of_tenant) < self.count.div_ceil(2)
            && (pull.caller.is_none()
                || self.number(|it| of_tenant(it) && it.caller == pull.caller)
                    < (self.count * 3).div_ceil(8))
    }

    fn of_caller(&self, caller: Option<u64>) -> usize {
        self.number(|pull| pull.caller == caller)
    }

    fn number(&self, of: impl Fn(&Pull) -> bool) -> usize {
        self.held.values().filter(|pull| of(pull)).count()
    }
}

impl Pull {
    fn new(location: &Location, caller: Option<u64>) -> Self {
        let (registry, tenant) = groups(location);
        Self { registry, tenant, caller, turns: 0 }
    }
}

/// The names of a location's two groups: its registry, and there its first path segment. A
/// directory is both.
fn groups(location: &Location) -> (String, String) {
    match location.image().map(Reference::repository) {
        Some(Repository::Registry { host, path }) => {
            let first = path.split('/').next().unwrap_or_default();
            (host.clone(), format!("{host}/{first}"))
        }
        _ => (location.to_string(), format!("{location}/")),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::pending, pin::pin};

    use futures::FutureExt as _;

    use super::*;

    fn image(text: &str) -> Location {
        Location::Image(text.parse().expect("a valid reference"))
    }

    /// Takes a place that is free.
    fn taken(places: &PullPlaces, text: &str, is_own: bool) -> Option<PullPlace> {
        let asker = if is_own { Asker::Own } else { Asker::Stranger(None) };
        places.take(&image(text), asker).now_or_never()
    }

    #[tokio::test]
    async fn a_caller_leaves_places_of_a_tenant_to_others() {
        let places = PullPlaces::new(8);
        let taken = |caller, number| {
            let image = image(&format!("a.example/team/{number}"));
            places.take(&image, Asker::Stranger(Some(caller))).now_or_never()
        };
        let held: Vec<_> = (0..4).filter_map(|number| taken(1, number)).collect();
        assert_eq!(held.len(), 3);
        assert!(taken(2, 9).is_some());
    }

    #[tokio::test]
    async fn a_tenant_and_a_registry_leave_places_to_others() {
        let places = PullPlaces::new(8);
        let mut held: Vec<_> = (0..4)
            .map(|n| taken(&places, &format!("a.example/team/{n}"), false).unwrap())
            .collect();
        assert!(taken(&places, "a.example/team/9", false).is_none(), "half for a tenant");
        held.extend((0..2).map(|n| taken(&places, &format!("a.example/{n}/m"), false).unwrap()));
        assert!(taken(&places, "a.example/other/m", false).is_none(), "three quarters a registry");
        held.extend(taken(&places, "b.example/team/m", false));
        held.extend(taken(&places, "c.example/team/m", false));
        assert_eq!(held.len(), 8);
        assert!(taken(&places, "d.example/team/m", false).is_none(), "all are taken");
        assert!(taken(&places, "a.example/team/live", true).is_some(), "in service already");
    }

    #[tokio::test]
    async fn a_waiting_pull_gets_the_next_place() {
        let places = PullPlaces::new(2);
        let first = taken(&places, "a.example/team/1", false).unwrap();
        let second = image("a.example/team/2");
        let mut waiting = pin!(places.take(&second, Asker::Stranger(None)));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(taken(&places, "b.example/team/1", false).expect("another tenant"));
        drop(first);
        drop(waiting.await);
        drop(taken(&places, "c.example/team/1", false).unwrap());
        assert!(places.strangers.borrow().held.is_empty());
    }

    const PACE: Pace = Pace { bytes: 10, turn: Duration::from_secs(4) };
    const STRANGER: Asker = Asker::Stranger(Some(1));

    #[tokio::test(start_paused = true)]
    async fn a_pull_that_drips_while_another_waits_gives_way_and_begins_again_later() {
        let places = PullPlaces::new(1);
        let drips = places.take(&image("a.example/team/slow"), STRANGER).await;
        let begun = Cell::new(0);
        let transfer = || {
            begun.set(begun.get() + 1);
            pending::<()>()
        };
        let others = async {
            sleep(PACE.turn * 10).await;
            assert_eq!(begun.get(), 1, "nobody waits");
            let asked = Instant::now();
            let place = places.take(&image("a.example/team/quick"), STRANGER).await;
            assert!(asked.elapsed() < PACE.turn);
            let since = Instant::now();
            let received = || since.elapsed().as_secs() * PACE.bytes;
            place.hold(PACE, received, || sleep(PACE.turn * 10)).await;
            assert_eq!(begun.get(), 1, "one that receives enough keeps its place");
            drop(place);
            sleep(PACE.turn).await;
        };
        tokio::select! {
            () = drips.hold(PACE, || 0, transfer) => unreachable!("it has no end"),
            () = others => assert_eq!(begun.get(), 2),
        }
    }

    #[test]
    fn the_only_pull_of_a_caller_gives_way_to_no_other_caller() {
        // The callers with places, one that waits, and the outcome when the first one drips.
        for (held, waits, gives_way) in [
            (&[1][..], 1, true),
            (&[1], 2, false),
            (&[1, 1], 2, true),
            (&[1, 2], 2, false),
            (&[1, 1, 2], 2, false),
            (&[1, 1, 1, 2], 2, true),
        ] {
            let mut places = Places::new(held.len());
            for (number, caller) in held.iter().chain([&waits]).enumerate() {
                let image = image(&format!("{number}.example/team/m"));
                places.enter(Pull::new(&image, Some(*caller)));
            }
            assert!(!places.give_way(1, PACE.turn / 2, PACE.turn), "{held:?}");
            assert_eq!(places.give_way(1, PACE.turn, PACE.turn), gives_way, "{held:?}");
            if gives_way {
                let last = places.next;
                assert!(!places.give_way(last, PACE.turn, PACE.turn), "{held:?}");
                let again = held.len() == 1;
                assert_eq!(places.give_way(last, PACE.turn * 2, PACE.turn), again, "{held:?}");
            }
        }
    }
}
