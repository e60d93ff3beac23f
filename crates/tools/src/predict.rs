//! One request from a file: `outrigger predict`.

use std::time::Duration;

use outrigger_core::Selector;
use serde_json::{Map, Value, json};

use crate::{Error, ModelArgument};

/// Sends `request`, in the HTTP JSON form, to the server at `url` and returns
/// its answer. `model` and `top_k` take the place of what the request says.
pub async fn predict(
    url: &str,
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
    post(&format!("{}/v1/predict", url.trim_end_matches('/')), &request, timeout).await
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

async fn post(url: &str, body: &Map<String, Value>, timeout: Duration) -> Result<Value, Error> {
    let unreachable = |source: reqwest::Error| Error::Unreachable {
        address: url.to_owned(),
        source: source.into(),
    };
    let client = reqwest::Client::builder().timeout(timeout).build().map_err(unreachable)?;
    let response = client.post(url).json(body).send().await.map_err(unreachable)?;
    let status = response.status();
    let answer: Value = response.json().await.map_err(unreachable)?;
    if status.is_success() { Ok(answer) } else { Err(refusal(status.as_str(), &answer)) }
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

    #[test]
    fn an_answer_without_our_form_still_says_something() {
        let error = refusal("502", &json!({"detail": "bad gateway"})).to_string();
        assert!(error.contains("502") && error.contains("bad gateway"), "{error}");
    }
}
