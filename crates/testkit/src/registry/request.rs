//! The registry's record of requests.

use std::collections::BTreeMap;

/// A received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `HEAD`, …
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, or the empty string.
    pub query: String,
    /// The headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body of a call to the token server; empty for other requests.
    pub form: String,
}

impl Request {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}
