//! Lists as values and lengths, compared row by row with the same lists in padded tensors.

use outrigger_core::DType;
use outrigger_features::{
    Metadata, Packed, Plan,
    metadata::{Input, Raw, Size},
};

use super::joined::elements;

/// A plan with the same features, whose lists are padded.
pub(crate) fn padded(metadata: &Metadata) -> Plan {
    let inputs = metadata.inputs.iter().cloned().map(|mut input| {
        if input.weights.is_none() && input.lengths.take().is_some() {
            input.features[0].size = Size::Padded(padding(input.dtype));
        }
        input
    });
    Plan::compile(Metadata { inputs: inputs.collect(), ..metadata.clone() })
}

fn padding(dtype: DType) -> Raw {
    match dtype {
        DType::Float32 | DType::Float64 => Raw::Real(0.0),
        DType::Int32 | DType::Int64 => Raw::Integer(0),
        DType::Bool => Raw::Flag(false),
        DType::String => Raw::Text("".into()),
        other => panic!("no feature has the type {other:?}"),
    }
}

/// Compares the lists of a call with those of the same call packed by the plan of [`padded`].
pub(crate) fn same(metadata: &Metadata, packed: &Packed, padded: &Packed) {
    for (index, input) in metadata.inputs.iter().enumerate() {
        if input.weights.is_some() {
            continue;
        }
        let Some(lengths) = lengths(input, packed) else { continue };
        let mut values = elements(&packed.tensors[index]).into_iter();
        let rows = elements(&padded.tensors[index]);
        let rows: Vec<_> = rows.chunks(input.features[0].length).collect();
        assert_eq!(lengths.len(), rows.len(), "{}", input.tensor);
        for (row, length) in rows.into_iter().zip(lengths) {
            let (list, rest) = row.split_at(length);
            assert!(list.iter().eq(&values.by_ref().take(length).collect::<Vec<_>>()));
            assert!(rest.iter().all(|element| element.iter().all(|byte| *byte == 0)));
        }
        assert_eq!(values.next(), None, "{}", input.tensor);
    }
}

/// The number of elements of each row of an input with lengths.
pub(crate) fn lengths(input: &Input, packed: &Packed) -> Option<Vec<usize>> {
    let name = input.lengths.as_ref()?;
    let tensor = packed.tensors.iter().find(|tensor| tensor.name == *name)?;
    let length = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().expect("an int64"));
    Some(elements(tensor).into_iter().map(|bytes| length(bytes) as usize).collect())
}
