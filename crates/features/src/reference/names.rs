//! The names of a model's features.

use std::{collections::HashMap, sync::Arc};

use crate::metadata::{Entity, Metadata};

/// Positions of the model's features within a row, by name.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) user: HashMap<Arc<str>, usize>,
    pub(super) treatment: HashMap<Arc<str>, usize>,
}

impl Names {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let positions = |entity: Entity| {
            let features = metadata.inputs_of(entity).flat_map(|(_, input)| &input.features);
            features.map(|feature| feature.name.clone()).zip(0..).collect()
        };
        Self { user: positions(Entity::User), treatment: positions(Entity::Treatment) }
    }
}
