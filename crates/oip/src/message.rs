//! The messages of failed calls, in all forms that servers send.

use serde::Serialize;
use serde_json::Value;

/// The most characters of a message.
const LENGTH: usize = 500;
/// The most bytes of a body that are read for its message.
const READ: usize = 64 << 10;

/// The body of a failed call, as the protocol has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    /// A message for people.
    pub error: String,
}

/// A readable message from the body of a failed call: of `{"error": …}`, `{"detail": …}`, plain
/// text or HTML, on one line and cut. It says so if the body is empty.
pub fn of_body(body: &[u8]) -> String {
    let body = &body[..body.len().min(READ)];
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => of_json(&value),
        Err(_) => of_text(&String::from_utf8_lossy(body)),
    };
    match one_line(&text) {
        line if line.is_empty() => "the body has no message".to_owned(),
        line => line,
    }
}

/// True for a failure of ONNX Runtime that is due to the values of the inputs, such as an id that a
/// table does not have, by its message: of itself, and as servers pass it on, often as a fault of their
/// own. A model whose nodes fail with any input has not passed a first request.
pub fn is_of_onnx_input(message: &str) -> bool {
    const INVALID: [&str; 3] = [
        "Non-zero status code returned while running",
        // The code 2 is an invalid argument; the second form is Triton's.
        "[ONNXRuntimeError] : 2 :",
        "onnx runtime error 2:",
    ];
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    says(&INVALID) && !is_of_memory(message)
}

/// True for a failure of ONNX Runtime for want of memory, by its message.
pub fn is_of_memory(message: &str) -> bool {
    ["Failed to allocate memory", "bad_alloc", "bad allocation"]
        .iter()
        .any(|text| message.contains(text))
}

fn of_json(value: &Value) -> String {
    let of = |key: &str| value.get(key).filter(|value| !value.is_null());
    match of("error").or_else(|| of("detail")).or_else(|| of("message")) {
        Some(Value::Object(object)) if object.contains_key("message") => plain(&object["message"]),
        Some(Value::Array(details)) => {
            let details: Vec<_> = details.iter().map(detail).collect();
            details.join("; ")
        }
        Some(value) => plain(value),
        None => plain(value),
    }
}

/// One item of `detail`, as FastAPI writes it: a place and a message.
fn detail(detail: &Value) -> String {
    let Some(message) = detail.get("msg") else { return plain(detail) };
    let place = detail.get("loc").and_then(Value::as_array).into_iter().flatten();
    let place: Vec<_> = place.map(plain).collect();
    match place.as_slice() {
        [] => plain(message),
        place => format!("{}: {}", place.join("."), plain(message)),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Object(object) if object.is_empty() => String::new(),
        other => other.to_string(),
    }
}

/// The text without the tags of HTML.
fn of_text(text: &str) -> String {
    if !text.trim_start().starts_with('<') {
        return text.to_owned();
    }
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, tag)) = rest.split_once('<') {
        plain.push_str(before);
        plain.push(' ');
        let lower = |name: &str| {
            tag.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name))
        };
        let hidden = ["style", "script", "head"].into_iter().find(|name| lower(name));
        let end = hidden.map_or(Some(0), |name| tag.find(&format!("</{name}")).map(|at| at + 1));
        let after = end.and_then(|end| tag[end..].split_once('>'));
        rest = after.map_or("", |(_, after)| after);
    }
    plain + rest
}

/// The words of a text with single spaces between them, cut.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > LENGTH {
            line.truncate(line.floor_char_boundary(LENGTH));
            line.push_str("...");
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_error_has_a_message() {
        let cases = [
            (r#"{"error":"no such model"}"#, "no such model"),
            (r#"{"error":{"message":"no such model","code":404}}"#, "no such model"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (
                r#"{"detail":[{"type":"missing","loc":["body","inputs",0],"msg":"Field required"},
                  {"loc":[],"msg":"other"}]}"#,
                "body.inputs.0: Field required; other",
            ),
            (r#"{"detail":[1,"two"]}"#, "1; two"),
            (r#"{"error":null,"detail":"d"}"#, "d"),
            (r#"{"code":7}"#, r#"{"code":7}"#),
            (r#""text""#, "text"),
            ("Internal Server Error", "Internal Server Error"),
            ("two\n\tlines\u{1b}[0m", "two lines [0m"),
            (
                "<html><head><title>t</title></head><body><h1>502 Bad Gateway</h1><hr>nginx</body>\
                 </html>",
                "502 Bad Gateway nginx",
            ),
            ("<html><style>a{}", "the body has no message"),
            ("", "the body has no message"),
            ("{}", "the body has no message"),
            (r#"{"error":""}"#, "the body has no message"),
        ];
        for (body, message) in cases {
            assert_eq!(of_body(body.as_bytes()), message, "{body}");
        }
        assert_eq!(of_body(b"caf\xe9"), "caf\u{fffd}");
    }

    #[test]
    fn a_long_message_is_cut() {
        let message = of_body("é".repeat(1000).as_bytes());
        assert_eq!(message.len(), LENGTH + 3);
        assert!(message.ends_with("é..."));
    }
}
