//! Limits of the tags and digests that only requests name.

use super::{Event, Machines, TagKey, Turn};
use crate::{ModelKey, ModelName, Selector, model, tags::TagMachine};

impl Machines {
    /// Makes room for one more selector of `name` that only requests name.
    pub(super) fn limit_requested(&mut self, turn: &Turn, name: &ModelName, selector: &Selector) {
        if let Some((name, selector)) = self.index.oldest_absent(self.policy.max_absent) {
            self.drop_absent(name, selector);
        }
        if matches!(selector, Selector::Tag(_)) {
            self.limit_tags(turn, name);
        }
    }

    /// Gives up the selector without an answer that has not been used for longest, if there is no
    /// place for another one.
    pub(super) fn limit_unproven(&mut self, turn: &mut Turn) {
        let longest = self.index.longest_unproven(self.policy.max_unproven);
        let Some((_, name, selector)) = longest.cloned() else { return };
        match selector {
            Selector::Tag(tag) => {
                self.touch(&name);
                self.changed.insert(name.clone());
                self.drop_with_canaries(turn, &TagKey { name, tag });
            }
            Selector::Digest(digest) => {
                let unload = model::Event::Unload { delete: false };
                turn.events.push_back(Event::Model(ModelKey { name, digest }, unload));
            }
        }
    }

    fn drop_absent(&mut self, name: ModelName, selector: Selector) {
        self.touch(&name);
        self.changed.insert(name.clone());
        match selector {
            Selector::Tag(tag) => drop(self.drop_tag(&TagKey { name, tag })),
            Selector::Digest(digest) => self.drop_model(&ModelKey { name, digest }),
        }
    }

    /// Forgets tags of `name` beyond the limit: those that never worked, then the longest unused. A
    /// tag with a canary is the last to go, because its trial ends with it. Tags of the
    /// configuration, and the canary tags that belong to other tags, are not counted.
    fn limit_tags(&mut self, turn: &Turn, name: &ModelName) {
        let requested =
            self.tags_of(name).filter(|(_, tag)| !tag.is_configured() && !tag.is_accompanying());
        let rank = |key: &TagKey, tag: &TagMachine| {
            (self.canary(key).is_some(), tag.serving().is_some(), tag.asked_at())
        };
        let mut requested: Vec<_> =
            requested.map(|(key, tag)| (rank(key, tag), key.clone())).collect();
        let surplus = (requested.len() + 1).saturating_sub(self.policy.max_tags.max(1));
        if surplus == 0 {
            return;
        }
        requested.sort_unstable();
        for (_, key) in requested.into_iter().take(surplus) {
            self.drop_with_canaries(turn, &key);
        }
    }

    /// Forgets a tag, and its canary tags unless requests name them too.
    fn drop_with_canaries(&mut self, turn: &Turn, key: &TagKey) {
        let canaries = self.drop_tag(key);
        for canary in canaries {
            let is_free = |tag: &TagMachine| !tag.is_wanted(&self.policy, turn.now);
            if self.accompanied(&canary).is_none() && self.tags.get(&canary).is_some_and(is_free) {
                self.drop_tag(&canary);
            }
        }
    }
}
