//! Inferences over HTTP: JSON, or JSON with binary tensors behind it.

use axum::{
    body::Bytes,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE},
    response::Response,
};
use outrigger_core::{Failure, Reason};
use outrigger_oip::{
    InferResponse, Tensor,
    rest::{
        self, Encoded, Form, Forms, HEADER_LENGTH, ModelPath, NonFinite, json_size, write_response,
    },
};

use super::{
    super::infer::{Asked, Content, infer as run},
    target,
};
use crate::{
    call::Call,
    http::{Documents, Received},
    predict::Predictor,
    routing::invalid,
};

/// The parameter that asks for `null` in place of floats that are not finite, where an output is
/// JSON.
const NULL: &str = "null_for_non_finite";

/// The advice to a caller whose outputs have no form in JSON.
const FORMS: &str = "ask for binary tensors, or, of numbers, for `null_for_non_finite`";

/// Longer JSON is heavy, as that of `/v1/predict` is.
const HEAVY_JSON: usize = 64 << 10;
/// Larger bodies are heavy, as messages over gRPC are.
const HEAVY: usize = 4 << 20;

/// The parts of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// All of it is JSON.
    Json,
    /// JSON of this length, and binary tensors behind it.
    Mixed(usize),
    /// All of it is the data of the model's only input.
    Raw,
}

/// Answers a request.
///
/// # Errors
/// The failure of the request, the model or the engine; `REQUEST_MALFORMED` if an output has no form in
/// JSON, in which the request asks for it.
pub(super) async fn infer(
    documents: &Documents,
    call: &Call,
    request: Request,
    model: ModelPath,
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let layout = Layout::of(&head.headers)?;
    let body = documents.read(call, &head.headers, body).await?;
    let encoded = if layout.json(body.len()) <= HEAVY_JSON && body.len() <= HEAVY {
        answered(documents.predictor(), call, (body, layout), &model).await?
    } else {
        let (predictor, call) = (documents.predictor().clone(), call.clone());
        let work = async move { answered(&predictor, &call, (body, layout), &model).await };
        documents.predictor().heavy().run(work).await?
    };
    let header = encoded.header_length();
    let content_type = encoded.content_type();
    let mut response = documents.response(call, &head.headers, encoded.into_body()).await;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(length) = header {
        headers.insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(length));
    }
    headers.extend(call.headers());
    Ok(response)
}

impl Layout {
    /// Reads the header with the length of the JSON.
    ///
    /// # Errors
    /// It is no number of bytes, or given several times.
    fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let mut values = headers.get_all(HEADER_LENGTH).iter();
        let Some(value) = values.next() else { return Ok(Self::Json) };
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let length = value.to_str().ok().filter(is_number).and_then(|text| text.parse().ok());
        match (length, values.next()) {
            (Some(0), None) => Ok(Self::Raw),
            (Some(length), None) => Ok(Self::Mixed(length)),
            _ => Err(invalid(HEADER_LENGTH, "is no number of bytes, or given several times")),
        }
    }

    /// The length of the JSON in a body of `length` bytes.
    fn json(self, length: usize) -> usize {
        match self {
            Self::Json => length,
            Self::Mixed(json) => json.min(length),
            Self::Raw => 0,
        }
    }
}

/// Reads a request, answers it and writes the response.
async fn answered(
    predictor: &Predictor,
    call: &Call,
    (body, layout): (Received, Layout),
    model: &ModelPath,
) -> Result<Encoded, Failure> {
    let body = body.join_charged(call.held())?;
    let Read { content, memory, forms, non_finite } = read(call, body, layout)?;
    let asked = Asked { target: target(model), content, memory, named: None };
    let response = run(predictor, call, asked).await?;
    written(call, &response, &forms, non_finite)
}

/// A request that was read.
struct Read {
    content: Content,
    /// The memory in bytes that it takes beside its body.
    memory: u64,
    forms: Forms,
    non_finite: NonFinite,
}

/// Reads a request. Its JSON is freed with the body, unless binary tensors share its memory.
fn read(call: &Call, body: Bytes, layout: Layout) -> Result<Read, Failure> {
    let json = match layout {
        Layout::Raw => {
            // The only text of a tensor is a copy with its length.
            let memory = body.len() as u64 + 4;
            let (forms, non_finite) = (Forms::of_raw(), NonFinite::Refuse);
            return Ok(Read { content: Content::Raw(body), memory, forms, non_finite });
        }
        Layout::Json => None,
        Layout::Mixed(json) => Some(json),
    };
    let memory = rest::memory(&body[..layout.json(body.len())]);
    call.charge_work(memory)?;
    let request = rest::read_request(&body, json).inspect_err(|_| {
        // The response names the request even so.
        let id = rest::find_id(&body[..layout.json(body.len())]);
        call.asked_as(&id.unwrap_or_default());
    })?;
    call.asked_as(request.id.as_deref().unwrap_or_default());
    if json.is_none() {
        drop(body);
        call.held().release_body();
    }
    let non_finite = match request.parameters.flag(NULL)? {
        Some(true) => NonFinite::Null,
        Some(false) | None => NonFinite::Refuse,
    };
    let forms = Forms::of(&request)?;
    Ok(Read { content: Content::Request(request), memory, forms, non_finite })
}

/// Writes a response.
fn written(
    call: &Call,
    response: &InferResponse,
    forms: &Forms,
    non_finite: NonFinite,
) -> Result<Encoded, Failure> {
    let form = |output: &Tensor| forms.form(&output.name);
    let data: usize = response.outputs.iter().map(|output| output.data.len()).sum();
    let room = response.outputs.iter().map(|output| match form(output) {
        Form::Json => json_size(output),
        Form::Binary => output.data.len(),
    });
    call.charge_answer((data + room.sum::<usize>()) as u64)?;
    let encoded = write_response(response, form, non_finite)
        .map_err(|fault| Failure::new(Reason::RequestMalformed, format!("{fault}; {FORMS}")))?;
    // Binary tensors are copied behind the JSON.
    call.charge_answer((data + encoded.size().max(encoded.json.capacity())) as u64)?;
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(values: &[&'static str]) -> Result<Layout, Reason> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER_LENGTH, HeaderValue::from_static(value));
        }
        Layout::of(&headers).map_err(|failure| failure.reason)
    }

    #[test]
    fn the_header_decides_the_layout() {
        assert_eq!(layout(&[]), Ok(Layout::Json));
        assert_eq!(layout(&["0"]), Ok(Layout::Raw));
        assert_eq!(layout(&["12"]), Ok(Layout::Mixed(12)));
        for values in [
            &["-1"][..],
            &["+1"],
            &["abc"],
            &[""],
            &["1.0"],
            &["99999999999999999999"],
            &["1", "1"],
        ] {
            assert_eq!(layout(values), Err(Reason::RequestMalformed), "{values:?}");
        }
        assert_eq!(
            [Layout::Json, Layout::Mixed(7), Layout::Mixed(3), Layout::Raw].map(|it| it.json(5)),
            [5, 5, 3, 0]
        );
    }
}
