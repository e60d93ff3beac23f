//! A line of a batch: its request, and the tokens that it will need.

use bytes::Bytes;
use outrigger_oip_client::Request;
use serde::Deserialize;
use serde_json::Value;

use super::{BODY, CUSTOM_ID, METHOD, URL};

/// The paths that a line may name.
pub(super) const CHAT: &str = "/v1/chat/completions";
pub(super) const COMPLETIONS: &str = "/v1/completions";
pub(super) const EMBEDDINGS: &str = "/v1/embeddings";

/// The bytes of a body that count as one token.
const BYTES_OF_TOKEN: u64 = 4;
/// The tokens of an answer whose request names no maximum: of completions the default of OpenAI's
/// API, and of chats an estimate.
const COMPLETION_TOKENS: u64 = 16;
const CHAT_TOKENS: u64 = 512;

/// The parts of a line that make its request.
pub(super) struct Line<'a> {
    pub(super) custom_id: &'a str,
    pub(super) url: &'a str,
    pub(super) body: Bytes,
}

/// The members of a body that decide about it here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    stream: Value,
    max_tokens: Value,
    max_completion_tokens: Value,
    n: Value,
}

impl<'a> Line<'a> {
    /// The line of a request with one row; `None` if it has another form.
    pub(super) fn of(request: &'a Request) -> Option<Self> {
        let find = |name| request.inputs.iter().find(|tensor| &*tensor.name == name);
        let bytes = |name| find(name)?.texts().next();
        let text = |name| str::from_utf8(bytes(name)?).ok();
        let data = &find(BODY)?.data;
        let body = data.slice_ref(bytes(BODY)?);
        Some(Self { custom_id: text(CUSTOM_ID)?, url: text(URL)?, body })
    }
}

/// Checks the texts of a line: `custom_id`, `method`, `url` and `body`.
///
/// # Errors
/// The fault of the first one that is not valid.
pub(super) fn check(texts: [Option<&str>; 4]) -> Result<(), String> {
    let [custom_id, method, url, body] = texts;
    let some = |name: &str, text: Option<&str>| {
        text.filter(|text| !text.is_empty())
            .map(drop)
            .ok_or_else(|| format!("{name}: there is none"))
    };
    let named = [(CUSTOM_ID, custom_id), (METHOD, method), (URL, url), (BODY, body)];
    named.into_iter().try_for_each(|(name, text)| some(name, text))?;
    let (method, url, body) =
        (method.unwrap_or_default(), url.unwrap_or_default(), body.unwrap_or_default());
    if method != "POST" {
        return Err(format!("{METHOD}: {method:?} is not POST"));
    }
    if ![CHAT, COMPLETIONS, EMBEDDINGS].contains(&url) {
        let known = format!("{CHAT}, {COMPLETIONS} and {EMBEDDINGS}");
        return Err(format!("{URL}: {url:?} is none of {known}"));
    }
    match Body::read(body.as_bytes())?.stream {
        Value::Null | Value::Bool(false) => Ok(()),
        _ => Err(format!("{BODY}: the answer to a line of a batch is no stream")),
    }
}

impl Body {
    fn read(body: &[u8]) -> Result<Self, String> {
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(format!("{BODY}: it is not an object"));
        }
        serde_json::from_slice(body).map_err(|error| format!("{BODY}: {error}"))
    }
}

/// The estimated tokens of a request: a quarter of the bytes of its body, and the most tokens of its
/// answer. 0 for a request that is no line.
pub(crate) fn tokens(request: &Request) -> u64 {
    let Some(Line { url, body, .. }) = Line::of(request) else { return 0 };
    let prompt = (body.len() as u64).div_ceil(BYTES_OF_TOKEN);
    let Body { max_tokens, max_completion_tokens, n, .. } = Body::read(&body).unwrap_or_default();
    let of_url = match url {
        EMBEDDINGS => return prompt,
        COMPLETIONS => COMPLETION_TOKENS,
        _ => CHAT_TOKENS,
    };
    let most = max_completion_tokens.as_u64().or(max_tokens.as_u64()).unwrap_or(of_url);
    let answers = n.as_u64().unwrap_or(1).max(1);
    prompt.saturating_add(most.saturating_mul(answers))
}

#[cfg(test)]
pub(super) mod tests {
    use http::HeaderMap;
    use tokio::time::Instant;

    use super::*;
    use crate::language::one_text;

    /// The request of a line.
    pub(in crate::language) fn request(url: &str, body: &str) -> Request {
        let texts = [(CUSTOM_ID, "a"), (METHOD, "POST"), (URL, url), (BODY, body)];
        Request {
            model: "openai".into(),
            version: None,
            inputs: texts.iter().map(|(name, text)| one_text(name, text)).collect(),
            outputs: Vec::new(),
            rows: Some(1),
            row_by_row: false,
            deadline: Instant::now(),
            headers: HeaderMap::new(),
        }
    }

    #[test]
    fn only_requests_that_have_one_answer_are_lines() {
        let line = |method, url, body| check([Some("a"), Some(method), Some(url), Some(body)]);
        for body in ["{}", r#" {"stream": false}"#, r#"{"stream": null, "model": "m"}"#] {
            assert_eq!(line("POST", CHAT, body), Ok(()), "{body}");
        }
        for (method, url, body, fault) in [
            ("GET", CHAT, "{}", "method: \"GET\""),
            ("post", CHAT, "{}", "method: \"post\""),
            ("POST", "/v1/files", "{}", "url: \"/v1/files\""),
            ("POST", "http://other/v1/completions", "{}", "url: "),
            ("POST", CHAT, "[]", "body: it is not an object"),
            ("POST", CHAT, "\"{}\"", "body: it is not an object"),
            ("POST", CHAT, "{", "body: "),
            ("POST", CHAT, r#"{"stream": true}"#, "no stream"),
            ("POST", CHAT, r#"{"stream": 1}"#, "no stream"),
        ] {
            let refused = line(method, url, body).expect_err(body);
            assert!(refused.contains(fault), "{refused}");
        }
        let refused = check([None, Some("POST"), Some(CHAT), Some("{}")]);
        assert_eq!(refused, Err("custom_id: there is none".to_owned()));
        let refused = check([Some(""), Some("POST"), Some(CHAT), Some("{}")]);
        assert_eq!(refused, Err("custom_id: there is none".to_owned()));
    }

    #[test]
    fn tokens_are_those_of_the_body_and_the_longest_answer() {
        for (url, body, expected) in [
            (CHAT, "{}", 1 + 512),
            (COMPLETIONS, "{}", 1 + 16),
            (EMBEDDINGS, r#"{"input": "twenty bytes"}"#, 7),
            (CHAT, r#"{"max_tokens": 9}"#, 5 + 9),
            (CHAT, r#"{"max_tokens":9,"max_completion_tokens":7,"n":2}"#, 12 + 14),
            (CHAT, r#"{"max_tokens": -1, "n": 0}"#, 7 + 512),
            (CHAT, r#"{"max_tokens": 18446744073709551615, "n": 2}"#, u64::MAX),
        ] {
            assert_eq!(tokens(&request(url, body)), expected, "{body}");
        }
        let mut other = request(CHAT, "{}");
        other.inputs.clear();
        assert_eq!(tokens(&other), 0);
    }
}
