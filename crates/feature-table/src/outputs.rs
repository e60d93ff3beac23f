//! The outputs of a table: a row for each row of the request.

use bytes::BytesMut;
use outrigger_core::{self as core, DType, ElementType, Failure, Reason};
use outrigger_features::{
    GivenScores, Packed, Plan,
    metadata::{Output, OutputKind},
};
use outrigger_oip::{DataType, Tensor};

/// The datatype of an output: FP32, or INT64 for one of integers.
pub(crate) fn datatype(plan: &Plan, output: &Output) -> DataType {
    let spec = plan.raw().and_then(|raw| raw.interface().output(&output.tensor));
    match spec.map(|spec| &spec.dtype) {
        Some(ElementType::Known(DType::Int32 | DType::Int64)) => DataType::Int64,
        _ => DataType::Fp32,
    }
}

/// The outputs of these names, or all if there are none, of a call that was packed; without rows if
/// there is no call. `rows` are the numbers of rows of its users.
///
/// # Errors
/// The model has no such output, or an output of the engine is not valid.
pub fn tensors(
    plan: &Plan,
    names: &[String],
    call: Option<(&Packed, &[core::Tensor])>,
    rows: &[usize],
) -> Result<Vec<Tensor>, Failure> {
    let outputs = &plan.metadata().outputs;
    let position = |name: &String| {
        outputs.iter().position(|output| *output.name == **name).ok_or_else(|| {
            let message = format!("the model has no output {name:?}");
            Failure::new(Reason::RequestMalformed, format!("outputs: {message}"))
                .violation("outputs", message)
        })
    };
    let wanted: Vec<usize> = match names {
        [] => (0..outputs.len()).collect(),
        names => names.iter().map(position).collect::<Result<_, _>>()?,
    };
    let tensor = |position: usize| {
        let values = call.map(|(packed, tensors)| plan.values(packed, tensors, position));
        let values = values.transpose()?.unwrap_or_default();
        let output = &outputs[position];
        tensor(output, datatype(plan, output), values.into_iter().zip(rows))
    };
    wanted.into_iter().map(tensor).collect()
}

/// The values of all users, row by row.
fn tensor<'r>(
    output: &Output,
    datatype: DataType,
    users: impl Iterator<Item = (GivenScores<'r>, &'r usize)>,
) -> Result<Tensor, Failure> {
    let (mut data, mut all) = (BytesMut::new(), 0);
    for (values, rows) in users {
        let user = match datatype {
            DataType::Int64 => values.integers.iter().flat_map(|it| it.to_le_bytes()).collect(),
            _ => values.floats,
        };
        let size = output.width * datatype.least_size();
        // A value of the user stands in each of its rows.
        let (times, expected) = match output.kind {
            OutputKind::Single => (*rows, size),
            OutputKind::PerTreatment => (1, size * rows),
        };
        if user.len() != expected {
            let message = format!("output {:?}: the answer has no value for a row", output.name);
            return Err(Failure::new(Reason::Internal, message));
        }
        (0..times).for_each(|_| data.extend_from_slice(&user));
        all += rows;
    }
    let size = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
    let (name, shape) = (output.name.clone(), vec![size(all), size(output.width)]);
    Ok(Tensor { name, datatype, shape, data: data.freeze() })
}
