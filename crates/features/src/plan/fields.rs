//! The positions of an entity's features in the tensors.

use std::collections::HashSet;

use outrigger_proto::outrigger::v1::ValueOrigin;

use super::{InputPlan, bad_feature::BadFeature};
use crate::{
    column::{Buffer, Column},
    keys::Keys,
    metadata::Entity,
    value::Value,
};

/// An entity's features in the order of metadata.json; a feature's position
/// here is its slot.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) entity: Entity,
    pub(crate) keys: Keys,
    pub(crate) fields: Vec<Field>,
}

/// The position of one feature.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// The input's position in the plan, and the feature's position in the input.
    pub(crate) input: usize,
    pub(crate) column: usize,
    /// The position of its first element within a row of the input.
    pub(crate) at: usize,
    /// Elements per row of the input.
    pub(crate) width: usize,
    /// Whether it is a scalar, not a vector.
    pub(crate) single: bool,
    /// Whether it is a scalar that takes a finite float32 unchanged.
    pub(crate) number: bool,
    /// True if it takes ids with weights.
    sparse: bool,
    /// True if an object cannot stand for features whose names go on after its own.
    whole: bool,
}

impl Fields {
    pub(crate) fn new(inputs: &[InputPlan], entity: Entity) -> Self {
        let of_entity = inputs.iter().enumerate().filter(|(_, input)| input.entity == entity);
        let names = of_entity.clone().flat_map(|(_, input)| &input.columns);
        let names: Vec<_> = names.map(|column| &column.feature).collect();
        let keys = Keys::new(names.into_iter());
        let fields = of_entity.clone().flat_map(|(index, input)| fields_of(index, input));
        let mut fields: Vec<Field> = fields.collect();
        let columns = || of_entity.clone().flat_map(|(_, input)| &input.columns);
        let parents: HashSet<&str> = columns().flat_map(|it| parents(&it.feature)).collect();
        for (field, column) in fields.iter_mut().zip(columns()) {
            field.whole = field.sparse || !parents.contains(&*column.feature);
        }
        Self { entity, keys, fields }
    }
}

impl Fields {
    /// The number of features.
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The input with the feature of this name.
    pub(crate) fn input_of(&self, feature: &str) -> Option<usize> {
        self.keys.find(feature.as_bytes()).map(|slot| self.fields[slot].input)
    }

    /// True if the feature of this name takes ids with weights.
    pub(crate) fn is_sparse(&self, feature: &[u8]) -> bool {
        self.keys.find(feature).is_some_and(|slot| self.fields[slot].sparse)
    }

    /// True if a value is expected at this path, and not an object of features.
    pub(crate) fn takes_no_object(&self, path: &[u8]) -> bool {
        self.keys.find(path).is_some_and(|slot| self.fields[slot].whole)
    }

    /// The length of the longest name in bytes.
    pub(crate) fn longest_name(&self) -> usize {
        self.keys.longest()
    }
}

impl Field {
    pub(crate) fn column<'p>(&self, inputs: &'p [InputPlan]) -> &'p Column {
        &inputs[self.input].columns[self.column]
    }

    /// Writes a value, or the replacement of an absent one, to a row of the input's
    /// buffer; returns the value's origin.
    ///
    /// # Errors
    /// The feature cannot take this value.
    #[inline]
    pub(crate) fn write<'p>(
        &self,
        value: Option<Value<'_>>,
        row: usize,
        inputs: &'p [InputPlan],
        buffer: &mut Buffer,
    ) -> Result<ValueOrigin, BadFeature<'p>> {
        let (column, at) = (self.column(inputs), row * self.width + self.at);
        if let Some(Value::One(scalar)) = value
            && self.single
            && column.put(scalar, buffer, at)
        {
            return Ok(ValueOrigin::Request);
        }
        let written = column.write(value.as_ref(), &mut buffer.cursor(at));
        written.map_err(|problem| BadFeature { feature: &column.feature, problem })
    }
}

/// The parts of a name before each of its dots.
pub(crate) fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(dot, _)| &name[..dot])
}

fn fields_of(index: usize, input: &InputPlan) -> impl Iterator<Item = Field> {
    let mut end = 0;
    input.columns.iter().enumerate().map(move |(position, column)| {
        let at = end;
        end += column.length;
        Field {
            input: index,
            column: position,
            at,
            width: input.width,
            single: column.is_scalar(),
            number: column.is_scalar() && column.takes_floats(),
            sparse: column.takes_ids(),
            whole: true,
        }
    })
}
