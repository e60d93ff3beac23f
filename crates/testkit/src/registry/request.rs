//! What the registry remembers of requests.

use std::collections::BTreeMap;

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `HEAD`, …
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query; empty without.
    pub query: String,
    /// The headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body of a call to the token server; empty for others.
    pub form: String,
}

impl Request {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}
