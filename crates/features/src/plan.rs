//! The plan: a model's metadata compiled for packing and answering.

mod bad_feature;
mod fields;
mod join;
mod lookups;

use std::sync::Arc;

use outrigger_core::{DType, Interface};

use crate::{
    column::{Buffer, Column, RowLists},
    interface::InterfaceError,
    metadata::{Encoding, Entity, Input, Metadata},
    packed::Packed,
    raw::RawPlan,
};
pub(crate) use bad_feature::{BadFeature, RowResult, left_out};
pub(crate) use fields::{Field, Fields};
pub(crate) use join::Join;
use lookups::Lookups;
pub use lookups::{Lookup, LookupError};

/// A model's metadata, compiled to pack its requests and build its responses. Compile it
/// once per model and share it in an [`Arc`].
#[derive(Debug)]
pub struct Plan {
    pub(crate) metadata: Metadata,
    /// The inputs that rows of users and of treatments are written to: the tensors, or
    /// the parts that tensors are joined from.
    pub(crate) inputs: Vec<InputPlan>,
    /// One per tensor of a model with joined inputs; empty for other models.
    pub(crate) joins: Vec<Join>,
    pub(crate) fields: EntityFields,
    /// The look-ups; `None` for most models.
    pub(crate) lookups: Option<Box<Lookups>>,
    /// For calls with raw tensors.
    pub(crate) raw: Option<Box<RawPlan>>,
}

/// The fields of both entities.
#[derive(Debug)]
pub(crate) struct EntityFields {
    pub(crate) user: Fields,
    pub(crate) treatment: Fields,
}

/// The memory of a version that does not depend on its metadata: its routes, views and series.
const ANY: u64 = 128 << 10;

/// One input, compiled; or the features of a single entity in a joined input.
#[derive(Debug)]
pub(crate) struct InputPlan {
    pub(crate) tensor: Arc<str>,
    /// The tensor with the number of elements of each row, if the rows are lists.
    pub(crate) lengths: Option<Arc<str>>,
    /// The tensor with the weights of ids, if the rows are sparse.
    pub(crate) weights: Option<Arc<str>>,
    pub(crate) entity: Entity,
    pub(crate) dtype: DType,
    /// Elements, or lists, per row.
    pub(crate) width: usize,
    pub(crate) columns: Vec<Column>,
}

impl Plan {
    /// Compiles a model's metadata.
    pub fn compile(metadata: Metadata) -> Self {
        let (mut inputs, mut joins) = (Vec::with_capacity(metadata.inputs.len()), Vec::new());
        for input in &metadata.inputs {
            match input.entity {
                Entity::Joined => joins.push(Join::compile(input, &mut inputs)),
                entity => inputs.push(InputPlan::compile(input, entity)),
            }
        }
        let fields = EntityFields {
            user: Fields::new(&inputs, Entity::User),
            treatment: Fields::new(&inputs, Entity::Treatment),
        };
        Self { metadata, inputs, joins, fields, lookups: None, raw: None }
    }

    /// Compiles a model's metadata after comparing it with the model's own interface.
    ///
    /// # Errors
    /// The two contradict each other.
    pub fn load(metadata: Metadata, interface: &Interface) -> Result<Self, InterfaceError> {
        metadata.check_interface(interface)?;
        let raw = RawPlan::new(interface.clone()).ok().map(Box::new);
        Ok(Self { raw, ..Self::compile(metadata) })
    }

    /// The most memory that a plan takes whose metadata.json has `size` bytes: one of short words in
    /// vocabularies.
    pub fn most_memory(size: u64) -> u64 {
        ANY + size * 48
    }

    /// The memory that the plan takes, by the number of its features and words; its metadata.json
    /// has `size` bytes.
    pub fn memory(&self, size: u64) -> u64 {
        /// Annotations stay as parsed JSON, at sixteen times their size.
        const JSON: u64 = 16;
        const FEATURE: u64 = 1 << 10;
        const WORD: u64 = 320;
        let (mut features, mut words) = (0, 0);
        for feature in self.metadata.inputs.iter().flat_map(|input| &input.features) {
            features += 1;
            if let Encoding::Vocabulary { words: all, .. } = &feature.encoding {
                words += all.len() as u64;
            }
        }
        let memory = ANY + size * JSON + features * FEATURE + words * WORD;
        memory.min(Self::most_memory(size))
    }

    /// The metadata that the plan was compiled from.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The name of the signature to call.
    pub fn signature(&self) -> &Arc<str> {
        &self.metadata.signature
    }

    /// False for a model that draws at random: its values cannot be compared.
    pub fn deterministic(&self) -> bool {
        self.metadata.deterministic
    }

    /// The element type of the tensor with this feature; `None` if the model does not
    /// name it.
    pub(crate) fn dtype_of(&self, entity: Entity, feature: &str) -> Option<DType> {
        let input = self.fields.of(entity)?.input_of(feature)?;
        Some(self.inputs[input].dtype)
    }

    /// True if the entity's feature of this name takes ids with weights.
    pub(crate) fn is_sparse(&self, entity: Entity, feature: &str) -> bool {
        let fields = self.fields.of(entity);
        fields.is_some_and(|fields| fields.is_sparse(feature.as_bytes()))
    }

    /// True if the entity has a feature of this name in whose place an object is refused.
    pub(crate) fn takes_no_object(&self, entity: Entity, feature: &str) -> bool {
        let fields = self.fields.of(entity);
        fields.is_some_and(|fields| fields.takes_no_object(feature.as_bytes()))
    }

    /// The length in bytes of the longest feature name of an entity.
    pub(crate) fn longest_name(&self, entity: Entity) -> usize {
        self.fields.of(entity).map_or(0, Fields::longest_name)
    }

    /// The input tensors of a packed call, in their order: those of metadata.json, then those with
    /// the weights and the lengths of lists, input by input.
    pub fn input_names(&self) -> impl Iterator<Item = &Arc<str>> {
        let inputs = &self.metadata.inputs;
        let of_lists = inputs.iter().flat_map(|input| [&input.weights, &input.lengths]);
        inputs.iter().map(|input| &input.tensor).chain(of_lists.flatten())
    }

    /// The output tensors that a packed call needs from the engine (its `output_filter`),
    /// in the order of metadata.json, or for raw tensors in that of the call.
    pub fn output_names(&self, packed: &Packed) -> Vec<Arc<str>> {
        if let Some(raw) = &packed.raw {
            return raw.outputs.clone();
        }
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
            Entity::TreatmentCount | Entity::Seed | Entity::Joined => None,
        }
    }
}

impl InputPlan {
    /// Compiles the features of `entity` in an input.
    fn compile(input: &Input, entity: Entity) -> Self {
        let features = input.features.iter().filter(|feature| feature.entity == entity);
        let columns: Vec<_> =
            features.map(|feature| Column::compile(feature, input.dtype)).collect();
        let width = columns.iter().map(|column| column.length).sum();
        Self {
            tensor: input.tensor.clone(),
            lengths: input.lengths.clone(),
            weights: input.weights.clone(),
            entity,
            dtype: input.dtype,
            // Counts and seeds have one value per row.
            width: if entity.has_features() { width } else { 1 },
            columns,
        }
    }

    /// An empty buffer with room for `rows` rows.
    pub(crate) fn buffer(&self, rows: usize) -> Buffer {
        match (&self.lengths, &self.weights) {
            (None, _) => Buffer::new(self.dtype, rows * self.width),
            (Some(_), None) => Buffer::Lists(RowLists::new(self.dtype, rows)),
            (Some(_), Some(_)) => Buffer::Lists(RowLists::weighted(rows * self.width)),
        }
    }

    /// The tensor's shape for this number of users and the largest number of treatments.
    pub(crate) fn shape(&self, users: usize, treatments: usize) -> Vec<i64> {
        let sizes = match self.entity {
            Entity::User => vec![users, self.width],
            Entity::Treatment => vec![users, treatments, self.width],
            Entity::TreatmentCount | Entity::Seed => vec![users],
            Entity::Joined => vec![users * treatments, self.width],
        };
        sizes.into_iter().map(|size| i64::try_from(size).expect("sizes are limited")).collect()
    }
}
