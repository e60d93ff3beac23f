//! Requests and replies, the same in all forms of messages.

use std::{collections::BTreeSet, sync::Arc};

use http::HeaderMap;
use outrigger_oip::{DataType, InferRequest, InferResponse, Parameters, RequestedOutput, Tensor};
use tokio::time::Instant;

use crate::{Failure, Form};

/// A request to run a model once.
#[derive(Debug, Clone)]
pub struct Request {
    /// The model's name on the hosts.
    pub model: Arc<str>,
    /// The version; `None`: the host chooses it.
    pub version: Option<Arc<str>>,
    /// The inputs.
    pub inputs: Vec<Tensor>,
    /// The names of the wanted outputs; empty: all.
    pub outputs: Vec<Arc<str>>,
    /// The rows that each output must have, if the model has one for each row of the inputs.
    pub rows: Option<u64>,
    /// True if the model takes one row in a request, and its tensors have the sizes of a row without a
    /// first dimension for rows. Here the tensors have that dimension, and any number of rows.
    pub row_by_row: bool,
    /// The time at which the caller stops waiting.
    pub deadline: Instant,
    /// Further headers, such as a trace context.
    pub headers: HeaderMap,
}

/// The answer of a host, checked against its request.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The outputs, in the order of the request; if it names none, in the order of the host.
    pub outputs: Vec<Tensor>,
    /// The version that answered, if the host names one.
    pub version: Option<String>,
    /// The version that answered before, if it was another one: the model changed meanwhile.
    pub changed_from: Option<String>,
    /// The host.
    pub host: Arc<str>,
    /// The form of the messages.
    pub form: Form,
}

impl Request {
    /// The request for a model that takes one row, which is all that this one has.
    ///
    /// # Errors
    /// It has another number of rows.
    pub(crate) fn of_one_row(&self) -> Result<Self, Failure> {
        let mut request = Self { rows: None, ..self.clone() };
        for Tensor { name, shape, .. } in &mut request.inputs {
            if shape.first() != Some(&1) {
                let message = format!("input {name}: the shape {shape:?} is not that of one row");
                return Err(Failure::refused(&message));
            }
            shape.remove(0);
        }
        Ok(request)
    }

    /// The request as the protocol has it, in all forms.
    pub(crate) fn message(&self, id: &str, parameters: Parameters) -> InferRequest {
        let output = |name: &Arc<str>| RequestedOutput { name: Arc::clone(name), binary: None };
        InferRequest {
            id: Some(id.to_owned()),
            parameters,
            inputs: self.inputs.clone(),
            outputs: self.outputs.iter().map(output).collect(),
        }
    }

    /// True if JSON has no form for an input: a number that is not finite, text that is not UTF-8,
    /// or a type without a JSON form.
    pub(crate) fn needs_binary(&self) -> bool {
        self.inputs.iter().any(|tensor| match tensor.datatype {
            DataType::Fp16 | DataType::Bf16 => true,
            DataType::Fp32 | DataType::Fp64 => finite(tensor).any(|finite| !finite),
            DataType::Bytes => tensor.texts().any(|text| std::str::from_utf8(text).is_err()),
            _ => false,
        })
    }
}

impl Reply {
    /// The rows, of the outputs' first dimension, with a number that is not finite. JSON's `null`
    /// counts: it stands for a number that JSON cannot write.
    pub fn non_finite_rows(&self) -> BTreeSet<usize> {
        let mut rows = BTreeSet::new();
        for output in &self.outputs {
            let count = output.shape.first().and_then(|rows| usize::try_from(*rows).ok());
            let width = output.shape.iter().skip(1).product::<i64>();
            let Ok(width) = usize::try_from(width.max(1)) else { continue };
            let bad = finite(output).enumerate().filter(|(_, finite)| !finite);
            rows.extend(bad.map(|(at, _)| count.map_or(0, |_| at / width)));
        }
        rows
    }
}

/// For each element of a tensor of floats, true if it is finite; nothing for other types.
fn finite(tensor: &Tensor) -> Box<dyn Iterator<Item = bool> + '_> {
    let (singles, doubles) = (tensor.data.as_chunks::<4>().0, tensor.data.as_chunks::<8>().0);
    match tensor.datatype {
        DataType::Fp32 => Box::new(singles.iter().map(|it| f32::from_le_bytes(*it).is_finite())),
        DataType::Fp64 => Box::new(doubles.iter().map(|it| f64::from_le_bytes(*it).is_finite())),
        _ => Box::new(std::iter::empty()),
    }
}

/// Checks a response against its request, whose id was `id`. Returns the outputs in the request's
/// order, and the version that answered.
pub(crate) fn check(
    response: InferResponse,
    request: &Request,
    id: &str,
) -> Result<(Vec<Tensor>, Option<String>), Failure> {
    let InferResponse { id: echo, model_name, model_version, outputs, .. } = response;
    if echo.is_some_and(|echo| !echo.is_empty() && echo != id) {
        return Err(Failure::invalid("it has the id of another request"));
    }
    if !model_name.is_empty() && model_name != *request.model {
        return Err(Failure::invalid(format!("it is from the model {model_name:?}")));
    }
    check_version(request.version.as_deref(), model_version.as_deref())?;
    outputs.iter().try_for_each(|output| check_output(output, request.rows))?;
    let mut outputs = in_order(outputs, &request.outputs)?;
    if request.row_by_row {
        outputs.iter_mut().for_each(|output| output.shape.insert(0, 1));
    }
    Ok((outputs, model_version.filter(|version| !version.is_empty())))
}

/// Refuses the answer of another version. Only numbers are compared: other names may be tags, to which
/// servers answer with something else.
fn check_version(asked: Option<&str>, found: Option<&str>) -> Result<(), Failure> {
    let number = |version: Option<&str>| version?.parse::<u64>().ok();
    match (number(asked), number(found)) {
        (Some(asked), Some(found)) if asked != found => {
            Err(Failure::other_version(&asked.to_string(), &found.to_string()))
        }
        _ => Ok(()),
    }
}

fn check_output(output: &Tensor, rows: Option<u64>) -> Result<(), Failure> {
    let Tensor { name, shape, .. } = output;
    output.check().map_err(|fault| Failure::invalid(format!("output {name}: {fault}")))?;
    let found = shape.first().and_then(|rows| u64::try_from(*rows).ok());
    match rows {
        Some(rows) if found != Some(rows) => {
            Err(Failure::invalid(format!("output {name} has the shape {shape:?}, not {rows} rows")))
        }
        _ => Ok(()),
    }
}

/// The outputs in the order of `names`, all of which must be there once; without names all, none of
/// them twice. Others are dropped: some models return all of their outputs, whatever was asked for.
fn in_order(mut outputs: Vec<Tensor>, names: &[Arc<str>]) -> Result<Vec<Tensor>, Failure> {
    let mut found = BTreeSet::new();
    if let Some(twice) = outputs.iter().find(|output| !found.insert(Arc::clone(&output.name))) {
        return Err(Failure::invalid(format!("output {} is there twice", twice.name)));
    }
    if names.is_empty() {
        return Ok(outputs);
    }
    let take = |name: &Arc<str>| {
        let at = outputs.iter().position(|output| output.name == *name);
        at.map(|at| outputs.swap_remove(at))
            .ok_or_else(|| Failure::invalid(format!("output {name} is missing")))
    };
    names.iter().map(take).collect()
}

#[cfg(test)]
mod tests;
