//! The plan: a model's metadata compiled for packing and answering.

mod bad_feature;
mod fields;

use std::sync::Arc;

use outrigger_core::{DType, Interface};

use crate::{
    column::Column,
    interface::InterfaceError,
    metadata::{Entity, Input, Metadata},
    packed::Packed,
};
pub(crate) use bad_feature::BadFeature;
pub(crate) use fields::{Field, Fields};

/// How a model's requests become tensors and its outputs responses. Compiled
/// once a model; share it in an [`Arc`].
#[derive(Debug)]
pub struct Plan {
    pub(crate) metadata: Metadata,
    pub(crate) inputs: Vec<InputPlan>,
    pub(crate) fields: EntityFields,
}

/// Where the features of either entity go.
#[derive(Debug)]
pub(crate) struct EntityFields {
    pub(crate) user: Fields,
    pub(crate) treatment: Fields,
}

/// One input, compiled.
#[derive(Debug)]
pub(crate) struct InputPlan {
    pub(crate) tensor: Arc<str>,
    pub(crate) entity: Entity,
    pub(crate) dtype: DType,
    pub(crate) width: usize,
    pub(crate) columns: Vec<Column>,
}

impl Plan {
    /// Compiles a model's metadata.
    pub fn compile(metadata: Metadata) -> Self {
        let inputs: Vec<_> = metadata.inputs.iter().map(InputPlan::compile).collect();
        let fields = EntityFields {
            user: Fields::new(&inputs, Entity::User),
            treatment: Fields::new(&inputs, Entity::Treatment),
        };
        Self { metadata, inputs, fields }
    }

    /// Compiles a model's metadata, held against the model's own interface.
    ///
    /// # Errors
    /// The two contradict each other.
    pub fn load(metadata: Metadata, interface: &Interface) -> Result<Self, InterfaceError> {
        metadata.check_interface(interface)?;
        Ok(Self::compile(metadata))
    }

    /// What the plan was compiled from.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The name of the signature to call.
    pub fn signature(&self) -> &Arc<str> {
        &self.metadata.signature
    }

    /// False for a model that draws: its values cannot be compared.
    pub fn deterministic(&self) -> bool {
        self.metadata.deterministic
    }

    /// The element type of the tensor that holds a feature, if the model names it.
    pub(crate) fn dtype_of(&self, entity: Entity, feature: &str) -> Option<DType> {
        let input = self.fields.of(entity)?.input_of(feature)?;
        Some(self.inputs[input].dtype)
    }

    /// Bytes of the longest name of an entity's features.
    pub(crate) fn longest_name(&self, entity: Entity) -> usize {
        self.fields.of(entity).map_or(0, Fields::longest_name)
    }

    /// The tensors a packed call needs of the engine: its `output_filter`, in
    /// the order of metadata.json.
    pub fn output_names(&self, packed: &Packed) -> Vec<Arc<str>> {
        let wanted = |index: &usize| packed.users.iter().any(|user| user.outputs.contains(index));
        let outputs = self.metadata.outputs.iter().enumerate();
        outputs
            .filter(|(index, _)| wanted(index))
            .map(|(_, output)| output.tensor.clone())
            .collect()
    }
}

impl EntityFields {
    fn of(&self, entity: Entity) -> Option<&Fields> {
        match entity {
            Entity::User => Some(&self.user),
            Entity::Treatment => Some(&self.treatment),
            Entity::TreatmentCount | Entity::Seed => None,
        }
    }
}

impl InputPlan {
    fn compile(input: &Input) -> Self {
        let columns = input.features.iter().map(|feature| Column::compile(feature, input.dtype));
        Self {
            tensor: input.tensor.clone(),
            entity: input.entity,
            dtype: input.dtype,
            // Counts and seeds are one value a row.
            width: if input.entity.has_features() { input.width() } else { 1 },
            columns: columns.collect(),
        }
    }

    /// The tensor's shape for `users` of up to `treatments` each.
    pub(crate) fn shape(&self, users: usize, treatments: usize) -> Vec<i64> {
        let sizes = match self.entity {
            Entity::User => vec![users, self.width],
            Entity::Treatment => vec![users, treatments, self.width],
            Entity::TreatmentCount | Entity::Seed => vec![users],
        };
        sizes.into_iter().map(|size| i64::try_from(size).expect("sizes are limited")).collect()
    }
}
