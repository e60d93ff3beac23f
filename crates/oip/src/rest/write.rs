//! Requests and responses as JSON and binary tensors.

mod data;

use bytes::{Bytes, BytesMut};
use outrigger_json::writer::{Object, array, put};

use self::data::write_data;
use super::forms::Form;
use crate::{
    DataType, InferRequest, InferResponse, Malformed, Parameter, Parameters, Tensor, infer,
};

/// The way to write floats that are not finite, for which JSON has no form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonFinite {
    /// They are an error.
    Refuse,
    /// They become `null`.
    Null,
}

/// A message that was written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Encoded {
    /// The JSON.
    pub json: Vec<u8>,
    /// The data of the binary tensors, which follow the JSON in this order. Empty if the message
    /// has none.
    pub binary: Vec<Bytes>,
}

impl Encoded {
    /// The value of the header [`HEADER_LENGTH`](super::HEADER_LENGTH): that of a message with
    /// binary tensors, even if all of these have no elements.
    pub fn header_length(&self) -> Option<usize> {
        (!self.binary.is_empty()).then_some(self.json.len())
    }

    /// The content type.
    pub fn content_type(&self) -> &'static str {
        if self.binary.is_empty() { "application/json" } else { "application/octet-stream" }
    }

    /// The size of the body in bytes.
    pub fn size(&self) -> usize {
        self.json.len() + self.binary.iter().map(Bytes::len).sum::<usize>()
    }

    /// The body.
    pub fn into_body(self) -> Bytes {
        if self.binary.is_empty() {
            return self.json.into();
        }
        let mut body = BytesMut::with_capacity(self.size());
        body.extend_from_slice(&self.json);
        for data in &self.binary {
            body.extend_from_slice(data);
        }
        body.freeze()
    }

    fn tensor(
        &mut self,
        tensor: &Tensor,
        form: Form,
        non_finite: NonFinite,
    ) -> Result<(), Malformed> {
        let mut object = Object::open(&mut self.json);
        put(&*tensor.name, object.key("name"));
        put(tensor.datatype.as_str(), object.key("datatype"));
        put(&tensor.shape, object.key("shape"));
        match form {
            Form::Json => write_data(tensor, non_finite, object.key("data"))?,
            Form::Binary => {
                let mut parameters = Object::open(object.key("parameters"));
                put(tensor.data.len(), parameters.key(infer::BINARY_SIZE));
                parameters.close();
                self.binary.push(tensor.data.clone());
            }
        }
        object.close();
        Ok(())
    }

    fn tensors<'t>(
        &mut self,
        tensors: impl Iterator<Item = (&'t Tensor, Form)>,
        field: &str,
        non_finite: NonFinite,
    ) -> Result<(), Malformed> {
        self.json.push(b'[');
        for (index, (tensor, form)) in tensors.enumerate() {
            if index > 0 {
                self.json.push(b',');
            }
            self.tensor(tensor, form, non_finite)
                .map_err(|fault| fault.within(&format!("{field}[{index}]")))?;
        }
        self.json.push(b']');
        Ok(())
    }
}

/// Writes a request. Each requested output gets the parameter `binary_data`, since servers disagree
/// about its default: as the output says, or else as the form of the request. A binary request for
/// all outputs gets `binary_data_output`, unless it has it.
///
/// # Errors
/// There are too many parameters, or an input has no form in JSON: FP16, BF16, a float that is not finite, bytes that are not in
/// UTF-8.
pub fn write_request(request: &InferRequest, form: Form) -> Result<Encoded, Malformed> {
    let parameters = request_parameters(request, form)?;
    let mut encoded = Encoded::default();
    let json = &mut encoded.json;
    json.push(b'{');
    if let Some(id) = &request.id {
        json.extend_from_slice(b"\"id\":");
        put(id, json);
        json.push(b',');
    }
    if !parameters.is_empty() {
        json.extend_from_slice(b"\"parameters\":");
        write_parameters(&parameters, json);
        json.push(b',');
    }
    json.extend_from_slice(b"\"inputs\":");
    let inputs = request.inputs.iter().map(|input| (input, form));
    encoded.tensors(inputs, "inputs", NonFinite::Refuse)?;
    let json = &mut encoded.json;
    if !request.outputs.is_empty() {
        json.extend_from_slice(b",\"outputs\":");
        array(request.outputs.iter(), json, |output, out| {
            let mut object = Object::open(out);
            put(&*output.name, object.key("name"));
            let mut parameters = Object::open(object.key("parameters"));
            let binary = output.binary.unwrap_or(form == Form::Binary);
            put(binary, parameters.key(infer::BINARY));
            parameters.close();
            object.close();
        });
    }
    encoded.json.push(b'}');
    Ok(encoded)
}

/// The parameters of a request, with the one that asks for all outputs in the form of the inputs.
fn request_parameters(request: &InferRequest, form: Form) -> Result<Parameters, Malformed> {
    let mut parameters = request.parameters.clone();
    let is_named = !request.outputs.is_empty() || parameters.get(infer::BINARY_OUTPUT).is_some();
    if form == Form::Binary && !is_named {
        parameters.insert(infer::BINARY_OUTPUT, Parameter::Bool(true))?;
    }
    Ok(parameters)
}

/// Writes a response; `form` gives the form of each output. Members without content are left out.
///
/// # Errors
/// An output has no form in JSON: FP16, BF16, bytes that are not in UTF-8, and, unless `non_finite`
/// allows it, a float that is not finite.
pub fn write_response(
    response: &InferResponse,
    form: impl Fn(&Tensor) -> Form,
    non_finite: NonFinite,
) -> Result<Encoded, Malformed> {
    let room = response.outputs.iter().filter(|output| form(output) == Form::Json);
    let room = room.map(json_size).sum::<usize>() + 256;
    let mut encoded = Encoded { json: Vec::with_capacity(room), binary: Vec::new() };
    let json = &mut encoded.json;
    json.extend_from_slice(b"{\"model_name\":");
    put(&response.model_name, json);
    let optional = [("model_version", &response.model_version), ("id", &response.id)];
    for (key, value) in optional {
        if let Some(value) = value {
            json.extend_from_slice(format!(",\"{key}\":").as_bytes());
            put(value, json);
        }
    }
    if !response.parameters.is_empty() {
        json.extend_from_slice(b",\"parameters\":");
        write_parameters(&response.parameters, json);
    }
    json.extend_from_slice(b",\"outputs\":");
    let outputs = response.outputs.iter().map(|output| (output, form(output)));
    encoded.tensors(outputs, "outputs", non_finite)?;
    encoded.json.push(b'}');
    Ok(encoded)
}

/// About the size in bytes of a tensor in JSON, without escapes of texts.
pub fn json_size(tensor: &Tensor) -> usize {
    const HEAD: usize = 64;
    let dimensions = 21 * tensor.shape.len();
    let size = tensor.data.len();
    let data = match tensor.datatype {
        // `false,`
        DataType::Bool => 6 * size,
        DataType::Uint8 | DataType::Int8 => 5 * size,
        DataType::Uint16 | DataType::Int16 | DataType::Fp16 | DataType::Bf16 => 4 * size,
        DataType::Uint32 | DataType::Int32 => 3 * size,
        // 21 of 8 bytes.
        DataType::Uint64 | DataType::Int64 => 3 * size,
        // 16 of 4 bytes, 25 of 8 bytes.
        DataType::Fp32 | DataType::Fp64 => 4 * size,
        DataType::Bytes => size,
    };
    HEAD + dimensions + tensor.name.len() + data
}

fn write_parameters(parameters: &Parameters, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    for (name, value) in parameters.iter() {
        let out = object.named(name);
        match value {
            Parameter::Bool(value) => put(value, out),
            Parameter::Integer(value) => put(value, out),
            Parameter::Unsigned(value) => put(value, out),
            // serde_json writes null for those that are not finite.
            Parameter::Real(value) => put(value, out),
            Parameter::Text(value) => put(value, out),
        }
    }
    object.close();
}
