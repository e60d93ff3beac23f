//! Look-ups: user features read from a table if a request does not send them.

use std::sync::Arc;

use outrigger_core::DType;

use super::Plan;
use crate::metadata::{
    Absence, Encoding, Entity, Feature, Input, Metadata, Output, OutputKind, Raw, Size,
};

/// A look-up: the request sends a text, and the table's row with that key supplies
/// features of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The table.
    pub table: Arc<str>,
    /// The user's feature with the key of the row. The model need not name it.
    pub key: Arc<str>,
    /// The features of the user that the row may supply.
    pub features: Vec<Arc<str>>,
}

/// The reason why a plan cannot have a look-up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the look-up in {table:?}: {message}")]
pub struct LookupError {
    /// The look-up's table.
    pub table: Arc<str>,
    /// The description of the error.
    pub message: String,
}

/// A plan's look-ups, compiled.
#[derive(Debug)]
pub(crate) struct Lookups {
    all: Vec<Lookup>,
    /// The plan that packs the keys of a request into one row of texts.
    pub(crate) keys: Plan,
    /// The position in that row of each look-up's key.
    pub(crate) columns: Vec<usize>,
}

impl Plan {
    /// Adds look-ups to the plan: [`Self::keys`] returns the keys to look up for a
    /// request, and [`Self::pack_with`] packs it with the values found. The other packing
    /// methods ignore look-ups.
    ///
    /// # Errors
    /// A look-up supplies a feature that the model does not have for the user, or that
    /// another look-up supplies.
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

    /// The look-ups for a user; empty for most models.
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

/// The metadata of a model whose user features are these texts.
fn keys(names: &[Arc<str>]) -> Metadata {
    let feature = |name: &Arc<str>| Feature {
        name: name.clone(),
        entity: Entity::User,
        length: 1,
        size: Size::Exact,
        encoding: Encoding::Plain,
        absence: Absence::Default(vec![Raw::Text("".into())]),
        allow_non_finite: false,
    };
    let features = names.iter().map(feature).collect();
    let (tensor, entity, dtype): (Arc<str>, _, _) = ("keys".into(), Entity::User, DType::String);
    let output = Output {
        tensor: "none".into(),
        name: "none".into(),
        kind: OutputKind::Single,
        width: 1,
        score_column: 0,
        role: None,
    };
    Metadata {
        framework: "none".into(),
        signature: "none".into(),
        inputs: vec![Input { tensor, entity, dtype, lengths: None, weights: None, features }],
        outputs: vec![output],
        deterministic: true,
        uplift: None,
        annotations: serde_json::Map::default(),
    }
}
