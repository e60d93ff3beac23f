//! Tags that are followed because they name the canary of a followed tag.

use std::collections::{BTreeMap, BTreeSet};

use super::{Event, Machines, TagKey, Turn, reconcile::of_name};
use crate::{
    Digest, ModelName, Tag,
    tags::{self, TagMachine},
};

/// The rules that say which tags name a canary.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanaryTags {
    /// The default tag, whose canary tag may also have the plain name `canary`.
    pub default_tag: Tag,
    /// The models with another default tag.
    pub default_tags: BTreeMap<ModelName, Tag>,
}

/// The rules that say which tags name a canary, and the canary tags of each tag that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Canaries {
    tags: CanaryTags,
    of: BTreeMap<TagKey, Vec<TagKey>>,
}

impl Canaries {
    /// The tags that name the canary of `key`, by falling precedence.
    fn of(&mut self, key: &TagKey) -> &[TagKey] {
        if !self.of.contains_key(key) {
            self.of.insert(key.clone(), self.named(key).collect());
        }
        &self.of[key]
    }

    fn named(&self, key: &TagKey) -> impl Iterator<Item = TagKey> {
        let CanaryTags { default_tag, default_tags } = &self.tags;
        let default_tag = default_tags.get(&key.name).unwrap_or(default_tag);
        let tags = key.tag.canaries(key.tag == *default_tag);
        tags.map(|tag| TagKey { name: key.name.clone(), tag })
    }
}

impl Machines {
    pub(super) fn set_canary_tags(&mut self, tags: Option<CanaryTags>) {
        self.canaries = tags.map(|tags| Canaries { tags, of: BTreeMap::new() });
        self.dirty.extend(self.names());
    }

    /// The tag that names the canary of `key`, and the canary's digest. If several tags name one,
    /// the first that can be tried is chosen; without such a tag the digest may be that of `key`
    /// itself, or a rejected one.
    pub fn canary(&self, key: &TagKey) -> Option<(&TagKey, Digest)> {
        let live = self.tags.get(key).and_then(TagMachine::serving);
        let named = || {
            let named = self.canaries.as_ref()?.of.get(key)?;
            Some(named.iter().filter_map(|key| {
                let tag = self.tags.get(key)?;
                Some((key, tag, tag.canary()?))
            }))
        };
        let is_new = |(_, tag, digest): &(&TagKey, &TagMachine, Digest)| {
            live != Some(*digest) && tag.rejected() != Some(*digest)
        };
        let (key, _, digest) = named()?.find(is_new).or_else(|| named()?.next())?;
        Some((key, digest))
    }

    /// The tag that names, or last named, `canary` as the canary of `key`, whether or not that tag
    /// is followed.
    pub fn canary_tag(&self, key: &TagKey, canary: Digest) -> Option<TagKey> {
        let named = |key: &TagKey| {
            let tag = self.tags.get(key);
            tag.is_some_and(|tag| tag.registry().or(tag.serving()) == Some(canary))
        };
        self.canaries.as_ref()?.named(key).find(named)
    }

    /// The followed tag of which `canary` is a canary tag.
    pub fn accompanied<'a>(&'a self, canary: &'a TagKey) -> Option<&'a TagKey> {
        let mut of = of_name(&self.canaries.as_ref()?.of, &canary.name);
        of.find_map(|(key, named)| named.contains(canary).then_some(key))
    }

    /// Drops the canary tags of a tag that is forgotten, and returns them.
    pub(super) fn forget_canaries(&mut self, key: &TagKey) -> Vec<TagKey> {
        let canaries = self.canaries.as_mut().and_then(|canaries| canaries.of.remove(key));
        canaries.unwrap_or_default()
    }

    /// Follows the canary tags of the followed tags of `name`, and no other canary tags. A tag
    /// whose digest is not known yet needs no canary.
    pub(super) fn reconcile_canaries(&mut self, turn: &mut Turn, name: &ModelName) {
        let mut named = BTreeSet::new();
        // Two versions of a trial would be in the engine together.
        let may_try = !self.replaced.contains_key(name);
        if let Some(canaries) = self.canaries.as_mut().filter(|_| may_try) {
            for (key, tag) in of_name(&self.tags, name) {
                let known = tag.serving().or(tag.registry()).is_some();
                if known && tag.is_followed(&self.policy, turn.now) {
                    named.extend(canaries.of(key).iter().cloned());
                }
            }
        }
        for (key, tag) in of_name(&self.tags, name) {
            if tag.is_accompanying() != named.remove(key) {
                let event = tags::Event::Accompany(!tag.is_accompanying());
                turn.events.push_back(Event::Tag(key.clone(), event));
            }
        }
        for key in named {
            let tag = TagMachine::accompanying(self.forgotten, turn.now);
            self.tags.insert(key.clone(), tag);
            self.touch(name);
            turn.events.push_back(Event::Tag(key, tags::Event::Tick));
        }
    }
}
