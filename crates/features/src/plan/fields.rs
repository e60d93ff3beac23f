//! Where the features of an entity's rows go.

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

/// One feature's place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// Which input, and which of its columns.
    pub(crate) input: usize,
    pub(crate) column: usize,
    /// The first of its elements within a row of the input.
    pub(crate) at: usize,
    /// Elements a row of the input.
    pub(crate) width: usize,
    /// Whether it is one value, not a vector.
    pub(crate) single: bool,
    /// Whether it is one value that takes a finite float32 as it is.
    pub(crate) number: bool,
}

impl Fields {
    pub(crate) fn new(inputs: &[InputPlan], entity: Entity) -> Self {
        let of_entity = inputs.iter().enumerate().filter(|(_, input)| input.entity == entity);
        let names = of_entity.clone().flat_map(|(_, input)| &input.columns);
        let names: Vec<_> = names.map(|column| &column.feature).collect();
        let keys = Keys::new(names.into_iter());
        let fields = of_entity.flat_map(|(index, input)| fields_of(index, input)).collect();
        Self { entity, keys, fields }
    }
}

impl Fields {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Which input has the feature of that name.
    pub(crate) fn input_of(&self, feature: &str) -> Option<usize> {
        self.keys.find(feature.as_bytes()).map(|slot| self.fields[slot].input)
    }

    /// Bytes of the longest name.
    pub(crate) fn longest_name(&self) -> usize {
        self.keys.longest()
    }
}

impl Field {
    pub(crate) fn column<'p>(&self, inputs: &'p [InputPlan]) -> &'p Column {
        &inputs[self.input].columns[self.column]
    }

    /// Writes a value, or what absence means, to a row of the buffer of its
    /// input; says where it came from.
    ///
    /// # Errors
    /// The feature cannot have that value.
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
            single: column.length == 1,
            number: column.length == 1 && column.takes_floats(),
        }
    })
}
