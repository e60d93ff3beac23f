//! Authentication and authorization: tokens, certificates, and the rights of each caller.

mod tokens;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use outrigger_core::{Failure, Reason};

pub(crate) use self::tokens::TokenFiles;
use crate::{
    caller::{Caller, Identity, Peer},
    config::{self, CallerName, Right, Rights},
    failure,
    live::Live,
};

/// The rules that give each caller its rights. Clones share them.
#[derive(Clone)]
pub(crate) struct Auth(Arc<Rules>);

struct Rules {
    tokens: Option<Arc<Live<TokenFiles>>>,
    /// The rights of every caller, also without a name.
    anonymous: Rights,
    /// The rights of every caller that proved a name.
    known: Rights,
    /// The rights of single callers, by name.
    callers: BTreeMap<String, Rights>,
}

impl Auth {
    /// Builds the rules from the configuration. Without tokens and callers in it, every caller has
    /// every right.
    pub(crate) fn new(config: &config::Auth, tokens: Option<Arc<Live<TokenFiles>>>) -> Self {
        let open = tokens.is_none() && config.callers.is_empty();
        let otherwise = if open { Rights::all() } else { Rights::default() };
        let of = |(name, rights): (&CallerName, &Rights)| (name.as_str().to_owned(), *rights);
        let mut callers: BTreeMap<_, _> = config.callers.iter().map(of).collect();
        let known = callers.remove(CallerName::ANYBODY).unwrap_or_default();
        let anonymous = config.anonymous.unwrap_or(otherwise);
        Self(Arc::new(Rules { tokens, anonymous, known, callers }))
    }

    /// Identifies the caller from the connection and the request's headers.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for an unknown token, even if anonymous callers have the right.
    pub(crate) fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Failure> {
        self.shown(peer, headers, |shown| bearer(shown).map(<[u8]>::to_vec))
    }

    /// Identifies the caller; `token` extracts the token from the value of `Authorization`.
    fn shown(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        token: fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<Caller, Failure> {
        let rules = &*self.0;
        if let (Some(tokens), Some(shown)) = (&rules.tokens, headers.get(AUTHORIZATION)) {
            let token = token(shown.as_bytes()).and_then(|token| tokens.load().find(&token));
            let message = "the authorization is no token that is known here";
            let token = token.ok_or_else(|| Failure::new(Reason::Unauthenticated, message))?;
            let rights = rules.rights(Some(&token));
            return Ok(Caller::with_token(peer.clone(), token, rights));
        }
        Ok(Caller::new(peer.clone(), rules.rights(peer.certificate())))
    }
}

impl Rules {
    fn rights(&self, identity: Option<&Identity>) -> Rights {
        let Some(identity) = identity else { return self.anonymous };
        let own = self.callers.get(identity.as_str()).copied().unwrap_or_default();
        own.and(self.known).and(self.anonymous)
    }
}

/// Guards the routes of a page for browsers whose user has the right to read. The browser asks its
/// user for the token on a 401 response, and sends it as a password.
///
/// A browser also sends the password with requests that another site triggers (CSRF), so this
/// serves only for routes that change nothing.
pub(crate) fn readers(routes: Router, auth: &Auth) -> Router {
    routes.layer(from_fn_with_state(auth.clone(), read))
}

async fn read(State(auth): State<Auth>, request: Request, next: Next) -> Response {
    let peer = Peer::of(request.extensions());
    let token = |shown: &[u8]| password(shown).or_else(|| bearer(shown).map(<[u8]>::to_vec));
    let caller = auth.shown(&peer, request.headers(), token);
    let Err(failure) = caller.and_then(|caller| caller.may(Right::Read)) else {
        return next.run(request).await;
    };
    let mut response = failure::to_http(&failure);
    if let Some(challenge) = response.headers_mut().get_mut(WWW_AUTHENTICATE) {
        *challenge = HeaderValue::from_static("Basic realm=\"a token is the password\"");
    }
    response
}

/// The password in an `Authorization: Basic ...` header; the user name is ignored.
fn password(authorization: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = authorization.split_at_checked(6)?;
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    scheme.eq_ignore_ascii_case(b"Basic ").then(|| decoded[colon + 1..].to_vec())
}

/// The token in an `Authorization: Bearer ...` header.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
