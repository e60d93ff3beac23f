//! The header `WWW-Authenticate`: RFC 9110, section 11.6.1.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// One authentication scheme that a registry accepts, with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// The scheme in lower case: `basic`, `bearer`.
    scheme: String,
    parameters: BTreeMap<String, String>,
}

impl Challenge {
    pub(crate) fn is(&self, scheme: &str) -> bool {
        self.scheme == scheme
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }
}

/// All challenges of an answer. Malformed ones are skipped.
pub(crate) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(parse).collect()
}

fn parse(text: &str) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    for item in split_unquoted(text) {
        let (scheme, parameter) = split_scheme(item.trim());
        if let Some(scheme) = scheme {
            let scheme = scheme.to_ascii_lowercase();
            found.push(Challenge { scheme, parameters: BTreeMap::new() });
        }
        if let (Some((name, value)), Some(last)) = (parameter.split_once('='), found.last_mut()) {
            let name = name.trim().to_ascii_lowercase();
            last.parameters.insert(name, unquote(value.trim()));
        }
    }
    found
}

/// Separates the scheme, if there is one, from the parameter: `Bearer realm="x"` has both,
/// `service="y"` has a parameter only.
fn split_scheme(item: &str) -> (Option<&str>, &str) {
    match item.split_once(' ') {
        Some((scheme, rest)) if !scheme.contains(['=', '"']) => (Some(scheme), rest.trim()),
        None if !item.is_empty() && !item.contains('=') => (Some(item), ""),
        _ => (None, item),
    }
}

fn split_unquoted(text: &str) -> Vec<&str> {
    let (mut quoted, mut escaped, mut start, mut items) = (false, false, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    items
}

fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut characters = inner.chars();
    let mut text = String::with_capacity(inner.len());
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_challenge_has_realm_service_and_scope() {
        let text = r#"Bearer realm="https://auth.example/token?a=b",service="registry.example", scope="repository:team/churn:pull,push""#;
        let [challenge] = parse(text).try_into().unwrap();
        assert!(challenge.is("bearer"));
        assert_eq!(challenge.parameter("realm"), Some("https://auth.example/token?a=b"));
        assert_eq!(challenge.parameter("service"), Some("registry.example"));
        assert_eq!(challenge.parameter("scope"), Some("repository:team/churn:pull,push"));
    }

    #[test]
    fn several_challenges_may_share_a_header() {
        let found = parse(r#"Negotiate, BASIC Realm="a \"b\", c", bearer realm=x"#);
        let schemes: Vec<_> = found.iter().map(|challenge| &*challenge.scheme).collect();
        assert_eq!(schemes, ["negotiate", "basic", "bearer"]);
        assert_eq!(found[1].parameter("realm"), Some("a \"b\", c"));
        assert_eq!(found[2].parameter("realm"), Some("x"));
    }

    #[test]
    fn malformed_challenges_are_skipped() {
        for text in ["", ",,", "=", "\"", "Bearer", "Bearer =", "realm=\"x\"", "\\\"é,"] {
            assert!(parse(text).iter().all(|challenge| challenge.parameter("realm").is_none()));
        }
    }
}
