//! Requests, read strictly, and responses, read as known servers write them.

use bytes::Bytes;
use outrigger_proto::inference::{
    InferTensorContents, ModelInferRequest, ModelInferResponse,
    model_infer_request::InferInputTensor, model_infer_response::InferOutputTensor,
};

use super::{contents, read_parameters};
use crate::{
    DataType, InferRequest, InferResponse, Malformed, RequestedOutput, Tensor, infer, shape,
};

/// Reads a request; the names of its model and version are left to the caller. Also returns true if
/// its contents are raw, so that those of the response should be.
///
/// # Errors
/// An input has contents beside raw ones, there are other numbers of raw contents than of inputs, or
/// contents do not match the datatype and the shape.
pub fn read_request(request: ModelInferRequest) -> Result<(InferRequest, bool), Malformed> {
    let ModelInferRequest { id, parameters, inputs, outputs, raw_input_contents: raw, .. } =
        request;
    let is_raw = !raw.is_empty();
    if is_raw && raw.len() != inputs.len() {
        let message = format!("{} entries for {} inputs", raw.len(), inputs.len());
        return Err(Malformed::at("raw_input_contents", message));
    }
    let mut raw = raw.into_iter();
    let inputs = inputs.into_iter().enumerate().map(|(index, input)| {
        read_input(input, raw.next()).map_err(|fault| fault.within(&format!("inputs[{index}]")))
    });
    let inputs = inputs.collect::<Result<_, _>>()?;
    let outputs = outputs.into_iter().enumerate().map(|(index, output)| {
        let parameters = read_parameters(output.parameters);
        parameters
            .and_then(|parameters| RequestedOutput::new(output.name, &parameters))
            .map_err(|fault| fault.within(&format!("outputs[{index}]")))
    });
    let request = InferRequest {
        id: (!id.is_empty()).then_some(id),
        parameters: read_parameters(parameters)?,
        inputs,
        outputs: outputs.collect::<Result<_, _>>()?,
    };
    request.check()?;
    Ok((request, is_raw))
}

fn read_input(input: InferInputTensor, raw: Option<Bytes>) -> Result<Tensor, Malformed> {
    let InferInputTensor { name, datatype, shape, parameters, contents } = input;
    infer::refuse(&read_parameters(parameters)?)?;
    let datatype = DataType::read(&datatype)?;
    match (raw, contents) {
        (Some(_), Some(_)) => {
            let message = "is set, and raw_input_contents too";
            Err(Malformed::at("contents", message))
        }
        (Some(data), None) => Tensor::new(name, datatype, shape, data),
        (None, contents) => {
            let data = contents::data(contents.unwrap_or_default(), datatype, &shape)?;
            Ok(Tensor { name: name.into(), datatype, shape, data })
        }
    }
}

/// Reads a response. If there are fewer raw contents than outputs, they are those of the outputs
/// that have elements and no contents; contents without elements beside raw ones are ignored.
///
/// # Errors
/// Raw contents cannot be assigned to outputs, or contents do not match the datatype and the shape.
pub fn read_response(response: ModelInferResponse) -> Result<InferResponse, Malformed> {
    let ModelInferResponse { model_name, model_version, id, parameters, outputs, .. } = response;
    let mut raw = assign(response.raw_output_contents, &outputs)?.into_iter();
    let outputs = outputs.into_iter().enumerate().map(|(index, output)| {
        read_output(output, raw.next().flatten())
            .map_err(|fault| fault.within(&format!("outputs[{index}]")))
    });
    Ok(InferResponse {
        model_name,
        model_version: (!model_version.is_empty()).then_some(model_version),
        id: (!id.is_empty()).then_some(id),
        parameters: read_parameters(parameters).unwrap_or_default(),
        outputs: outputs.collect::<Result<_, _>>()?,
    })
}

/// The raw contents of each output.
fn assign(raw: Vec<Bytes>, outputs: &[InferOutputTensor]) -> Result<Vec<Option<Bytes>>, Malformed> {
    if raw.len() == outputs.len() {
        return Ok(raw.into_iter().map(Some).collect());
    }
    let found = raw.len();
    let mut raw = raw.into_iter();
    let needs = |output: &InferOutputTensor| {
        output.contents.as_ref().is_none_or(contents::are_empty)
            && shape::elements(&output.shape) != Ok(0)
    };
    let assigned: Vec<_> =
        outputs.iter().map(|output| if needs(output) { raw.next() } else { None }).collect();
    if found > 0 && raw.next().is_some() {
        let message = format!("{found} entries for {} outputs", outputs.len());
        return Err(Malformed::at("raw_output_contents", message));
    }
    Ok(assigned)
}

fn read_output(output: InferOutputTensor, raw: Option<Bytes>) -> Result<Tensor, Malformed> {
    let InferOutputTensor { name, datatype, shape, contents, .. } = output;
    let datatype = DataType::read(&datatype)?;
    let contents = contents.filter(|contents: &InferTensorContents| !contents::are_empty(contents));
    match (raw, contents) {
        (Some(data), None) => Tensor::new(name, datatype, shape, data),
        (Some(data), Some(_)) if !data.is_empty() => Tensor::new(name, datatype, shape, data),
        (None, None) if shape::elements(&shape)? == 0 => {
            Ok(Tensor { name: name.into(), datatype, shape, data: Bytes::new() })
        }
        (_, contents) => {
            let data = contents::data(contents.unwrap_or_default(), datatype, &shape)?;
            Ok(Tensor { name: name.into(), datatype, shape, data })
        }
    }
}
