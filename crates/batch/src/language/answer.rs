//! The answer to a line, as a line of OpenAI's output.

use std::{fmt::Write as _, time::Duration};

use http::StatusCode;
use outrigger_oip_client::{Answered, Failure};
use outrigger_resilience::rate_limit_pause;
use serde::{
    Deserialize,
    de::{IgnoredAny, Unexpected},
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    ERROR, ID, RESPONSE,
    line::{EMBEDDINGS, Line},
    one_text,
};
use crate::{Answer, Usage};

/// The header with the server's name of a request.
const REQUEST_ID: &str = "x-request-id";
/// The longest pause that a host may ask for.
const MOST_PAUSE: Duration = Duration::from_secs(3600);
/// The hexadecimal digits of the name of an answer.
const DIGITS: usize = 24;

/// The members of an answer that decide about it here.
#[derive(Debug, Deserialize)]
struct Body {
    #[serde(default)]
    choices: Option<Items>,
    #[serde(default)]
    data: Option<Items>,
    #[serde(default)]
    usage: Value,
}

/// A list, of which only the length matters.
#[derive(Debug)]
struct Items(usize);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<IgnoredAny>::deserialize(deserializer).map(|items| Self(items.len()))
    }
}

/// The answer of a host to a line.
///
/// # Errors
/// It is not one to such a line: another host may give a better one.
pub(super) fn answer(line: &Line<'_>, answered: &Answered) -> Result<Answer, Failure> {
    let Answered { status, headers, body } = answered;
    let invalid = |fault: &dyn std::fmt::Display| Failure::invalid(fault);
    if !body.trim_ascii_start().starts_with(b"{") {
        let start = String::from_utf8_lossy(body.get(..40).unwrap_or(body)).into_owned();
        return Err(invalid(&format!("it is {}, not an object", Unexpected::Str(&start))));
    }
    let text = str::from_utf8(body).map_err(|error| invalid(&error))?;
    let Body { choices, data, usage } =
        serde_json::from_str(text).map_err(|error| invalid(&error))?;
    let (name, items) = match line.url {
        EMBEDDINGS => ("data", data),
        _ => ("choices", choices),
    };
    if items.is_none_or(|Items(count)| count == 0) {
        return Err(invalid(&format!("it has no {name}")));
    }
    let request_id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let tokens = used(&usage);
    let pause = rate_limit_pause(headers, tokens.unwrap_or(1), MOST_PAUSE);
    Ok(Answer {
        outputs: vec![
            one_text(ID, &id(line)),
            one_text(RESPONSE, &response(*status, request_id, text)),
            one_text(ERROR, "null"),
        ],
        version: None,
        usage: Usage { tokens, pause },
    })
}

/// The tokens that an answer says to have taken.
fn used(usage: &Value) -> Option<u64> {
    let of = |key: &str| usage.get(key)?.as_u64();
    let sum = || Some(of("prompt_tokens")?.saturating_add(of("completion_tokens").unwrap_or(0)));
    of("total_tokens").or_else(sum)
}

/// The name of an answer. It follows from the line, so that it is the same whenever the line is
/// asked for again.
fn id(line: &Line<'_>) -> String {
    let mut hash = Sha256::new();
    for part in [line.custom_id.as_bytes(), line.url.as_bytes(), &line.body] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut id = "batch_req_".to_owned();
    for byte in &hash.finalize()[..DIGITS / 2] {
        // Writing to a text does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

/// The member `response` of a line of output.
fn response(status: StatusCode, request_id: &str, body: &str) -> String {
    let request_id = serde_json::json!(request_id);
    let mut response =
        format!("{{\"status_code\":{},\"request_id\":{request_id},\"body\":", status.as_u16());
    put_compact(body, &mut response);
    response.push('}');
    response
}

/// Appends JSON without the white space between its parts. Numbers and texts stay as they are.
fn put_compact(json: &str, out: &mut String) {
    let (mut in_text, mut is_escaped) = (false, false);
    for letter in json.chars() {
        if !in_text && letter.is_ascii_whitespace() {
            continue;
        }
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = in_text,
            '"' => in_text = !in_text,
            _ => {}
        }
        out.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;
    use outrigger_oip_client::Status;

    use super::*;
    use crate::language::line::{CHAT, tests::request};

    fn answered(body: &str) -> Answered {
        let (headers, body) = (HeaderMap::new(), Bytes::copy_from_slice(body.as_bytes()));
        Answered { status: StatusCode::OK, headers, body }
    }

    fn of(url: &str, answered: &Answered) -> Result<Answer, Failure> {
        answer(&Line::of(&request(url, "{}")).expect("a line"), answered)
    }

    #[test]
    fn an_answer_is_kept_as_it_is_on_one_line() {
        let body = "{\n  \"choices\": [ {\"text\": \"a \\\" \\\\\" } ],\n \"x\": 1.50e-7,\r\n\
            \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4} }\n";
        let mut answered = answered(body);
        answered.headers.insert(REQUEST_ID, "r\"1".parse().expect("a header"));
        let answer = of(CHAT, &answered).expect("an answer");
        let texts: Vec<_> = answer
            .outputs
            .iter()
            .map(|output| {
                let text = output.texts().next().expect("a text");
                String::from_utf8(text.to_vec()).expect("UTF-8")
            })
            .collect();
        let expected = "{\"status_code\":200,\"request_id\":\"r\\\"1\",\"body\":{\"choices\":\
            [{\"text\":\"a \\\" \\\\\"}],\"x\":1.50e-7,\"usage\":{\"prompt_tokens\":3,\
            \"completion_tokens\":4}}}";
        assert_eq!(texts[1..], [expected, "null"]);
        assert!(
            texts[0].starts_with("batch_req_") && texts[0].len() == 10 + DIGITS,
            "{}",
            texts[0]
        );
        assert_eq!(answer.usage, Usage { tokens: Some(7), pause: None });
        // The name follows from the line alone.
        let again = of(CHAT, &answered).expect("an answer");
        assert_eq!(again.outputs[0], answer.outputs[0]);
        let other = request(CHAT, "{ }");
        let other = super::answer(&Line::of(&other).expect("a line"), &answered).expect("one");
        assert_ne!(other.outputs[0], answer.outputs[0]);
    }

    #[test]
    fn another_answer_is_not_taken() {
        for (url, body) in [
            (CHAT, "<html>"),
            (CHAT, ""),
            (CHAT, "[]"),
            (CHAT, "{\"choices\": [{}"),
            (CHAT, "{\"choices\": []}"),
            (CHAT, "{\"choices\": 1}"),
            (CHAT, "{\"data\": [{}]}"),
            (CHAT, "{\"error\": {\"message\": \"no\"}}"),
            (EMBEDDINGS, "{\"choices\": [{}]}"),
        ] {
            let failure = of(url, &answered(body)).expect_err(body);
            assert_eq!(failure.status, Status::Invalid, "{body}");
        }
        let mut cut = answered("");
        cut.body = Bytes::from_static(b"{\"choices\": [\"\xff\"]}");
        assert_eq!(of(CHAT, &cut).expect_err("no UTF-8").status, Status::Invalid);
        assert!(of(EMBEDDINGS, &answered("{\"data\": [{}]}")).is_ok());
    }

    #[test]
    fn a_host_without_tokens_pauses() {
        let mut answered = answered("{\"choices\": [1], \"usage\": {\"total_tokens\": 50}}");
        for (name, value) in
            [("x-ratelimit-remaining-tokens", "49"), ("x-ratelimit-reset-tokens", "2s")]
        {
            answered.headers.insert(name, value.parse().expect("a header"));
        }
        let usage = of(CHAT, &answered).expect("an answer").usage;
        let pause = Some(Duration::from_secs(2));
        assert_eq!(usage, Usage { tokens: Some(50), pause });
    }
}
