//! The outputs of a table: a row for each row of the request.

use bytes::{BufMut as _, BytesMut};
use outrigger_core::{DType, ElementType, Failure, Reason};
use outrigger_features::{
    Plan,
    metadata::{Output, OutputKind},
};
use outrigger_oip::{DataType, Tensor};
use outrigger_proto::outrigger::v1::{
    PredictResponse, ScoreList, predict_response::Output as Scores,
};

/// The datatype of an output: FP32, or INT64 for one of integers.
pub(crate) fn datatype(plan: &Plan, output: &Output) -> DataType {
    let spec = plan.raw().and_then(|raw| raw.interface().output(&output.tensor));
    match spec.map(|spec| &spec.dtype) {
        Some(ElementType::Known(DType::Int32 | DType::Int64)) => DataType::Int64,
        _ => DataType::Fp32,
    }
}

/// The outputs of these names, or all if there are none. `rows` are the numbers of rows of the users
/// whose `responses` these are.
///
/// # Errors
/// The model has no such output, or a response lacks values.
pub fn tensors(
    plan: &Plan,
    names: &[String],
    mut responses: Vec<PredictResponse>,
    rows: &[usize],
) -> Result<Vec<Tensor>, Failure> {
    let outputs = &plan.metadata().outputs;
    let wanted: Vec<&Output> = match names {
        [] => outputs.iter().collect(),
        names => names.iter().map(|name| named(outputs, name)).collect::<Result<_, _>>()?,
    };
    let mut tensors = Vec::with_capacity(wanted.len());
    for (position, output) in wanted.into_iter().enumerate() {
        let lists = responses.iter_mut().map(|response| list(response, position, &output.name));
        tensors.push(tensor(output, datatype(plan, output), lists.zip(rows))?);
    }
    Ok(tensors)
}

fn named<'p>(outputs: &'p [Output], name: &str) -> Result<&'p Output, Failure> {
    outputs.iter().find(|output| *output.name == *name).ok_or_else(|| {
        let message = format!("the model has no output {name:?}");
        Failure::new(Reason::RequestMalformed, format!("outputs: {message}"))
            .violation("outputs", message)
    })
}

/// The values of the output at this position among those asked for.
fn list(response: &mut PredictResponse, position: usize, name: &str) -> ScoreList {
    if position > 0 {
        return response.additional_outputs.remove(name).unwrap_or_default();
    }
    match (response.output.take(), response.score_values.take()) {
        (_, Some(values)) => values,
        (Some(Scores::Scores(list)), None) => list,
        (Some(Scores::Score(score)), None) => {
            ScoreList { values: vec![score], ..ScoreList::default() }
        }
        (None, None) => ScoreList::default(),
    }
}

/// The values of all users, row by row.
fn tensor<'r>(
    output: &Output,
    datatype: DataType,
    lists: impl Iterator<Item = (ScoreList, &'r usize)>,
) -> Result<Tensor, Failure> {
    let (mut data, mut all) = (BytesMut::new(), 0);
    for (list, rows) in lists {
        let user: Vec<u8> = match datatype {
            DataType::Int64 => list.integers.iter().flat_map(|it| it.to_le_bytes()).collect(),
            _ => list.values.iter().flat_map(|it| it.to_le_bytes()).collect(),
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
        (0..times).for_each(|_| data.put_slice(&user));
        all += rows;
    }
    let size = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
    let (name, shape) = (output.name.clone(), vec![size(all), size(output.width)]);
    Ok(Tensor { name, datatype, shape, data: data.freeze() })
}
