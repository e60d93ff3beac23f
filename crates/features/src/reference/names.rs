//! The names of a model's features.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::metadata::{Entity, Metadata, Size};

/// Positions of the model's features within a row, by name.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) user: HashMap<Arc<str>, usize>,
    pub(super) treatment: HashMap<Arc<str>, usize>,
    /// The user's features that take ids with weights.
    pub(super) sparse: HashSet<Arc<str>>,
}

impl Names {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let positions = |entity: Entity| {
            let features = metadata.features_of(entity);
            features.map(|(_, feature)| feature.name.clone()).zip(0..).collect()
        };
        let of_user = metadata.features_of(Entity::User);
        let sparse = of_user.filter(|(_, feature)| feature.size == Size::Sparse);
        Self {
            user: positions(Entity::User),
            treatment: positions(Entity::Treatment),
            sparse: sparse.map(|(_, feature)| feature.name.clone()).collect(),
        }
    }
}
