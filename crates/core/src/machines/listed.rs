//! Tags of sources that list them, such as a directory of numbered versions.

use std::collections::BTreeSet;

use super::{Event, Machines, TagKey, Turn};
use crate::{
    ModelName, Tag,
    tags::{self, TagMachine},
};

impl Machines {
    /// Follows the listed tags of `name`, and looks them up because the source has changed.
    pub(super) fn set_listed(&mut self, turn: &mut Turn, name: ModelName, tags: BTreeSet<Tag>) {
        // Canary tags that are followed along with other tags may have changed, too.
        let known = self.tags_of(&name).map(|(key, _)| key.clone());
        let known: Vec<_> = known.filter(|key| !tags.contains(&key.tag)).collect();
        turn.events.extend(known.iter().map(|key| looked_up(key.clone())));
        turn.events.extend(known.into_iter().map(Event::Unfollow));
        for tag in &tags {
            let key = TagKey { name: name.clone(), tag: tag.clone() };
            // Another version may be new: one that an operator has unloaded stays unloaded.
            if !self.tags.get(&key).is_some_and(TagMachine::is_configured) {
                turn.events.push_back(Event::Follow(key.clone()));
            }
            turn.events.push_back(looked_up(key));
        }
        self.touch(&name);
        self.listed.insert(name, tags);
    }

    pub(super) fn unlist(&mut self, turn: &mut Turn, name: &ModelName) {
        for tag in self.listed.remove(name).into_iter().flatten() {
            turn.events.push_back(Event::Unfollow(TagKey { name: name.clone(), tag }));
        }
    }

    /// Withdraws the tags of `name` that its source does not list, once a listed tag answers with
    /// the digest that the source names: until then they keep the last versions that worked.
    pub(super) fn reconcile_listed(&self, turn: &mut Turn, name: &ModelName) {
        let Some(listed) = self.listed.get(name) else { return };
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
}

fn looked_up(key: TagKey) -> Event {
    Event::Tag(key, tags::Event::LookUp)
}
