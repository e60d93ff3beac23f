//! Places for pulls, shared out between registries and tenants.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use outrigger_oci::{Reference, Repository};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::location::Location;

/// The places for pulls. Versions of models in service, and models that the configuration names,
/// have places of their own, so that they never wait behind models that only requests named.
#[derive(Debug)]
pub(crate) struct PullPlaces {
    own: Places,
    strangers: Places,
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
    _held: Vec<OwnedSemaphorePermit>,
}

/// Places, of which one registry gets at most three quarters, and the repositories of one registry
/// with the same first path segment at most half: a slow registry, or the slow repositories of one
/// tenant, leave places to all others. Of such a half, one caller gets at most three quarters.
#[derive(Debug)]
struct Places {
    count: usize,
    all: Arc<Semaphore>,
    /// The places of each group with a pull in progress or waiting.
    groups: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl PullPlaces {
    /// `count` places for versions of models in service, and as many for all others.
    pub(crate) fn new(count: usize) -> Self {
        Self { own: Places::new(count), strangers: Places::new(count) }
    }

    /// Waits for a place to pull from `location`. Pulls get their places in the order of their
    /// calls.
    pub(crate) async fn take(&self, location: &Location, asker: Asker) -> PullPlace {
        match asker {
            Asker::Own => self.own.take(location, None).await,
            Asker::Stranger(caller) => self.strangers.take(location, caller).await,
        }
    }
}

impl Places {
    fn new(count: usize) -> Self {
        let count = count.max(1);
        Self { count, all: Arc::new(Semaphore::new(count)), groups: Mutex::default() }
    }

    /// The places of the smaller group are taken first, so that a pull that waits for its group
    /// holds no place that another group could use.
    async fn take(&self, location: &Location, caller: Option<u64>) -> PullPlace {
        let (registry, tenant) = groups(location);
        let most = (self.count * 3).div_ceil(8);
        let caller = caller.map(|caller| self.group(format!("{tenant} {caller}"), most));
        let tenant = self.group(tenant, self.count.div_ceil(2));
        let registry = self.group(registry, (self.count * 3).div_ceil(4));
        let mut held = Vec::new();
        for places in caller.into_iter().chain([tenant, registry, Arc::clone(&self.all)]) {
            held.push(places.acquire_owned().await.expect("never closed"));
        }
        PullPlace { _held: held }
    }

    fn group(&self, name: String, count: usize) -> Arc<Semaphore> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = groups.get(&name).and_then(Weak::upgrade) {
            return places;
        }
        groups.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(count));
        groups.insert(name, Arc::downgrade(&places));
        places
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
    use std::pin::pin;

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
    async fn a_waiting_pull_gets_the_next_place_and_idle_groups_are_forgotten() {
        let places = PullPlaces::new(2);
        let first = taken(&places, "a.example/team/1", false).unwrap();
        let second = image("a.example/team/2");
        let mut waiting = pin!(places.take(&second, Asker::Stranger(None)));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(taken(&places, "b.example/team/1", false).expect("another tenant"));
        drop(first);
        drop(waiting.await);
        drop(taken(&places, "c.example/team/1", false).unwrap());
        assert_eq!(places.strangers.groups.lock().unwrap().len(), 2, "only those of the last pull");
    }
}
