//! Responses of servers, read leniently: known servers differ in their JSON.

use bytes::Bytes;
use outrigger_json::{Cursor, Odd};

use super::{
    fields::{self, Fault, Reading, is_null, put},
    request::finish,
    tensor::{self, Head},
};
use crate::{InferResponse, Malformed, Parameters, message};

/// The reason why a response cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The JSON is not in UTF-8: the server writes bytes into strings as they are. Binary tensors
    /// avoid it.
    #[error("the JSON is not in UTF-8")]
    NotUtf8,
    /// The body is that of an error, with this message, although the status was a success.
    #[error("the server reports an error: {0}")]
    Error(String),
    /// The body is no response.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// The fields of a response, as they were found.
#[derive(Debug, Default)]
struct Fields {
    model_name: Option<String>,
    model_version: Option<String>,
    id: Option<String>,
    parameters: Option<Parameters>,
    outputs: Option<Vec<Head>>,
    is_error: bool,
}

/// Reads a response from a body. `json` is the length of the JSON in front of the binary tensors,
/// from the header [`HEADER_LENGTH`](super::HEADER_LENGTH); `None` if the header is not sent,
/// whatever the content type.
///
/// Beside the protocol's JSON it takes: fields that are null or missing; data nested in any way, or
/// missing where the shape has a 0; parameters of any form; integers for floats; `null` and the words `NaN`, `Infinity` and
/// `-Infinity` for floats that are not finite; 0 and 1 for booleans; versions that are numbers.
///
/// # Errors
/// The body is no response, or an error. An output has another number of elements than its shape.
pub fn read_response(body: &Bytes, json: Option<usize>) -> Result<InferResponse, Unreadable> {
    let length = json.unwrap_or(body.len());
    if length > body.len() {
        let message =
            format!("the JSON has {length} bytes by its header, but the body {}", body.len());
        return Err(Malformed::new(message).into());
    }
    let (text, mut behind) = (body.slice(..length), body.slice(length..));
    if str::from_utf8(&text).is_err() {
        return Err(Unreadable::NotUtf8);
    }
    let (mut cursor, mut fields) = (Cursor::new(&text), Fields::default());
    let read = fields::object(&mut cursor, |key, cursor| member(&mut fields, key, cursor))
        .and_then(|()| Ok(cursor.end()?));
    if let Err(fault) = read {
        return Err(fault.into_malformed(&text, cursor.rest).into());
    }
    let Some(heads) = fields.outputs else {
        return Err(match fields.is_error {
            true => Unreadable::Error(message::of_body(&text)),
            false => Malformed::at("outputs", "is missing").into(),
        });
    };
    let outputs = finish(heads, &mut behind, "outputs")?;
    Ok(InferResponse {
        model_name: fields.model_name.unwrap_or_default(),
        model_version: fields.model_version,
        id: fields.id,
        parameters: fields.parameters.unwrap_or_default(),
        outputs,
    })
}

fn member(fields: &mut Fields, key: &[u8], cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    if is_null(cursor) {
        return Ok(true);
    }
    match key {
        b"model_name" => {
            put(&mut fields.model_name, fields::text(cursor, "model_name")?, "model_name")
        }
        b"model_version" => put(&mut fields.model_version, version(cursor)?, "model_version"),
        b"id" => put(&mut fields.id, fields::text(cursor, "id")?, "id"),
        b"parameters" => {
            let parameters = fields::parameters_as(Reading::Lenient, cursor)?;
            put(&mut fields.parameters, parameters, "parameters")
        }
        b"outputs" => {
            let mut outputs = Vec::new();
            fields::array(cursor, "outputs", |_, cursor| {
                outputs.push(tensor::read(cursor, Reading::Lenient)?);
                Ok(())
            })?;
            put(&mut fields.outputs, outputs, "outputs")
        }
        b"error" | b"detail" => {
            fields.is_error = true;
            Ok(false)
        }
        _ => Ok(false),
    }
}

/// A version: a string, or a number as its text.
fn version(cursor: &mut Cursor<'_>) -> Result<String, Fault> {
    if cursor.peek() == Some(b'"') {
        return fields::text(cursor, "model_version");
    }
    let before = cursor.rest;
    cursor.value(0)?;
    let text = &before[..before.len() - cursor.rest.len()];
    str::from_utf8(text).map(str::to_owned).map_err(|_| Odd.into())
}
