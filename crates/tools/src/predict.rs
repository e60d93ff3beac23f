//! Sends one request from a file: `outrigger predict`.

use std::time::Duration;

use outrigger_core::Selector;
use serde_json::{Map, Value, json};

use crate::{Access, Error, ModelArgument};

/// The header that sends the timeout to the server.
const TIMEOUT: &str = "x-request-timeout";
/// Added to the timeout, so that the server's own timeout error arrives first.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(2);

/// Sends `request`, in the HTTP JSON form, to the server at `url` and returns its answer.
/// `model` and `top_k` replace the values in the request.
pub async fn predict(
    (url, access): (&str, &Access),
    mut request: Map<String, Value>,
    model: Option<ModelArgument>,
    top_k: Option<u32>,
    timeout: Duration,
) -> Result<Value, Error> {
    if let Some(model) = model {
        request.insert("model".to_owned(), selector(model));
    }
    if let Some(top_k) = top_k {
        set_top_k(&mut request, top_k)?;
    }
    post(&format!("{}/v1/predict", url.trim_end_matches('/')), access, &request, timeout).await
}

fn selector(model: ModelArgument) -> Value {
    let name = model.name.as_str();
    match model.version {
        None => json!({ "name": name }),
        Some(Selector::Tag(tag)) => json!({ "name": name, "tag": tag.as_str() }),
        Some(Selector::Digest(digest)) => json!({ "name": name, "digest": digest.to_string() }),
    }
}

fn set_top_k(request: &mut Map<String, Value>, top_k: u32) -> Result<(), Error> {
    let options = request.entry("options").or_insert_with(|| json!({}));
    let not_object = || Error::Usage("\"options\" in the request is not an object".to_owned());
    options.as_object_mut().ok_or_else(not_object)?.insert("top_k".to_owned(), top_k.into());
    Ok(())
}

async fn post(
    url: &str,
    access: &Access,
    body: &Map<String, Value>,
    timeout: Duration,
) -> Result<Value, Error> {
    // The URL may hold a password, so the error has it once and without the password.
    let unreachable = |source: reqwest::Error| Error::Unreachable {
        address: without_password(url),
        source: source.without_url().into(),
    };
    // The server gets the timeout and answers with the reason when it has passed; the
    // client gives up only if that answer does not arrive either.
    let client_timeout = timeout.saturating_add(TIMEOUT_MARGIN);
    let (client, url, token) = access.http(url).await?;
    let client = client.timeout(client_timeout).build().map_err(unreachable)?;
    let mut call = client.post(url).header(TIMEOUT, format!("{}ms", timeout.as_millis()));
    if let Some(token) = token {
        call = call.bearer_auth(token);
    }
    let call = call.json(body);
    let response = call.send().await.map_err(unreachable)?;
    let status = response.status();
    let answer: Value = response.json().await.map_err(unreachable)?;
    if status.is_success() { Ok(answer) } else { Err(refusal(status.as_str(), &answer)) }
}

fn without_password(url: &str) -> String {
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => url.to_owned(),
    }
}

fn refusal(status: &str, answer: &Value) -> Error {
    let text = |key: &str| answer["error"][key].as_str();
    Error::Refused {
        reason: text("reason").unwrap_or(status).to_owned(),
        message: text("message").map_or_else(|| answer.to_string(), str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};

    use super::*;

    #[test]
    fn the_command_line_overrides_the_request() {
        let mut request = Map::new();
        request.insert("options".to_owned(), json!({"treatment_ids": true}));
        set_top_k(&mut request, 3).unwrap();
        assert_eq!(request["options"], json!({"treatment_ids": true, "top_k": 3}));
        request.insert("options".to_owned(), json!(7));
        assert!(set_top_k(&mut request, 3).expect_err("not an object").is_usage());
    }

    #[tokio::test]
    async fn the_server_receives_the_timeout() {
        // Fails if another test has installed the provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut caller, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(caller.try_clone().unwrap());
            let lines = reader.by_ref().lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            reader.read_exact(&mut [0; 2]).unwrap();
            caller.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
            head
        });
        let asked = (url.as_str(), &Access::default());
        predict(asked, Map::new(), None, None, Duration::from_secs(60)).await.unwrap();
        let head = server.join().unwrap();
        assert!(head.contains(&"x-request-timeout: 60000ms".to_owned()), "{head:?}");
    }

    #[test]
    fn a_password_in_a_url_is_not_printed() {
        let printed = without_password("http://user:secret@host:9080/v1/predict");
        assert_eq!(printed, "http://host:9080/v1/predict");
        assert_eq!(without_password("http://host:9080/v1"), "http://host:9080/v1");
    }

    #[test]
    fn an_error_of_another_form_is_reported_with_its_status_and_body() {
        let error = refusal("502", &json!({"detail": "bad gateway"})).to_string();
        assert!(error.contains("502") && error.contains("bad gateway"), "{error}");
    }
}
