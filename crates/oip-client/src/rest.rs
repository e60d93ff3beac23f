//! The protocol over HTTP: JSON, with or without the binary tensor extension.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE},
};
use outrigger_oip::{
    InferResponse, Parameters,
    rest::{self, Encoded, Unreadable},
};
use outrigger_resilience::{rate_limit_pause, retry_after};
use outrigger_rpc::Kept;
use reqwest::{Client, Response, Url};

pub(crate) use outrigger_oip::rest::{escaped, model_path};

use crate::{
    Class, Failure, Form, Status,
    message::Request,
    room::{Ledger, Room},
};

/// The length of the JSON at the beginning of a body with binary tensors.
pub(crate) const JSON_LENGTH: HeaderName = HeaderName::from_static(rest::HEADER_LENGTH);

/// The longest pause that a host may ask for.
const MOST_ASKED: Duration = Duration::from_secs(3600);
/// The bytes that are decompressed at a time.
const PIECE: usize = 64 << 10;

/// Calls one host over HTTP.
pub(crate) struct Rest {
    client: Client,
    /// The URL before `/v2`.
    base: String,
    max_request: usize,
    /// The largest answer to a call that is no inference.
    max_answer: usize,
}

/// A body that was read as a whole, with its headers.
pub(crate) struct Read {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Rest {
    pub(crate) fn new(
        client: Client,
        base: String,
        (max_request, max_answer): (usize, usize),
    ) -> Self {
        Self { client, base, max_request, max_answer }
    }

    /// Runs the model, with tensors in the form `form`. A trial of a form has a connection of its
    /// own: MLServer closes that of a body that it cannot read, and does not say so.
    pub(crate) async fn infer(
        &self,
        request: &Request,
        id: &str,
        (form, headers, is_trial): (Form, &HeaderMap, bool),
        room: &Room<'_>,
    ) -> Result<InferResponse, Failure> {
        let sent = encode(request, id, form)?;
        if sent.size() > self.max_request {
            return Err(Failure::too_large(sent.size(), self.max_request));
        }
        let mut headers = headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(sent.content_type()));
        if is_trial {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(length) = sent.header_length() {
            headers.insert(JSON_LENGTH, length.into());
        }
        let path = format!("{}/infer", model_path(&request.model, request.version.as_deref()));
        let answer = self.send((Method::POST, &path), headers, sent.into_body(), room).await;
        let answer = answer.map_err(|failure| Failure {
            wrong_form: form == Form::Binary && may_be_the_form(&failure),
            ..failure
        })?;
        decode(&answer, room)
    }

    /// Makes a call that is no inference. Its answer is charged to `ledger`.
    pub(crate) async fn call(
        &self,
        call: (Method, &str),
        headers: HeaderMap,
        body: Bytes,
        ledger: Option<&dyn Ledger>,
    ) -> Result<Read, Failure> {
        self.send(call, headers, body, &Room::new(self.max_answer, ledger)).await
    }

    /// Sends a request, and reads the answer. A status other than success is a failure.
    async fn send(
        &self,
        (method, path): (Method, &str),
        mut headers: HeaderMap,
        body: Bytes,
        room: &Room<'_>,
    ) -> Result<Read, Failure> {
        let url = format!("{}{path}", self.base);
        let url = Url::parse(&url).map_err(|_| Failure::refused(format!("{path:?} is no path")))?;
        // Decompression costs more than it saves between machines that are near each other.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let sent = self.client.request(method, url).headers(headers).body(body).send();
        let sent = match room.place.clone() {
            Some(place) => Kept::new(Box::pin(sent), place).await.0,
            None => sent.await,
        };
        let response = sent.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response, room).await?;
        if status.is_success() {
            return Ok(Read { status, headers, body });
        }
        let asked = retry_after(&headers, SystemTime::now(), MOST_ASKED).or_else(|| {
            let is_limit = status == StatusCode::TOO_MANY_REQUESTS;
            is_limit.then(|| rate_limit_pause(&headers, 1, MOST_ASKED)).flatten()
        });
        Err(Failure {
            retry_after: asked,
            ..Failure::http(status, outrigger_oip::message::of_body(&body))
        })
    }
}

/// The body of an answer, decompressed.
async fn read(mut response: Response, room: &Room<'_>) -> Result<Bytes, Failure> {
    let encoding = response.headers().get(CONTENT_ENCODING).cloned();
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        add(&mut body, &chunk, room)?;
    }
    let encoding = encoding.as_ref().map(|it| it.to_str().unwrap_or_default().to_lowercase());
    match encoding.as_deref() {
        None | Some("" | "identity") => Ok(body.freeze()),
        Some("gzip" | "x-gzip") => decompressed(MultiGzDecoder::new(&body[..]), room),
        Some("deflate") => decompressed(ZlibDecoder::new(&body[..]), room),
        Some(other) => Err(Failure::invalid(format!("it is compressed with {other:?}"))),
    }
}

fn decompressed(mut reader: impl std::io::Read, room: &Room<'_>) -> Result<Bytes, Failure> {
    let (mut body, mut piece) = (BytesMut::new(), vec![0; PIECE]);
    loop {
        let read = reader.read(&mut piece);
        let cause = |error| Failure::invalid(format!("it cannot be decompressed: {error}"));
        match read.map_err(cause)? {
            0 => return Ok(body.freeze()),
            length => add(&mut body, &piece[..length], room)?,
        }
    }
}

/// Adds a piece to a body if there is room for it.
fn add(body: &mut BytesMut, piece: &[u8], room: &Room<'_>) -> Result<(), Failure> {
    if body.len() + piece.len() > room.limit() {
        return Err(Failure::invalid(format!("it is larger than {} bytes", room.limit())));
    }
    room.take(piece.len() as u64)?;
    body.extend_from_slice(piece);
    Ok(())
}

/// Encodes a request, with all outputs in the form of the inputs.
fn encode(request: &Request, id: &str, form: Form) -> Result<Encoded, Failure> {
    let form = if form == Form::Json { rest::Form::Json } else { rest::Form::Binary };
    rest::write_request(&request.message(id, Parameters::default()), form)
        .map_err(|fault| Failure::refused(fault.to_string()))
}

/// Decodes an answer into `room`. Its binary tensors are found by the header alone: one server leaves out the
/// content type.
fn decode(answer: &Read, room: &Room<'_>) -> Result<InferResponse, Failure> {
    let length = answer.headers.get(JSON_LENGTH).map(|value| {
        let length = value.to_str().ok().and_then(|text| text.trim().parse::<usize>().ok());
        length
            .ok_or_else(|| Failure::invalid("its header with the length of the JSON is no number"))
    });
    let length = length.transpose()?;
    let json = length.and_then(|length| answer.body.get(..length)).unwrap_or(&answer.body);
    room.take(rest::memory(json))?;
    rest::read_response(&answer.body, length).map_err(|fault| Failure {
        needs_binary: fault == Unreadable::NotUtf8,
        ..Failure::invalid(fault)
    })
}

/// True if the host may have failed because it does not know binary tensors: such a host takes the
/// body for malformed JSON, or fails.
fn may_be_the_form(failure: &Failure) -> bool {
    let is_busy = matches!(failure.class, Class::Overloaded | Class::Unavailable | Class::Timeout);
    matches!(failure.status, Status::Http(_)) && !is_busy
}

/// The failure of a call without an answer. The URL is left out of it.
fn failed(error: reqwest::Error) -> Failure {
    let (is_connect, is_timeout) = (error.is_connect(), error.is_timeout());
    let error = error.without_url();
    let cause =
        std::iter::successors(Some(&error as &dyn std::error::Error), |it| it.source()).last();
    let cause = cause.map_or_else(String::new, ToString::to_string);
    match (is_connect, is_timeout) {
        (true, _) => Failure::new(Class::Unavailable, format!("cannot connect: {cause}")),
        (_, true) => Failure::timeout(),
        _ => Failure::new(Class::Lost, format!("the connection broke: {cause}")),
    }
}
