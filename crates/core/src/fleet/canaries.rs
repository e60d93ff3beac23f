//! Tags that are followed because they name the canary of one that is.

use std::collections::{BTreeMap, BTreeSet};

use super::{Event, Fleet, TagKey, Turn};
use crate::{
    Digest, ModelName, Tag,
    tags::{self, TagMachine},
};

/// Which tags name a canary, and those of each tag that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Canaries {
    default_tag: Tag,
    default_tags: BTreeMap<ModelName, Tag>,
    of: BTreeMap<TagKey, Vec<TagKey>>,
}

impl Canaries {
    /// The tags that name the canary of `key`, those that count more first.
    fn of(&mut self, key: &TagKey) -> &[TagKey] {
        if !self.of.contains_key(key) {
            self.of.insert(key.clone(), self.named(key).collect());
        }
        &self.of[key]
    }

    fn named(&self, key: &TagKey) -> impl Iterator<Item = TagKey> {
        let default_tag = self.default_tags.get(&key.name).unwrap_or(&self.default_tag);
        let tags = key.tag.canaries(key.tag == *default_tag);
        tags.map(|tag| TagKey { name: key.name.clone(), tag })
    }
}

impl Fleet {
    /// Follows the canary of each followed tag with it. `default_tags` are those
    /// of models whose default is another than `default_tag`. To be called before
    /// any event.
    pub fn follow_canaries(&mut self, default_tag: Tag, default_tags: BTreeMap<ModelName, Tag>) {
        self.canaries = Some(Canaries { default_tag, default_tags, of: BTreeMap::new() });
    }

    /// The tag that names the canary of `key`, and which digest it is: of several,
    /// one that there is something to try of. It may be the digest that `key` itself
    /// is, or one that was rejected, if there is no other.
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

    /// The tag that names, or last named, `canary` as the one of `key`, whether or not
    /// that is followed.
    pub fn canary_tag(&self, key: &TagKey, canary: Digest) -> Option<TagKey> {
        let named = |key: &TagKey| {
            let tag = self.tags.get(key);
            tag.is_some_and(|tag| tag.registry().or(tag.serving()) == Some(canary))
        };
        self.canaries.as_ref()?.named(key).find(named)
    }

    /// The followed tag whose canary `canary` names.
    pub fn accompanied(&self, canary: &TagKey) -> Option<&TagKey> {
        let of = &self.canaries.as_ref()?.of;
        of.iter().find_map(|(key, named)| named.contains(canary).then_some(key))
    }

    /// Has the canaries of followed tags looked for, and no others. Of a tag that
    /// nothing is known of, there is no canary to look for.
    pub(super) fn reconcile_canaries(&mut self, turn: &mut Turn) {
        let Some(canaries) = &mut self.canaries else { return };
        let mut named = BTreeSet::new();
        for (key, tag) in &self.tags {
            let known = tag.serving().or(tag.registry()).is_some();
            if known && tag.is_followed(&self.policy, turn.now) {
                named.extend(canaries.of(key).iter().cloned());
            }
        }
        canaries.of.retain(|key, _| self.tags.contains_key(key));
        for (key, tag) in &self.tags {
            if tag.is_accompanying() != named.remove(key) {
                let event = tags::Event::Accompany(!tag.is_accompanying());
                turn.events.push_back(Event::Tag(key.clone(), event));
            }
        }
        for key in named {
            let tag = TagMachine::accompanying(self.forgotten, turn.now);
            self.tags.insert(key.clone(), tag);
            turn.events.push_back(Event::Tag(key, tags::Event::Tick));
        }
    }
}
