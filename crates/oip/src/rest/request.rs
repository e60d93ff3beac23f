//! Requests of callers, read strictly.

use bytes::Bytes;
use outrigger_json::Cursor;

use super::{
    data,
    fields::{self, Fault, Reading, is_null, put},
    tensor::{self, Head},
};
use crate::{InferRequest, Malformed, Parameters, RequestedOutput};

/// The fields of a request, as they were found.
#[derive(Debug, Default)]
struct Fields {
    id: Option<String>,
    parameters: Option<Parameters>,
    inputs: Option<Vec<Head>>,
    outputs: Option<Vec<RequestedOutput>>,
}

/// Reads a request from a body. `json` is the length of the JSON in front of the binary tensors,
/// from the header [`HEADER_LENGTH`](super::HEADER_LENGTH); `None` if the header is not sent. The
/// tensors share the memory of the body where they are binary.
///
/// # Errors
/// The body is no JSON, or no request: each fault names its field. Other keys than those of the
/// protocol are ignored.
pub fn read_request(body: &Bytes, json: Option<usize>) -> Result<InferRequest, Malformed> {
    let length = json.unwrap_or(body.len());
    if length > body.len() {
        let message =
            format!("{}: {length}, but the body has {} bytes", super::HEADER_LENGTH, body.len());
        return Err(Malformed::new(message));
    }
    let (text, mut behind) = (body.slice(..length), body.slice(length..));
    let fields = read_fields(&text)?;
    let Some(heads) = fields.inputs else {
        return Err(Malformed::at("inputs", "is missing"));
    };
    let request = InferRequest {
        id: fields.id,
        parameters: fields.parameters.unwrap_or_default(),
        inputs: finish(heads, &mut behind, "inputs")?,
        outputs: fields.outputs.unwrap_or_default(),
    };
    request.check()?;
    Ok(request)
}

/// The tensors with their data, which must end where `behind` does.
pub(super) fn finish(
    heads: Vec<Head>,
    behind: &mut Bytes,
    field: &str,
) -> Result<Vec<crate::Tensor>, Malformed> {
    let mut tensors = Vec::with_capacity(heads.len());
    for (index, head) in heads.into_iter().enumerate() {
        let tensor = head.finish(behind);
        tensors.push(tensor.map_err(|fault| fault.within(&format!("{field}[{index}]")))?);
    }
    match behind.len() {
        0 => Ok(tensors),
        rest => Err(Malformed::at(field, format!("{rest} bytes follow the last binary tensor"))),
    }
}

fn read_fields(text: &[u8]) -> Result<Fields, Malformed> {
    if let Err(error) = str::from_utf8(text) {
        let at = error.valid_up_to();
        return Err(Malformed::new(format!("the body is not in UTF-8 at byte {at}")));
    }
    let (mut cursor, mut fields) = (Cursor::new(text), Fields::default());
    let read = fields::object(&mut cursor, |key, cursor| member(&mut fields, key, cursor))
        .and_then(|()| Ok(cursor.end()?));
    match read {
        Ok(()) => Ok(fields),
        Err(fault) => Err(fault.into_malformed(text, cursor.rest)),
    }
}

/// The id of a request, also of one that cannot be read, if its text is JSON up to the id.
pub fn find_id(json: &[u8]) -> Option<String> {
    let (mut cursor, mut id) = (Cursor::new(json), None);
    // A fault behind the id does not matter.
    let _ = cursor.object(|key, cursor| match &*key.read()? {
        b"id" => {
            id = Some(fields::text(cursor, "id")?);
            Ok(())
        }
        _ => data::skip(cursor),
    });
    id
}

fn member(fields: &mut Fields, key: &[u8], cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    match key {
        b"id" if is_null(cursor) => Ok(true),
        b"id" => put(&mut fields.id, fields::text(cursor, "id")?, "id"),
        b"parameters" => put(&mut fields.parameters, fields::parameters(cursor)?, "parameters"),
        b"inputs" => {
            let mut inputs = Vec::new();
            fields::array(cursor, "inputs", |_, cursor| {
                inputs.push(tensor::read(cursor, Reading::Strict)?);
                Ok(())
            })?;
            put(&mut fields.inputs, inputs, "inputs")
        }
        b"outputs" if is_null(cursor) => Ok(true),
        b"outputs" => {
            let mut outputs = Vec::new();
            fields::array(cursor, "outputs", |_, cursor| {
                outputs.push(requested(cursor)?);
                Ok(())
            })?;
            put(&mut fields.outputs, outputs, "outputs")
        }
        _ => Ok(false),
    }
}

fn requested(cursor: &mut Cursor<'_>) -> Result<RequestedOutput, Fault> {
    let (mut name, mut parameters) = (None, None);
    fields::object(cursor, |key, cursor| match key {
        b"name" => put(&mut name, fields::name(cursor)?, "name"),
        b"parameters" => put(&mut parameters, fields::parameters(cursor)?, "parameters"),
        _ => Ok(false),
    })?;
    let name = name.ok_or_else(|| Malformed::at("name", "is missing"))?;
    Ok(RequestedOutput::new(name, &parameters.unwrap_or_default())?)
}
