//! Bearer tokens: the distribution project's token protocol, and its OAuth2
//! form for identity tokens.

use std::time::Duration;

use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Authorized, Challenge, Scope, header};
use crate::{
    Error,
    credentials::Credential,
    http::{Plain, authority},
    secret::Secret,
};

/// What a token server that does not say means.
const DEFAULT_LIFE: Duration = Duration::from_secs(60);
/// A token is not used in its last moments.
const MARGIN: Duration = Duration::from_secs(5);
/// No token lives longer for us.
const MAX_LIFE: Duration = Duration::from_secs(3600);
const MAX_ANSWER: u64 = 256 << 10;

/// The server's answer. It holds a secret: no `Debug`.
#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

/// Fetches a token for `scope` where `challenge` says, once.
pub(super) async fn fetch(
    http: &Plain,
    scope: &Scope,
    challenge: &Challenge,
    credential: Option<Credential>,
) -> Result<Authorized, Error> {
    let realm = realm(http, scope, challenge)?;
    let mut parameters = vec![("scope", wanted(scope, challenge))];
    if let Some(service) = challenge.parameter("service") {
        parameters.push(("service", service.to_owned()));
    }
    let request = request(http, realm.clone(), &parameters, credential);
    let body = answer(http, &realm, scope, request).await?;
    let answer: Answer = serde_json::from_slice(&body)
        .map_err(|_| Error::invalid(authority(&realm), "the token server's answer is no token"))?;
    let life = answer.expires_in.map_or(DEFAULT_LIFE, Duration::from_secs);
    // The same under two names; servers may send both, one of them empty.
    let mut tokens = [answer.token, answer.access_token].into_iter().flatten();
    let token = tokens.find(|token| !token.is_empty());
    let token = token.ok_or_else(|| Error::denied(&authority(&realm), "it gave no token"))?;
    let expires = Instant::now() + life.min(MAX_LIFE).saturating_sub(MARGIN);
    Ok((header(&scope.host, "Bearer", Secret::new(token).reveal())?, Some(expires)))
}

/// The challenge speaks of the one request it answers. A push makes several,
/// so its token is for all of them.
fn wanted(scope: &Scope, challenge: &Challenge) -> String {
    let asked = challenge.parameter("scope").filter(|asked| !asked.is_empty() && !scope.push);
    asked.map_or_else(|| scope.text(), str::to_owned)
}

/// Credentials go to the realm, so it gets HTTPS unless its host is listed.
fn realm(http: &Plain, scope: &Scope, challenge: &Challenge) -> Result<Url, Error> {
    let realm = challenge.parameter("realm").and_then(|realm| Url::parse(realm).ok());
    let problem = "its challenge names no token server that can be asked";
    let realm = realm.ok_or_else(|| Error::invalid(&scope.host, problem))?;
    if !http.may_speak_to(&realm) {
        let problem = "its token server wants plain HTTP, and its host is not listed for that";
        return Err(Error::denied(&scope.host, problem));
    }
    Ok(realm)
}

fn request(
    http: &Plain,
    mut realm: Url,
    parameters: &[(&str, String)],
    credential: Option<Credential>,
) -> reqwest::RequestBuilder {
    if let Some(Credential::Identity(token)) = &credential {
        let fixed = [
            ("grant_type", "refresh_token"),
            ("client_id", "outrigger"),
            ("refresh_token", token.reveal()),
        ];
        let given = parameters.iter().map(|(name, value)| (*name, value.as_str()));
        return http
            .request(Method::POST, realm)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form(given.chain(fixed)));
    }
    realm.query_pairs_mut().extend_pairs(parameters);
    let request = http.request(Method::GET, realm);
    match credential {
        Some(Credential::Password { user, password }) => {
            request.basic_auth(user, Some(password.reveal()))
        }
        _ => request,
    }
}

fn form<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut url = Url::parse("form:").expect("a valid address");
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

/// A refusal is denial; a server that cannot answer now is unavailability.
async fn answer(
    http: &Plain,
    realm: &Url,
    scope: &Scope,
    request: reqwest::RequestBuilder,
) -> Result<Vec<u8>, Error> {
    let host = authority(realm);
    let response = http.send(&host, request).await?;
    match response.status() {
        status if status.is_success() => {
            http.read(&host, "the token server's answer", response, MAX_ANSWER).await
        }
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED => {
            let detail = format!("no token for {} ({})", scope.text(), response.status());
            Err(Error::denied(&host, detail))
        }
        status => Err(Error::unavailable(&host, format!("the token server answers {status}"))),
    }
}
