//! The features that columns may hold.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use outrigger_feature_table::{Takes, Type};
use outrigger_features::metadata::{Entity, Metadata};

/// The features of a model, which decide how a column is read.
#[derive(Debug, Clone)]
pub struct Features {
    /// The features by entity; `None` if they are not known.
    known: Option<[Known; 2]>,
    /// The columns with text, if the features are not known.
    texts: HashSet<String>,
    deterministic: bool,
}

/// The features of an entity.
#[derive(Debug, Clone, Default)]
struct Known {
    types: HashMap<Arc<str>, Takes>,
    /// The parts of their names before a dot.
    parents: HashSet<String>,
}

/// The number of an entity that has features.
fn index(entity: Entity) -> usize {
    usize::from(entity != Entity::User)
}

impl Features {
    /// The features of a model.
    pub fn of(metadata: &Metadata) -> Self {
        let mut known = [Known::default(), Known::default()];
        for entity in [Entity::User, Entity::Treatment] {
            for (input, feature) in metadata.features_of(entity) {
                known[index(entity)].add(&feature.name, Takes::of(feature, input.dtype));
            }
        }
        let deterministic = metadata.deterministic;
        Self { known: Some(known), texts: HashSet::new(), deterministic }
    }

    /// The features of a model on a server, which does not report them. A column may then be a
    /// feature of the user and of the treatment: the server ignores features that the model does
    /// not have. The cells of CSV in the columns of `texts` are text; in others, numbers are
    /// recognized.
    pub fn unknown(texts: impl IntoIterator<Item = String>) -> Self {
        Self { known: None, texts: texts.into_iter().collect(), deterministic: true }
    }

    /// False for a model that draws at random: its scores cannot be compared.
    pub(crate) fn deterministic(&self) -> bool {
        self.deterministic
    }

    /// True if the model's features are known.
    pub(crate) fn are_known(&self) -> bool {
        self.known.is_some()
    }

    /// False if the model is known to have no features.
    pub(crate) fn may_be_any(&self) -> bool {
        self.known.as_ref().is_none_or(|known| known.iter().any(|it| !it.types.is_empty()))
    }

    /// The values that this feature of `entity` takes; `None` if the model does not have it.
    pub(crate) fn takes(&self, entity: Entity, name: &str) -> Option<Takes> {
        match &self.known {
            Some(known) => known[index(entity)].types.get(name).copied(),
            None if self.texts.contains(name) => Some(Takes::any(Type::Text)),
            None => Some(Takes::any(Type::Unknown)),
        }
    }

    /// True if a column of this name may hold features of `entity`: the feature of this name, or
    /// those whose names begin with it and a dot, in an object.
    pub(crate) fn may_hold(&self, entity: Entity, column: &str) -> bool {
        let Some(known) = &self.known else { return true };
        let Known { types, parents } = &known[index(entity)];
        types.contains_key(column) || parents.contains(column)
    }
}

impl Known {
    fn add(&mut self, name: &Arc<str>, of: Takes) {
        self.types.insert(Arc::clone(name), of);
        self.parents.extend(name.match_indices('.').map(|(dot, _)| name[..dot].to_owned()));
    }
}
