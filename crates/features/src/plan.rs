//! The plan: a model's metadata compiled for packing and answering.

use std::sync::Arc;

use outrigger_core::{DType, Failure, Interface};
use outrigger_proto::outrigger::v1::ResponseOptions;

use crate::{
    InterfaceError, Limits, Metadata, Packed,
    column::Column,
    metadata::{Entity, Input},
    pack::{self, Call},
    transcode::{Fields, Request},
};

/// How a model's requests become tensors and its outputs responses. Compiled
/// once a model; share it in an [`Arc`].
#[derive(Debug)]
pub struct Plan {
    pub(crate) metadata: Metadata,
    pub(crate) inputs: Vec<InputPlan>,
    pub(crate) fields: EntityFields,
    #[cfg(any(test, feature = "reference"))]
    pub(crate) names: crate::reference::Names,
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
        Self {
            #[cfg(any(test, feature = "reference"))]
            names: crate::reference::Names::of(&metadata),
            metadata,
            inputs,
            fields,
        }
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

    /// Packs encoded `outrigger.v1.PredictRequest`s, one a user, each with its
    /// own options. Field paths begin with `requests[i].` when there are
    /// several.
    ///
    /// # Errors
    /// INVALID_ARGUMENT reasons: REQUEST_MALFORMED, TOO_MANY_TREATMENTS,
    /// TOO_LARGE, or FEATURE_… naming the feature and the treatment.
    pub fn pack(&self, requests: &[&[u8]], limits: &Limits) -> Result<Packed, Failure> {
        let call = Call { prefixed: requests.len() > 1, ..Call::new(limits) };
        pack::pack(self, requests, &call)
    }

    /// [`Self::pack`] for one request that has been taken apart, within its limits.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub fn pack_request(&self, request: &Request<'_>) -> Result<Packed, Failure> {
        pack::pack_request(self, request)
    }

    /// Packs the requests of a `BatchPredictRequest`, whose `options` hold for
    /// all of them. Field paths begin with `requests[i].`.
    ///
    /// # Errors
    /// As [`Self::pack`]; also REQUEST_MALFORMED for a request that brings a
    /// model or options of its own.
    pub fn pack_batch(
        &self,
        requests: &[&[u8]],
        options: &ResponseOptions,
        limits: &Limits,
    ) -> Result<Packed, Failure> {
        let call = Call { prefixed: true, batch: Some(options), ..Call::new(limits) };
        pack::pack(self, requests, &call)
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
