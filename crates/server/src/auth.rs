//! Who may do what: tokens, certificates, and the rights of either.

mod tokens;

use std::{collections::BTreeMap, sync::Arc};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use outrigger_core::{Failure, Reason};

pub(crate) use self::tokens::TokenFiles;
use crate::{
    call::Method,
    caller::{Caller, Identity, Peer},
    config::{self, CallerName, Right, Rights},
    live::Live,
};

/// gRPC services that follow protocols of their own and tell no secrets: probes ask
/// the one, tools the other before they can ask for anything.
const OPEN: [&str; 2] = ["/grpc.health.v1.Health/", "/grpc.reflection."];

/// The rules of who may do what. Clones share them.
#[derive(Clone)]
pub(crate) struct Auth(Arc<Rules>);

struct Rules {
    tokens: Option<Arc<Live<TokenFiles>>>,
    /// Of everybody.
    anonymous: Rights,
    /// Of everybody with a name.
    known: Rights,
    /// By name.
    callers: BTreeMap<String, Rights>,
}

impl Auth {
    /// The rules that are configured; without any, everybody may do everything.
    pub(crate) fn new(config: &config::Auth, tokens: Option<Arc<Live<TokenFiles>>>) -> Self {
        let open = tokens.is_none() && config.callers.is_empty();
        let otherwise = if open { Rights::all() } else { Rights::default() };
        let of = |(name, rights): (&CallerName, &Rights)| (name.as_str().to_owned(), *rights);
        let mut callers: BTreeMap<_, _> = config.callers.iter().map(of).collect();
        let known = callers.remove(CallerName::ANYBODY).unwrap_or_default();
        let anonymous = config.anonymous.unwrap_or(otherwise);
        Self(Arc::new(Rules { tokens, anonymous, known, callers }))
    }

    /// Who makes a call with these headers.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` when it shows a token that is not known: it is wrong about
    /// who it is, whatever others may do.
    pub(crate) fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Failure> {
        let rules = &*self.0;
        if let (Some(tokens), Some(shown)) = (&rules.tokens, headers.get(AUTHORIZATION)) {
            let token = bearer(shown.as_bytes()).and_then(|token| tokens.load().find(token));
            let message = "the authorization is no bearer token that is known here";
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

/// The right that a call takes; `None`: it is open to all. What is not known to be
/// open takes the right to read.
pub(crate) fn needed(method: Method, path: &str) -> Option<Right> {
    match method {
        Method::Predict | Method::BatchPredict | Method::Explain => Some(Right::Predict),
        Method::Models | Method::Canaries => Some(Right::Read),
        Method::Other if OPEN.iter().any(|service| path.starts_with(service)) => None,
        Method::Other => Some(Right::Read),
    }
}

/// The token of an `Authorization: Bearer ...`.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
