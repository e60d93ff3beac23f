//! The head of a unary call's request.

use std::{io::Write as _, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use outrigger_proto::raw::unary::CALLER_TIMEOUT;

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const CALLER: HeaderName = HeaderName::from_static(CALLER_TIMEOUT);
/// The time beyond its caller's deadline for which a call may go on. Its end cannot be seen after
/// that: gRPC's server answers at the deadline that it was told, whether or not the work goes on. A
/// server that ends work at the deadline goes on for so much longer in vain.
const OVERTIME: Duration = Duration::from_secs(5);
/// The largest timeout: gRPC allows at most eight digits.
const MOST: u128 = 99_999_999;

/// The heads of all calls of one method. They differ in timeout and metadata.
#[derive(Debug, Clone)]
pub struct Head {
    uri: Uri,
    headers: HeaderMap,
}

impl Head {
    /// Creates the head for the method at `path`, such as `/package.Service/Method`, of the
    /// server at `origin`.
    ///
    /// # Panics
    /// If `origin` has no scheme or no authority, or `path` is not a valid path.
    pub fn new(origin: Uri, path: &'static str) -> Self {
        let mut parts = origin.into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static(path));
        let mut headers = HeaderMap::with_capacity(4);
        // The empty value makes copies of the map large enough for the timeout.
        headers.insert(TIMEOUT, HeaderValue::from_static(""));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        Self { uri: Uri::from_parts(parts).expect("an origin and a path"), headers }
    }

    /// The same for calls that go on when their callers have given them up ([`crate::Calls::call_in`]).
    #[must_use]
    pub fn with_overtime(mut self) -> Self {
        self.headers.insert(CALLER, HeaderValue::from_static(""));
        self
    }

    /// The head of a request with the timeout `left` and these `metadata`.
    pub fn within(&self, left: Duration, metadata: &HeaderMap) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.uri.clone();
        let mut headers = self.headers.clone();
        let overtime = headers.get_mut(CALLER).map(|of_caller| {
            *of_caller = timeout(left);
            OVERTIME
        });
        let left = left.saturating_add(overtime.unwrap_or_default());
        *headers.get_mut(TIMEOUT).expect("its place is taken") = timeout(left);
        headers.extend(metadata.iter().map(|(name, value)| (name.clone(), value.clone())));
        *request.headers_mut() = headers;
        request
    }
}

/// Formats `grpc-timeout`, rounded up to milliseconds: few distinct values need few entries in the
/// header compression tables of both sides.
fn timeout(left: Duration) -> HeaderValue {
    let mut text = [0; 9];
    let mut free = &mut text[..];
    let millis = left.as_nanos().div_ceil(1_000_000);
    let written = match millis {
        0..=MOST => write!(free, "{millis}m"),
        _ => write!(free, "{}S", (millis / 1000).min(MOST)),
    };
    written.expect("eight digits and a unit");
    let free = free.len();
    HeaderValue::from_bytes(&text[..text.len() - free]).expect("digits and a letter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_never_shorter_than_the_time_left() {
        let cases = [
            (Duration::from_nanos(1), "1m"),
            (Duration::from_millis(250), "250m"),
            (Duration::from_micros(250_001), "251m"),
            (Duration::from_millis(99_999_999), "99999999m"),
            (Duration::from_millis(100_000_000), "100000S"),
            (Duration::MAX, "99999999S"),
        ];
        for (left, text) in cases {
            assert_eq!(timeout(left), text);
        }
    }

    #[test]
    fn calls_with_overtime_end_seconds_after_their_callers() {
        let head = Head::new(Uri::from_static("http://localhost"), "/package.Service/Method");
        let request = head.with_overtime().within(Duration::from_secs(1), &HeaderMap::new());
        assert_eq!(request.headers()["grpc-timeout"], "6000m");
        assert_eq!(request.headers()["outrigger-caller-timeout"], "1000m");
    }

    #[test]
    fn a_head_names_the_method_and_the_time() {
        let head = Head::new(Uri::from_static("http://localhost"), "/package.Service/Method");
        let metadata = HeaderMap::from_iter([(
            HeaderName::from_static("traceparent"),
            HeaderValue::from_static("00-1-2-01"),
        )]);
        let request = head.within(Duration::from_secs(1), &metadata);
        let uri = "http://localhost/package.Service/Method";
        assert_eq!((request.method(), request.uri()), (&Method::POST, &Uri::from_static(uri)));
        assert_eq!(request.headers()["grpc-timeout"], "1000m");
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.headers()["traceparent"], "00-1-2-01");
        assert_eq!(request.headers()["content-type"], "application/grpc");
    }
}
