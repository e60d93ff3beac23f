//! Features of users that are looked up where a request does not send them.

use std::sync::Arc;

use outrigger_core::DType;

use super::Plan;
use crate::metadata::{
    Absence, Encoding, Entity, Feature, Input, Metadata, Output, OutputKind, Raw,
};

/// A row of a table, found by a text that the request sends, gives a user
/// features.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The table.
    pub table: Arc<str>,
    /// The user's feature that names the row. The model need not know it.
    pub key: Arc<str>,
    /// The features of the user that the row may give.
    pub features: Vec<Arc<str>>,
}

/// Why a model cannot have a look-up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the look-up in {table:?}: {message}")]
pub struct LookupError {
    /// The look-up's table.
    pub table: Arc<str>,
    /// What is wrong.
    pub message: String,
}

/// A plan's look-ups, compiled.
#[derive(Debug)]
pub(crate) struct Lookups {
    all: Vec<Lookup>,
    /// Packs the keys of a request to one row of texts.
    pub(crate) keys: Plan,
    /// Which of those texts is the key of each look-up.
    pub(crate) columns: Vec<usize>,
}

impl Plan {
    /// The plan with look-ups: [`Self::keys`] says what to look up for a request,
    /// [`Self::pack_with`] packs it with what was found. The other ways to pack
    /// do so as if nothing had been found.
    ///
    /// # Errors
    /// A look-up gives a feature that the model's user does not have, or that
    /// another one gives.
    pub fn with_lookups(self, all: Vec<Lookup>) -> Result<Self, LookupError> {
        let mut given: Vec<&Arc<str>> = Vec::new();
        for lookup in &all {
            let refused = |message| LookupError { table: lookup.table.clone(), message };
            for feature in &lookup.features {
                if self.fields.user.input_of(feature).is_none() {
                    return Err(refused(format!("the user has no feature {feature:?}")));
                }
                if given.contains(&feature) {
                    return Err(refused(format!("feature {feature:?} is looked up twice")));
                }
                given.push(feature);
            }
        }
        let lookups = (!all.is_empty()).then(|| Box::new(Lookups::compile(all)));
        Ok(Self { lookups, ..self })
    }

    /// What is looked up for a user; empty for most models.
    pub fn lookups(&self) -> &[Lookup] {
        self.lookups.as_ref().map_or(&[], |lookups| &lookups.all)
    }
}

impl Lookups {
    fn compile(all: Vec<Lookup>) -> Self {
        let mut names: Vec<Arc<str>> = Vec::new();
        let column = |lookup: &Lookup| {
            let known = names.iter().position(|name| *name == lookup.key);
            known.unwrap_or_else(|| {
                names.push(lookup.key.clone());
                names.len() - 1
            })
        };
        let columns = all.iter().map(column).collect();
        Self { keys: Plan::compile(keys(&names)), columns, all }
    }
}

/// The metadata of a model that takes these texts of a user.
fn keys(names: &[Arc<str>]) -> Metadata {
    let feature = |name: &Arc<str>| Feature {
        name: name.clone(),
        entity: Entity::User,
        length: 1,
        encoding: Encoding::Plain,
        absence: Absence::Default(vec![Raw::Text("".into())]),
        allow_non_finite: false,
    };
    let features = names.iter().map(feature).collect();
    let (tensor, entity, dtype): (Arc<str>, _, _) = ("keys".into(), Entity::User, DType::String);
    let output =
        Output { tensor: "none".into(), name: "none".into(), kind: OutputKind::Single, role: None };
    Metadata {
        framework: "none".into(),
        signature: "none".into(),
        inputs: vec![Input { tensor, entity, dtype, features }],
        outputs: vec![output],
        deterministic: true,
        annotations: serde_json::Map::default(),
    }
}
