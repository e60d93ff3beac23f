//! Bearer tokens: the distribution project's token protocol, and its OAuth2
//! form for identity tokens.

use std::{convert::Infallible, time::Duration};

use futures::stream;
use reqwest::{
    Body, Method, StatusCode, Url,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Authorized, Challenge, Scope, header};
use crate::{
    Error,
    credentials::{AccessToken, Credential, USER},
    http::{Plain, authority},
    secret::Secret,
};

/// The life of a token whose server states none; 60 seconds by the token protocol.
const DEFAULT_LIFE: Duration = Duration::from_secs(60);
/// A token counts as expired this long before it is, so that none expires on the way.
const MARGIN: Duration = Duration::from_secs(5);
/// A token is renewed after this time even if its server allows more.
const MAX_LIFE: Duration = Duration::from_secs(3600);
const MAX_ANSWER: u64 = 256 << 10;

/// The server's answer. It holds a secret, so it has no `Debug`.
#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

/// Fetches a token for `scope` from the token server that `challenge` names. One attempt, no
/// retries.
pub(super) async fn fetch(
    http: &Plain,
    scope: &Scope,
    challenge: &Challenge,
    credential: Option<Credential>,
) -> Result<Authorized, Error> {
    let access = credential.as_ref().and_then(Credential::access);
    let realm = realm(http, scope, challenge, access)?;
    let access_expires = access.map(|access| access.expires);
    let mut parameters = vec![("scope", requested_scope(scope, challenge))];
    if let Some(service) = challenge.parameter("service") {
        parameters.push(("service", service.to_owned()));
    }
    let request = request(http, realm.clone(), &parameters, credential);
    let body = answer(http, &realm, scope, request).await?;
    let answer: Answer = serde_json::from_slice(&body)
        .map_err(|_| Error::invalid(authority(&realm), "the token server's answer is no token"))?;
    let life = answer.expires_in.map_or(DEFAULT_LIFE, Duration::from_secs);
    // The protocol has two names for the token; servers may send both, one of them empty.
    let mut tokens = [answer.token, answer.access_token].into_iter().flatten();
    let token = tokens.find(|token| !token.is_empty());
    let token = token.ok_or_else(|| Error::denied(&authority(&realm), "it gave no token"))?;
    let expires = Instant::now() + life.min(MAX_LIFE).saturating_sub(MARGIN);
    let expires = access_expires.map_or(expires, |access| access.min(expires));
    Ok((header(&scope.host, "Bearer", Secret::new(token).reveal())?, Some(expires)))
}

/// The scope to ask a token for: the one in the challenge for a pull. The challenge covers only the
/// request that it answers, and a push makes several, so a push asks for all that it needs.
fn requested_scope(scope: &Scope, challenge: &Challenge) -> String {
    let asked = challenge.parameter("scope").filter(|asked| !asked.is_empty() && !scope.push);
    asked.map_or_else(|| scope.text(), str::to_owned)
}

/// The token server's address. Credentials are sent to it, so it must be HTTPS unless its host is
/// listed for plain HTTP. For an access token of the machine it must be one of its registries, too:
/// a registry that may have the token does not decide who else may.
fn realm(
    http: &Plain,
    scope: &Scope,
    challenge: &Challenge,
    access: Option<&AccessToken>,
) -> Result<Url, Error> {
    let realm = challenge.parameter("realm").and_then(|realm| Url::parse(realm).ok());
    let problem = "its challenge names no token server that can be asked";
    let realm = realm.ok_or_else(|| Error::invalid(&scope.host, problem))?;
    if !http.may_call(&realm) {
        let problem = "its token server wants plain HTTP, and its host is not listed for that";
        return Err(Error::denied(&scope.host, problem));
    }
    let server = authority(&realm);
    if access.is_some_and(|access| !access.registries.contain(&server)) {
        let problem = format!("its token server {server} is no registry of the identity");
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
        let form = form(given.chain(fixed));
        // A stream cannot be sent again, so a redirect does not carry the token to another host.
        return http
            .request(Method::POST, realm)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(CONTENT_LENGTH, form.len())
            .body(Body::wrap_stream(stream::iter([Ok::<_, Infallible>(form)])));
    }
    realm.query_pairs_mut().extend_pairs(parameters);
    let request = http.request(Method::GET, realm);
    match credential {
        Some(Credential::Password { user, password }) => {
            request.basic_auth(user, Some(password.reveal()))
        }
        Some(Credential::Access(access)) => request.basic_auth(USER, Some(access.token.reveal())),
        _ => request,
    }
}

fn form<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut url = Url::parse("form:").expect("a valid address");
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

/// Reads the token server's answer. Statuses 400 and 401 are `Denied`, and so is a redirect that
/// was not followed; any other failure is `Unavailable`.
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
        status if status.is_redirection() => {
            let detail = format!("it redirects a request with an identity token ({status})");
            Err(Error::denied(&host, detail))
        }
        status => Err(Error::unavailable(&host, format!("the token server answers {status}"))),
    }
}
