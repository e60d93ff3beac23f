//! What the configuration says about names.

use std::collections::BTreeMap;

use outrigger_core::{ModelName, Selector, Tag};

use crate::config::{Config, ModelEntry};

/// Names of models, and what they mean.
#[derive(Debug)]
pub(crate) struct Names {
    default_tag: Tag,
    entries: BTreeMap<ModelName, ModelEntry>,
}

impl Names {
    pub(crate) fn new(config: &Config) -> Self {
        let entries = config.models.iter().map(|entry| (entry.name.clone(), entry.clone()));
        Self { default_tag: config.images.default_tag.clone(), entries: entries.collect() }
    }

    /// What a request for `model` without tag and digest means.
    pub(crate) fn default_selector(&self, model: &ModelName) -> Selector {
        let entry = self.entries.get(model);
        match entry.map(|entry| (entry.digest, &entry.tag)) {
            Some((Some(digest), _)) => Selector::Digest(digest),
            Some((None, Some(tag))) => Selector::Tag(tag.clone()),
            _ => Selector::Tag(self.default_tag.clone()),
        }
    }
}
