//! A store of objects in memory that does what a script says.

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use outrigger_batch::{Failure, Listed, Objects, Patience, Put, Store};
use outrigger_tables::Stat;

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The store answers.
    Answered,
    /// The store is away.
    Away,
    /// The store does what it is asked for, and its answer is lost.
    Lost,
    /// The store refuses the credentials.
    Refused,
}

/// Decides on a request by its method and its key.
type Script = dyn FnMut(&str, &str) -> Fate + Send;

/// The store. Clones share it.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<Mutex<State>>);

struct State {
    objects: BTreeMap<String, Bytes>,
    uploads: BTreeMap<String, BTreeMap<usize, Bytes>>,
    script: Box<Script>,
    requests: u64,
    /// True if a new object replaces one with its key.
    ignores_conditions: bool,
}

impl Scripted {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            uploads: BTreeMap::new(),
            script: Box::new(|_, _| Fate::Answered),
            requests: 0,
            ignores_conditions: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("not poisoned")
    }

    pub(crate) fn script(&self, script: impl FnMut(&str, &str) -> Fate + Send + 'static) {
        self.state().script = Box::new(script);
    }

    pub(crate) fn ignore_conditions(&self) {
        self.state().ignores_conditions = true;
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.state().requests
    }

    /// The keys of all objects, and the names of uploads that are not finished.
    pub(crate) fn keys(&self) -> (Vec<String>, Vec<String>) {
        let state = self.state();
        (state.objects.keys().cloned().collect(), state.uploads.keys().cloned().collect())
    }

    /// The objects below `prefix` as a store.
    pub(crate) fn store(&self, prefix: &str, patience: &Patience) -> Store {
        Store::in_objects(Arc::new(self.clone()), prefix, patience.clone())
    }

    /// Removes the objects and the uploads below `prefix`.
    pub(crate) fn remove_below(&self, prefix: &str) {
        let mut state = self.state();
        state.objects.retain(|key, _| !key.starts_with(prefix));
        state.uploads.retain(|name, _| !name.starts_with(prefix));
    }

    /// Writes the objects below `prefix` to a directory.
    pub(crate) fn save(&self, prefix: &str, directory: &Path) {
        for (key, content) in &self.state().objects {
            let Some(name) = key.strip_prefix(prefix) else { continue };
            let path = directory.join(name.trim_start_matches('/'));
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, content).expect("a file");
        }
    }

    fn request<T>(
        &self,
        (method, key): (&str, &str),
        answer: impl FnOnce(&mut State) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut state = self.state();
        state.requests += 1;
        let away = Failure::Away("scripted".to_owned());
        match (state.script)(method, key) {
            Fate::Answered => answer(&mut state),
            Fate::Away => Err(away),
            Fate::Lost => answer(&mut state).and(Err(away)),
            Fate::Refused => Err(Failure::Refused("403 Forbidden (ExpiredToken)".to_owned())),
        }
    }
}

/// The tag of a content.
fn tag_of(content: &Bytes) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl Objects for Scripted {
    fn put(&self, key: &str, content: &Bytes, put: Put<'_>) -> Result<(), Failure> {
        self.request(("put", key), |state| {
            let is_taken = state.objects.contains_key(key) && !state.ignores_conditions;
            if put == Put::New && is_taken {
                return Err(Failure::Exists);
            }
            let is_other = |tag| state.objects.get(key).map(tag_of).as_deref() != Some(tag);
            if matches!(put, Put::Matching(tag) if is_other(tag)) {
                return Err(Failure::Changed);
            }
            state.objects.insert(key.to_owned(), content.clone());
            Ok(())
        })
    }

    fn get(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        _tag: Option<&str>,
    ) -> Result<Bytes, Failure> {
        self.request(("get", key), |state| {
            let content = state.objects.get(key).ok_or(Failure::Absent)?;
            let range = range.map_or(0..content.len(), |it| it.start as usize..it.end as usize);
            Ok(content.slice(range))
        })
    }

    fn get_tagged(&self, key: &str) -> Result<(Bytes, Option<String>), Failure> {
        self.get(key, None, None).map(|content| (content.clone(), Some(tag_of(&content))))
    }

    fn stat(&self, key: &str) -> Result<Stat, Failure> {
        self.request(("stat", key), |state| {
            let content = state.objects.get(key).ok_or(Failure::Absent)?;
            Ok(Stat { size: content.len() as u64, modified: 0, tag: None })
        })
    }

    fn list(&self, prefix: &str) -> Result<Listed, Failure> {
        self.request(("list", prefix), |state| {
            let mut listed = Listed::default();
            for rest in state.objects.keys().filter_map(|key| key.strip_prefix(prefix)) {
                match rest.split_once('/') {
                    None => listed.names.push(rest.to_owned()),
                    Some((directory, _)) => listed.directories.push(directory.to_owned()),
                }
            }
            listed.directories.dedup();
            Ok(listed)
        })
    }

    fn list_all(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        self.request(("list", prefix), |state| {
            Ok(state.objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect())
        })
    }

    fn remove(&self, key: &str) -> Result<(), Failure> {
        self.request(("remove", key), |state| {
            state.objects.remove(key);
            Ok(())
        })
    }

    fn begin_parts(&self, key: &str) -> Result<String, Failure> {
        self.request(("begin", key), |state| {
            let name = format!("{key}-{}", state.requests);
            state.uploads.insert(name.clone(), BTreeMap::new());
            Ok(name)
        })
    }

    fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: usize,
        content: &Bytes,
    ) -> Result<String, Failure> {
        self.request(("part", key), |state| {
            let parts = state.uploads.get_mut(upload).ok_or(Failure::Absent)?;
            parts.insert(part, content.clone());
            Ok(part.to_string())
        })
    }

    fn finish_parts(&self, key: &str, upload: &str, parts: &[String]) -> Result<(), Failure> {
        self.request(("finish", key), |state| {
            let found = state.uploads.remove(upload).ok_or(Failure::Absent)?;
            let content: Vec<_> = parts
                .iter()
                .map(|part| &**found.get(&part.parse().expect("a number")).expect("a part"))
                .collect();
            let content = content.concat().into();
            state.objects.insert(key.to_owned(), content);
            Ok(())
        })
    }

    fn abort_parts(&self, key: &str, upload: &str) -> Result<(), Failure> {
        self.request(("abort", key), |state| {
            state.uploads.remove(upload).map(drop).ok_or(Failure::Absent)
        })
    }
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}
