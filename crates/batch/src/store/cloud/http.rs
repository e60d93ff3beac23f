//! The HTTP client of stores. It judges answers by their status: the library's errors do not show
//! it.

use std::pin::Pin;

use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures::StreamExt as _;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService, ReqwestConnector,
    },
};

/// The most bytes that are read of an answer that is an error.
const MOST_BODY: usize = 64 << 10;
/// The most letters of the code of an error.
const MOST_CODE: usize = 64;
/// Azure's header with the code of an error.
const AZURE_CODE: &str = "x-ms-error-code";
/// The codes with the status 400 that are about credentials, and those of a store that may answer
/// later.
const CREDENTIALS: [&str; 9] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidIdentityToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
];
const LATER: [&str; 1] = ["RequestTimeout"];
/// The codes with the status 404 that are about a bucket.
const NO_BUCKET: [&str; 2] = ["ContainerNotFound", "NoSuchBucket"];

/// An answer that is an error of the store as a whole, with no part of it but the code: others may
/// have secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Verdict {
    /// The store may answer later.
    #[error("{0}")]
    Away(String),
    /// The credentials are refused.
    #[error("{0}")]
    Refused(String),
    /// There is no such bucket.
    #[error("there is no such bucket")]
    NoBucket,
}

/// Makes clients that judge answers.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Judging(client)))
    }
}

#[derive(Debug)]
struct Judging(HttpClient);

/// The future that the library's trait asks for.
type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Judging {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { judged(self.0.execute(request).await?).await })
    }
}

/// An answer, or the verdict on it as an error.
async fn judged(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let status = answer.status();
    if !is_suspect(status) {
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let body = beginning(body).await?;
    match verdict(status, &parts.headers, &body) {
        None => Ok(HttpResponse::from_parts(parts, body.into())),
        // The library repeats nothing of this kind.
        Some(verdict) => Err(HttpError::new(HttpErrorKind::Decode, verdict)),
    }
}

/// True if an answer with this status may be about the store as a whole.
fn is_suspect(status: StatusCode) -> bool {
    status.is_server_error() || [400, 401, 403, 404, 408, 425, 429].contains(&status.as_u16())
}

/// The first bytes of an answer.
async fn beginning(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let (mut stream, mut bytes) = (body.bytes_stream(), Vec::new());
    while bytes.len() < MOST_BODY {
        let Some(next) = stream.next().await else { break };
        bytes.extend_from_slice(&next?);
    }
    bytes.truncate(MOST_BODY);
    Ok(bytes.into())
}

/// The verdict on an answer whose status is suspect; `None` if it is about the request alone.
fn verdict(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Verdict> {
    let header = headers.get(AZURE_CODE).and_then(|code| code.to_str().ok());
    let body = String::from_utf8_lossy(body);
    let code = header.map(str::to_owned).or_else(|| code(&body));
    let is_one_of = |codes: &[&str]| code.as_deref().is_some_and(|code| codes.contains(&code));
    let shown = match &code {
        Some(code) => format!("{status} ({code})"),
        None => status.to_string(),
    };
    match status.as_u16() {
        401 | 403 => Some(Verdict::Refused(shown)),
        400 if is_one_of(&CREDENTIALS) => Some(Verdict::Refused(shown)),
        400 if !is_one_of(&LATER) => None,
        404 => is_one_of(&NO_BUCKET).then_some(Verdict::NoBucket),
        // The store does not know the request, and never will.
        501 | 505 => None,
        _ => Some(Verdict::Away(shown)),
    }
}

/// The code in the text of an error, in XML or JSON.
fn code(body: &str) -> Option<String> {
    let xml = body.split_once("<Code>").and_then(|(_, rest)| rest.split_once('<'));
    let json = || {
        let (_, rest) = body.split_once("\"error\"")?;
        let value = rest.trim_start().strip_prefix(':')?.trim_start();
        value.strip_prefix('"')?.split_once('"')
    };
    let (code, _) = xml.or_else(json)?;
    let is_code = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let is_valid = (1..=MOST_CODE).contains(&code.len()) && code.chars().all(is_code);
    is_valid.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(status: u16, body: &str) -> Option<Verdict> {
        let status = StatusCode::from_u16(status).expect("a status");
        is_suspect(status).then(|| verdict(status, &HeaderMap::new(), body.as_bytes())).flatten()
    }

    fn xml(code: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>secret</Message></Error>"
        )
    }

    #[test]
    fn answers_are_judged_by_status_and_code() {
        let away = |text: &str| Some(Verdict::Away(text.to_owned()));
        let refused = |text: &str| Some(Verdict::Refused(text.to_owned()));
        for (status, body, expected) in [
            (200, String::new(), None),
            (404, xml("NoSuchKey"), None),
            (404, xml("NoSuchBucket"), Some(Verdict::NoBucket)),
            (409, xml("ConditionalRequestConflict"), None),
            (412, xml("PreconditionFailed"), None),
            (400, xml("InvalidArgument"), None),
            (400, String::new(), None),
            (501, xml("NotImplemented"), None),
            (400, xml("ExpiredToken"), refused("400 Bad Request (ExpiredToken)")),
            (400, xml("RequestTimeout"), away("400 Bad Request (RequestTimeout)")),
            (403, xml("AccessDenied"), refused("403 Forbidden (AccessDenied)")),
            (403, String::new(), refused("403 Forbidden")),
            (
                400,
                r#"{"error": "invalid_grant", "error_description": "secret"}"#.to_owned(),
                refused("400 Bad Request (invalid_grant)"),
            ),
            (401, r#"{"error": {"message": "secret"}}"#.to_owned(), refused("401 Unauthorized")),
            (403, xml("a secret with spaces"), refused("403 Forbidden")),
            (429, String::new(), away("429 Too Many Requests")),
            (503, xml("SlowDown"), away("503 Service Unavailable (SlowDown)")),
            (500, "not XML".to_owned(), away("500 Internal Server Error")),
        ] {
            assert_eq!(judge(status, &body), expected, "{status} {body}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(AZURE_CODE, "ServerBusy".parse().expect("a value"));
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let expected = away("503 Service Unavailable (ServerBusy)");
        assert_eq!(verdict(status, &headers, b""), expected);
    }
}
