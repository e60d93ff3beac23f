//! Checks of models that come from directories of numbered versions.

use outrigger_core::{Rollover, Tag, VersionPolicy};

use super::Check;
use crate::config::{Config, Model};

impl Check {
    /// Checks the directory of a model, and the settings that only such a model has. `key` makes the
    /// path of a key of the model.
    pub(super) fn directory(
        &mut self,
        config: &Config,
        model: &Model,
        key: impl Fn(&str) -> String,
    ) {
        let Some(directory) = &model.directory else {
            self.require(model.versions.is_none(), key("versions"), "there is no directory");
            self.require(model.labels.is_empty(), key("labels"), "there is no directory");
            return;
        };
        let alone = model.image.is_none();
        self.require(alone, key("directory"), "an image or a directory, not both");
        self.require(directory.is_absolute(), key("directory"), "must be an absolute path");
        let store = &config.store.path;
        let apart = !directory.starts_with(store) && !store.starts_with(directory);
        let message = format!("must be apart from store.path, {}", store.display());
        self.require(apart, key("directory"), message);
        let policy = model.versions.clone().unwrap_or_default();
        let selected = (1..=VersionPolicy::MOST).contains(&policy.most());
        let message = format!("must select 1 to {} versions", VersionPolicy::MOST);
        self.require(selected, key("versions"), message);
        let one = model.rollover != Rollover::Replace || policy.most() == 1;
        let message = "must select one version, because the model's rollover is replace";
        self.require(one, key("versions"), message);
        for label in model.labels.keys() {
            let message = "is the tag of a version: a label must be another one";
            self.require(!is_taken(label), key(&format!("labels.{label}")), message);
        }
    }
}

/// True if a directory has a tag of this spelling without labels.
fn is_taken(label: &Tag) -> bool {
    let label = label.as_str();
    label == "latest" || label.bytes().all(|byte| byte.is_ascii_digit())
}
