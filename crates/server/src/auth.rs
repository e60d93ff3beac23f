//! Authentication and authorization: tokens, certificates, and the rights of each caller.

mod operator;
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
use outrigger_console::{Site, Viewer};
use outrigger_core::{Failure, Reason};

pub(crate) use self::tokens::TokenFiles;
use crate::{
    caller::{Caller, Identity, Peer},
    config::{self, CallerName, OperatorFile, Right, Rights},
    failure,
    live::Live,
};

/// The rules that give each caller its rights. Clones share them.
#[derive(Clone)]
pub(crate) struct Auth {
    rules: Arc<Rules>,
    /// Rights that every caller has in addition.
    further: Rights,
}

struct Rules {
    tokens: Option<Arc<Live<TokenFiles>>>,
    /// The token whose holder has every right.
    operator: Option<Arc<Live<OperatorFile>>>,
    /// The rights of every caller, also without a name.
    anonymous: Rights,
    /// The rights of every caller that proved a name.
    known: Rights,
    /// The rights of single callers, by name.
    callers: BTreeMap<String, Rights>,
}

impl Auth {
    /// Builds the rules from the configuration.
    pub(crate) fn new(
        config: &config::Auth,
        tokens: Option<Arc<Live<TokenFiles>>>,
        operator: Option<Arc<Live<OperatorFile>>>,
    ) -> Self {
        let of = |(name, rights): (&CallerName, &Rights)| (name.as_str().to_owned(), *rights);
        let mut callers: BTreeMap<_, _> = config.callers.iter().map(of).collect();
        let known = callers.remove(CallerName::ANYBODY).unwrap_or_default();
        let anonymous = config.anonymous_rights();
        let rules = Arc::new(Rules { tokens, operator, anonymous, known, callers });
        Self { rules, further: Rights::default() }
    }

    /// The same rules, with further rights for every caller.
    pub(crate) fn with_further(&self, further: Rights) -> Self {
        Self { rules: Arc::clone(&self.rules), further }
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
        let rules = &*self.rules;
        let shown = headers.get(AUTHORIZATION).filter(|_| rules.tokens.is_some());
        let token = headers.get(AUTHORIZATION).and_then(|value| token(value.as_bytes()));
        let known = token.and_then(|token| rules.known_by(&token));
        match (known, shown) {
            (Some((identity, rights)), _) => {
                Ok(Caller::with_token(peer.clone(), identity, rights.and(self.further)))
            }
            // Without `auth.tokens` the header may be meant for a proxy.
            (None, None) => {
                let rights = rules.rights(peer.certificate()).and(self.further);
                Ok(Caller::new(peer.clone(), rights))
            }
            (None, Some(_)) => {
                let message = "the authorization is no token that is known here";
                Err(Failure::new(Reason::Unauthenticated, message))
            }
        }
    }
}

impl Rules {
    /// The identity that a token proves, and its rights.
    fn known_by(&self, token: &[u8]) -> Option<(Identity, Rights)> {
        let operator = self.operator.as_ref().and_then(|operator| operator.load().find(token));
        let caller = || self.tokens.as_ref()?.load().find(token);
        match operator {
            Some(operator) => Some((operator, Rights::all())),
            None => caller().map(|caller| (caller.clone(), self.rights(Some(&caller)))),
        }
    }

    fn rights(&self, identity: Option<&Identity>) -> Rights {
        let Some(identity) = identity else { return self.anonymous };
        let own = self.callers.get(identity.as_str()).copied().unwrap_or_default();
        own.and(self.known).and(self.anonymous)
    }
}

/// Guards the routes of a page for browsers whose user has the right to read. The browser asks its
/// user for the token on a 401 response, and sends it as a password. Pages of other sites than
/// `site` are refused.
///
/// A browser also sends the password with requests that another site triggers (CSRF), so this
/// serves only for routes that change nothing.
pub(crate) fn readers(routes: Router, auth: &Auth, site: &Site) -> Router {
    routes.layer(from_fn_with_state((auth.clone(), site.clone()), read))
}

async fn read(
    State((auth, site)): State<(Auth, Site)>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = Peer::of(request.extensions());
    let token = |shown: &[u8]| password(shown).or_else(|| bearer(shown).map(<[u8]>::to_vec));
    let caller = site.check(&request).and_then(|()| auth.shown(&peer, request.headers(), token));
    let allowed = caller.and_then(|caller| caller.may(Right::Read).map(|()| caller));
    let failure = match allowed {
        Ok(caller) => {
            request.extensions_mut().insert(Viewer(format!("{:?}", caller.party())));
            return next.run(request).await;
        }
        Err(failure) => failure,
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
