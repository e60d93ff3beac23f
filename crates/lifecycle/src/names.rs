//! The names of models in the configuration, and the images they refer to.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
    sync::Arc,
};

use outrigger_core::{
    EngineId, Failure, ModelKey, ModelName, Reason, Rollover, Selector, Tag,
    machines::{CanaryTags, Event, TagKey},
};
use outrigger_oci::{Prefix, Reference};

use crate::{
    config::{Images, ModelEntry, Tunables},
    error::Error,
    location::Location,
    numbered::Versions,
};

/// The names of models, and their images. A request never names a host: only the configuration maps
/// names to references.
#[derive(Debug)]
pub(crate) struct Names {
    default_tag: Tag,
    repository: Option<String>,
    allowed: Vec<Prefix>,
    entries: BTreeMap<ModelName, Entry>,
    /// The selectors of requests without tag and digest as they were before a change: each answers
    /// until the new selector does.
    before: BTreeMap<ModelName, Selector>,
}

#[derive(Debug)]
struct Entry {
    configured: ModelEntry,
    image: Option<Reference>,
    /// The versions in the model's directory, if it comes from one.
    versions: Option<Arc<Versions>>,
}

impl Names {
    /// # Errors
    /// If a reference or prefix cannot be parsed, or a name is listed twice.
    pub(crate) fn new(images: &Images, tunables: &Tunables) -> Result<Self, Error> {
        if let Some(repository) = &images.repository {
            parse::<Prefix>("images.repository", repository)?;
        }
        let (default_tag, repository) = (images.default_tag.clone(), images.repository.clone());
        Self::read(default_tag, repository, tunables, |_| None)
    }

    /// The names of another configuration. `current` returns the selector that requests for a model
    /// without tag and digest get now.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn with(
        &self,
        tunables: &Tunables,
        current: impl Fn(&ModelName) -> Selector,
    ) -> Result<Self, Error> {
        let (default_tag, repository) = (self.default_tag.clone(), self.repository.clone());
        let mut names = Self::read(default_tag, repository, tunables, |it| self.directory(it))?;
        let all: BTreeSet<_> = self.entries.keys().chain(names.entries.keys()).cloned().collect();
        let before = all.into_iter().map(|name| (current(&name), name));
        let before = before.filter(|(before, name)| *before != names.default_selector(name));
        names.before = before.map(|(before, name)| (name, before)).collect();
        Ok(names)
    }

    /// `known` returns the versions in the directory of a model, if they are known.
    fn read<'a>(
        default_tag: Tag,
        repository: Option<String>,
        tunables: &Tunables,
        known: impl Fn(&ModelName) -> Option<&'a Arc<Versions>>,
    ) -> Result<Self, Error> {
        let allowed = tunables.allowed.iter().enumerate();
        let allowed = allowed.map(|(i, text)| parse(&format!("images.allowed[{i}]"), text));
        let mut names = Self {
            default_tag,
            repository,
            allowed: allowed.collect::<Result<_, _>>()?,
            entries: BTreeMap::new(),
            before: BTreeMap::new(),
        };
        for (i, entry) in tunables.models.iter().enumerate() {
            let key = format!("models[{i}]");
            let image = entry.image.as_deref();
            let image = image.map(|text| parse(&format!("{key}.image"), text)).transpose()?;
            let versions = entry.directory.clone().map(|directory| match known(&entry.name) {
                Some(versions) => versions.with(directory),
                None => Arc::new(Versions::new(directory)),
            });
            let value = Entry { configured: entry.clone(), image, versions };
            if names.entries.insert(entry.name.clone(), value).is_some() {
                let message = format!("{} is listed twice", entry.name);
                return Err(Error::Config { key, message });
            }
        }
        Ok(names)
    }

    /// Whether the configuration lists `model`.
    pub(crate) fn is_configured(&self, model: &ModelName) -> bool {
        self.entries.contains_key(model)
    }

    /// The engine that the configuration names for `model`.
    pub(crate) fn engine(&self, model: &ModelName) -> Option<&EngineId> {
        self.entries.get(model)?.configured.engine.as_ref()
    }

    /// The selector of requests without tag and digest, of a model of which the engine may have one
    /// version at a time.
    fn replaced(&self, model: &ModelName) -> Option<Selector> {
        let rollover = self.entries.get(model)?.configured.rollover;
        (rollover == Rollover::Replace).then(|| self.default_selector(model))
    }

    /// The selector of a request for `model` without tag and digest.
    pub(crate) fn default_selector(&self, model: &ModelName) -> Selector {
        match self.entries.get(model).map(|entry| &entry.configured) {
            Some(ModelEntry { digest: Some(digest), .. }) => Selector::Digest(*digest),
            Some(ModelEntry { tag: Some(tag), .. }) => Selector::Tag(tag.clone()),
            Some(ModelEntry { directory: Some(_), .. }) => Selector::Tag(Versions::latest()),
            _ => Selector::Tag(self.default_tag.clone()),
        }
    }

    /// The selectors before the last change, of the models whose selector changed.
    pub(crate) fn before(&self) -> &BTreeMap<ModelName, Selector> {
        &self.before
    }

    /// The rules that say which tags name canaries.
    pub(crate) fn canary_tags(&self) -> CanaryTags {
        let own = |(name, entry): (&ModelName, &Entry)| {
            let latest = || entry.versions.as_ref().map(|_| Versions::latest());
            Some((name.clone(), entry.configured.tag.clone().or_else(latest)?))
        };
        let default_tags = self.entries.iter().filter_map(own).collect();
        CanaryTags { default_tag: self.default_tag.clone(), default_tags }
    }

    /// The versions in the directory of `model`, if it comes from one.
    pub(crate) fn directory(&self, model: &ModelName) -> Option<&Arc<Versions>> {
        self.entries.get(model)?.versions.as_ref()
    }

    /// The models that come from directories, with the versions in these.
    pub(crate) fn directories(&self) -> impl Iterator<Item = (&ModelName, &Arc<Versions>)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name, entry.versions.as_ref()?)))
    }

    /// The models to load at the start and keep in service: the versions of a directory always are.
    fn preloads(&self) -> impl Iterator<Item = (ModelName, Selector)> {
        let is_preloaded = |entry: &&Entry| entry.configured.preload || entry.versions.is_some();
        let preloaded = self.entries.values().filter(is_preloaded);
        preloaded.map(|entry| &entry.configured.name).map(|name| {
            let selector = self.default_selector(name);
            (name.clone(), selector)
        })
    }

    /// The events by which the machines follow this configuration from the start.
    pub(crate) fn begin(&self, tunables: &Tunables) -> Vec<Event> {
        let canaries = Event::Canaries(tunables.canary.enabled.then(|| self.canary_tags()));
        // First, so that no two versions of such a model are loaded.
        let replaced = self.entries.keys().filter(|name| self.replaced(name).is_some());
        let replaced = replaced.map(|name| Event::Rollover(name.clone(), self.replaced(name)));
        let preloads = self.preloads().map(|it| want(it, true));
        replaced.chain([canaries]).chain(preloads).collect()
    }

    /// The events that change the machines from the configuration `old` to this one. `known` lists
    /// the models that they know.
    pub(crate) fn changes(&self, old: &Self, mut known: BTreeSet<ModelName>) -> Vec<Event> {
        let (mut before, after): (BTreeSet<_>, BTreeSet<_>) =
            (old.preloads().collect(), self.preloads().collect());
        let dropped = before.difference(&after).cloned().map(|it| want(it, false));
        let mut events: Vec<_> = dropped.collect();
        let unlisted = old.directories().map(|(name, _)| name);
        let unlisted: Vec<_> = unlisted.filter(|name| self.directory(name).is_none()).collect();
        events.extend(unlisted.iter().map(|name| Event::Unlisted((*name).clone())));
        // Their tags are not followed any more, so that the ones to be preloaded are followed anew.
        before.retain(|(name, _)| !unlisted.contains(&name));
        known.extend(self.entries.keys().chain(old.entries.keys()).cloned());
        for name in known {
            let location = self.location(&name).ok();
            if location != old.location(&name).ok() {
                let is_dropped =
                    old.entries.contains_key(&name) && !self.entries.contains_key(&name);
                let forget = location.is_none() || is_dropped;
                events.push(Event::ImageChanged { name: name.clone(), forget });
            }
            let replaced = self.replaced(&name);
            if replaced != old.replaced(&name) {
                events.push(Event::Rollover(name.clone(), replaced));
            }
            if self.engine(&name) != old.engine(&name) {
                let engine = self.engine(&name).cloned();
                events.push(Event::EngineChanged(name, engine));
            }
        }
        events.extend(after.difference(&before).cloned().map(|it| want(it, true)));
        events
    }

    /// The place that holds the versions of `model`.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND` and `IMAGE_NOT_ALLOWED`.
    pub(crate) fn location(&self, model: &ModelName) -> Result<Location, Failure> {
        match self.directory(model) {
            Some(versions) => Ok(Location::Directory(versions.directory.path.clone())),
            None => self.image(model).map(Location::Image),
        }
    }

    /// The image of `model`, without tag and digest, if it does not come from a directory.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND` and `IMAGE_NOT_ALLOWED`.
    pub(crate) fn image(&self, model: &ModelName) -> Result<Reference, Failure> {
        let listed = self.entries.get(model).and_then(|entry| entry.image.clone());
        let image = match (listed, &self.repository) {
            (Some(image), _) => image,
            (None, Some(repository)) => under(repository, model)?,
            (None, None) => return Err(unknown(model, "it is not configured")),
        };
        if self.allowed.iter().any(|prefix| image.is_within(prefix)) {
            return Ok(image);
        }
        let message = format!("model {model}: its image is not under images.allowed");
        Err(Failure::new(Reason::ImageNotAllowed, message))
    }
}

/// The event by which the configuration begins, or ceases, to keep a model up.
fn want((name, selector): (ModelName, Selector), wanted: bool) -> Event {
    match (selector, wanted) {
        (Selector::Tag(tag), true) => Event::Follow(TagKey { name, tag }),
        (Selector::Tag(tag), false) => Event::Unfollow(TagKey { name, tag }),
        (Selector::Digest(digest), true) => Event::Pin(ModelKey { name, digest }),
        (Selector::Digest(digest), false) => Event::Unpin(ModelKey { name, digest }),
    }
}

fn under(repository: &str, model: &ModelName) -> Result<Reference, Failure> {
    let text = format!("{}/{model}", repository.trim_end_matches('/'));
    // Some names, such as `a..b`, are not valid as a repository in any registry.
    text.parse().map_err(|_| unknown(model, "its name cannot be that of an image"))
}

fn unknown(model: &ModelName, why: &str) -> Failure {
    Failure::new(Reason::ModelNotFound, format!("model {model}: {why}"))
}

pub(crate) fn parse<T: FromStr<Err: std::fmt::Display>>(key: &str, text: &str) -> Result<T, Error> {
    let config = |error: T::Err| Error::Config { key: key.to_owned(), message: error.to_string() };
    text.parse().map_err(config)
}
