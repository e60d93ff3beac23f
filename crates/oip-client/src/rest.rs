//! The protocol over HTTP: JSON, with or without the binary tensor extension.

use std::{io::Read as _, time::SystemTime};

use bytes::{Bytes, BytesMut};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
};
use outrigger_oip::{
    InferResponse, Parameters,
    rest::{self, Encoded, Unreadable},
};
use reqwest::{Client, Response, Url};

pub(crate) use outrigger_oip::rest::{escaped, model_path};

use crate::{Class, Failure, Form, Status, message::Request, policy::retry_after};

/// The length of the JSON at the beginning of a body with binary tensors.
pub(crate) const JSON_LENGTH: HeaderName = HeaderName::from_static(rest::HEADER_LENGTH);

/// Calls one host over HTTP.
pub(crate) struct Rest {
    client: Client,
    /// The URL before `/v2`.
    base: String,
    limit: usize,
}

/// A body that was read as a whole, with its headers.
pub(crate) struct Read {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Rest {
    pub(crate) fn new(client: Client, base: String, limit: usize) -> Self {
        Self { client, base, limit }
    }

    /// Runs the model, with tensors in the form `form`.
    pub(crate) async fn infer(
        &self,
        request: &Request,
        id: &str,
        (form, headers): (Form, &HeaderMap),
    ) -> Result<InferResponse, Failure> {
        let sent = encode(request, id, form)?;
        if sent.size() > self.limit {
            return Err(Failure::too_large(sent.size(), self.limit));
        }
        let mut headers = headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(sent.content_type()));
        if let Some(length) = sent.header_length() {
            headers.insert(JSON_LENGTH, length.into());
        }
        let path = format!("{}/infer", model_path(&request.model, request.version.as_deref()));
        let answer = self.call(Method::POST, &path, headers, sent.into_body()).await;
        let answer = answer.map_err(|failure| Failure {
            wrong_form: form == Form::Binary && may_be_the_form(&failure),
            ..failure
        })?;
        decode(&answer)
    }

    /// Makes a call, and reads the answer. A status other than success is a failure.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Read, Failure> {
        let url = format!("{}{path}", self.base);
        let url = Url::parse(&url).map_err(|_| Failure::refused(format!("{path:?} is no path")))?;
        // Decompression costs more than it saves between machines that are near each other.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let sent = self.client.request(method, url).headers(headers).body(body).send().await;
        let response = sent.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.body(response).await?;
        if status.is_success() {
            return Ok(Read { headers, body });
        }
        Err(Failure {
            retry_after: retry_after(&headers, SystemTime::now()),
            ..Failure::http(status, outrigger_oip::message::of_body(&body))
        })
    }

    /// The body of an answer, decompressed.
    async fn body(&self, mut response: Response) -> Result<Bytes, Failure> {
        let encoding = response.headers().get(CONTENT_ENCODING).cloned();
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > self.limit {
                return Err(self.too_large());
            }
            body.extend_from_slice(&chunk);
        }
        let encoding = encoding.as_ref().map(|it| it.to_str().unwrap_or_default().to_lowercase());
        match encoding.as_deref() {
            None | Some("" | "identity") => Ok(body.freeze()),
            Some("gzip" | "x-gzip") => self.decompressed(MultiGzDecoder::new(&body[..])),
            Some("deflate") => self.decompressed(ZlibDecoder::new(&body[..])),
            Some(other) => Err(Failure::invalid(format!("it is compressed with {other:?}"))),
        }
    }

    fn decompressed(&self, reader: impl std::io::Read) -> Result<Bytes, Failure> {
        let mut body = Vec::new();
        let read = reader.take(self.limit as u64 + 1).read_to_end(&mut body);
        read.map_err(|error| Failure::invalid(format!("it cannot be decompressed: {error}")))?;
        if body.len() > self.limit { Err(self.too_large()) } else { Ok(body.into()) }
    }

    fn too_large(&self) -> Failure {
        Failure::invalid(format!("it is larger than {} bytes", self.limit))
    }
}

/// Encodes a request, with all outputs in the form of the inputs.
fn encode(request: &Request, id: &str, form: Form) -> Result<Encoded, Failure> {
    let form = if form == Form::Json { rest::Form::Json } else { rest::Form::Binary };
    rest::write_request(&request.message(id, Parameters::default()), form)
        .map_err(|fault| Failure::refused(fault.to_string()))
}

/// Decodes an answer. Its binary tensors are found by the header alone: one server leaves out the
/// content type.
fn decode(answer: &Read) -> Result<InferResponse, Failure> {
    let length = answer.headers.get(JSON_LENGTH).map(|value| {
        let length = value.to_str().ok().and_then(|text| text.trim().parse::<usize>().ok());
        length
            .ok_or_else(|| Failure::invalid("its header with the length of the JSON is no number"))
    });
    rest::read_response(&answer.body, length.transpose()?).map_err(|fault| Failure {
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
