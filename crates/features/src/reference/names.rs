//! The names of a model's features.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::metadata::{Entity, Feature, Metadata, Size};

/// Positions of the model's features within a row, by name.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) user: HashMap<Arc<str>, usize>,
    pub(super) treatment: HashMap<Arc<str>, usize>,
    /// The user's features in whose place an object is refused.
    pub(super) whole: HashSet<Arc<str>>,
}

impl Names {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let positions = |entity: Entity| {
            let features = metadata.features_of(entity);
            features.map(|(_, feature)| feature.name.clone()).zip(0..).collect()
        };
        let of_user = || metadata.features_of(Entity::User).map(|(_, feature)| feature);
        let is_whole = |feature: &&Feature| {
            let inner = format!("{}.", feature.name);
            feature.size == Size::Sparse || !of_user().any(|it| it.name.starts_with(&inner))
        };
        Self {
            user: positions(Entity::User),
            treatment: positions(Entity::Treatment),
            whole: of_user().filter(is_whole).map(|feature| feature.name.clone()).collect(),
        }
    }
}
