//! Tags of sources that list them, such as a directory of numbered versions.

use std::collections::BTreeSet;

use super::{Answer, Event, Machines, TagKey, Turn};
use crate::{
    Digest, ModelKey, ModelName, Moment, Reason, Tag,
    model::ModelMachine,
    tags::{self, TagMachine},
};

/// The tags that a source lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Listed {
    /// All of them.
    pub tags: BTreeSet<Tag>,
    /// The tag that names the newest version, if the source has one.
    pub latest: Option<Latest>,
}

/// A tag that names the newest of several versions. While that one cannot be served, the next one
/// that can be answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Latest {
    /// The tag.
    pub tag: Tag,
    /// The tags of the versions, newest first.
    pub versions: Vec<Tag>,
    /// The source lists further versions once it learns that these cannot be served.
    pub has_more: bool,
}

impl Machines {
    /// Follows the listed tags of `name`, and looks them up because the source has changed.
    pub(super) fn set_listed(&mut self, turn: &mut Turn, name: ModelName, listed: Listed) {
        let tags = &listed.tags;
        // Canary tags that are followed along with other tags may have changed, too.
        let known = self.tags_of(&name).map(|(key, _)| key.clone());
        let known: Vec<_> = known.filter(|key| !tags.contains(&key.tag)).collect();
        turn.events.extend(known.iter().map(|key| looked_up(key.clone())));
        turn.events.extend(known.into_iter().map(Event::Unfollow));
        for tag in tags {
            let key = TagKey { name: name.clone(), tag: tag.clone() };
            // Another version may be new: one that an operator has unloaded stays unloaded.
            if !self.tags.get(&key).is_some_and(TagMachine::is_configured) {
                turn.events.push_back(Event::Follow(key.clone()));
            }
            turn.events.push_back(looked_up(key));
        }
        self.touch(&name);
        self.listed.insert(name, listed);
    }

    pub(super) fn unlist(&mut self, turn: &mut Turn, name: &ModelName) {
        for tag in self.listed.remove(name).into_iter().flat_map(|listed| listed.tags) {
            turn.events.push_back(Event::Unfollow(TagKey { name: name.clone(), tag }));
        }
    }

    /// Withdraws the tags of `name` that its source does not list, once a listed tag answers with
    /// the digest that the source names: until then they keep the last versions that worked.
    pub(super) fn reconcile_listed(&self, turn: &mut Turn, name: &ModelName) {
        let Some(Listed { tags: listed, .. }) = self.listed.get(name) else { return };
        let mut of_list = self.tags_of(name).filter(|(key, _)| listed.contains(&key.tag));
        if !of_list.any(|(_, tag)| tag.is_current()) {
            return;
        }
        // A canary tag is the business of its trial.
        let is_gone = |key: &TagKey, tag: &TagMachine| {
            !listed.contains(&key.tag)
                && !tag.is_accompanying()
                && tag.serving().or(tag.registry()).is_some()
        };
        let gone = self.tags_of(name).filter(|(key, tag)| is_gone(key, tag));
        let gone = gone.map(|(key, _)| Event::Tag(key.clone(), tags::Event::Withdrawn));
        turn.events.extend(gone);
    }

    /// Lets an older version answer for the tag of the newest one while nothing does, or while the
    /// version that answered fails.
    pub(super) fn reconcile_latest(&self, turn: &mut Turn, name: &ModelName) {
        let Some(latest) = self.listed.get(name).and_then(|listed| listed.latest.as_ref()) else {
            return;
        };
        let key = TagKey { name: name.clone(), tag: latest.tag.clone() };
        if let Some(digest) = self.tags.get(&key).and_then(|tag| self.stand_in(name, tag, latest)) {
            turn.events.push_back(Event::Tag(key, tags::Event::StandIn(digest)));
        }
    }

    /// The newest version that is up and should answer for `tag` in place of its own.
    fn stand_in(&self, name: &ModelName, tag: &TagMachine, latest: &Latest) -> Option<Digest> {
        let key = |digest| ModelKey { name: name.clone(), digest };
        let is_up = |digest: &Digest| {
            self.models.get(&key(*digest)).is_some_and(|it| it.routed().is_some())
        };
        if tag.candidate().or(tag.serving()).is_some_and(|own| is_up(&own)) {
            return None;
        }
        let versions = latest.versions.iter().filter_map(|version| {
            self.tags.get(&TagKey { name: name.clone(), tag: version.clone() })
        });
        let digests: Vec<_> =
            versions.flat_map(|it| it.registry().into_iter().chain(it.serving())).collect();
        // A listed version that answers gives way to newer ones only.
        let end = match tag.serving() {
            Some(serving) if !self.fails(&key(serving)) => {
                digests.iter().position(|digest| *digest == serving).unwrap_or(digests.len())
            }
            _ => digests.len(),
        };
        digests[..end].iter().copied().find(is_up).filter(|up| tag.serving() != Some(*up))
    }

    /// The answer to requests for a tag of the newest version while that one cannot be served:
    /// `None` if no other version is on its way.
    pub(super) fn answer_latest(&self, key: &TagKey, now: Moment) -> Option<Answer> {
        let latest = self.listed.get(&key.name)?.latest.as_ref()?;
        let tag = self.tags.get(key).filter(|_| latest.tag == key.tag)?;
        let others = latest.versions.iter().map(|version| {
            self.answer_tag(&TagKey { name: key.name.clone(), tag: version.clone() }, now)
        });
        let others: Vec<_> = others.collect();
        let is_coming = others.iter().any(|other| matches!(other, Answer::Waiting(_)));
        if is_coming || latest.has_more && tag.trouble().is_none() {
            return Some(Answer::Waiting(None));
        }
        others.into_iter().find(|other| matches!(other, Answer::Retrying(..)))
    }

    /// Returns true if `key` names one of several versions, which fails, and the tag of the newest one
    /// is answered.
    pub(super) fn has_stand_in(&self, key: &TagKey, now: Moment) -> bool {
        let latest = self.listed.get(&key.name).and_then(|listed| listed.latest.as_ref());
        let Some(latest) = latest.filter(|it| it.versions.contains(&key.tag)) else { return false };
        let newest = TagKey { name: key.name.clone(), tag: latest.tag.clone() };
        matches!(self.answer_tag(key, now), Answer::Retrying(..))
            && matches!(self.answer_tag(&newest, now), Answer::Ready(..))
    }

    /// The versions of `name` that cannot be served for a reason of their own.
    pub fn failing(&self, name: &ModelName) -> BTreeSet<Digest> {
        let keys = self.models_of(name).map(ModelMachine::key);
        keys.filter(|key| self.fails(key)).map(|key| key.digest).collect()
    }

    fn fails(&self, key: &ModelKey) -> bool {
        let model = self.models.get(key).filter(|model| model.routed().is_none());
        let trouble = model.and_then(ModelMachine::trouble);
        // An outage of the engine concerns its other versions, too.
        trouble.is_some_and(|trouble| trouble.failure.reason != Reason::EngineUnavailable)
    }
}

fn looked_up(key: TagKey) -> Event {
    Event::Tag(key, tags::Event::LookUp)
}
