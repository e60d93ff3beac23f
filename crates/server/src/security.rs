//! The secrets of the listeners, read before any address is bound.

use std::sync::Arc;

use crate::{
    auth::{Auth, TokenFiles},
    config::{self, Config, OperatorFile, Right, Rights, Transport},
    live::{FileError, Live, Watched},
    tls::{Acceptor, Files},
};

/// The certificate and the authorization rules, reloaded when their files change.
pub(crate) struct Security {
    tls: Option<Arc<Live<Files>>>,
    tokens: Option<Arc<Live<TokenFiles>>>,
    operator: Option<Arc<Live<OperatorFile>>>,
    /// The rights of callers.
    pub(crate) auth: Auth,
}

impl Security {
    /// Reads the configured files.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(crate) fn open(config: &Config) -> Result<Self, FileError> {
        let tls = Files::of(&config.tls).map(Live::open).transpose()?.map(Arc::new);
        let tokens = config.auth.tokens.clone().map(TokenFiles::within);
        let tokens = tokens.map(Live::open).transpose()?.map(Arc::new);
        let operator = operator(&config.auth)?.map(Arc::new);
        let auth = Auth::new(&config.auth, tokens.clone(), operator.clone());
        let security = Self { tls, tokens, operator, auth };
        for (listener, warning) in security.warnings(config) {
            tracing::warn!(listener, "{warning}");
        }
        Ok(security)
    }

    /// The TLS acceptor of a listener; `None` without TLS.
    pub(crate) fn acceptor(&self, transport: Transport) -> Option<Acceptor> {
        Acceptor::new(self.tls.as_ref()?, transport)
    }

    /// The values to reload when their files change.
    pub(crate) fn watched(&self) -> Vec<Arc<dyn Watched>> {
        let tls = self.tls.clone().map(|tls| tls as Arc<dyn Watched>);
        let tokens = self.tokens.clone().map(|tokens| tokens as Arc<dyn Watched>);
        let operator = self.operator.clone().map(|operator| operator as Arc<dyn Watched>);
        tls.into_iter().chain(tokens).chain(operator).collect()
    }

    /// Warnings by listener, about tokens that would be sent without TLS, as a connection in plain text
    /// reveals them, and about changes that anybody on the network may make.
    fn warnings(&self, config: &Config) -> Vec<(&'static str, &'static str)> {
        let server = &config.server;
        let tls = &config.tls;
        let auth = &config.auth;
        let none = Rights::default();
        let anonymous = auth.anonymous_rights();
        let own = anonymous.and(auth.xgboost_serving);
        let listeners = [
            ("grpc", Some(server.grpc), tls.grpc, none),
            ("http", Some(server.http), tls.http, none),
            ("admin", Some(server.admin), tls.admin, anonymous),
            ("xgboost_serving", server.xgboost_serving, tls.xgboost_serving, own),
            ("oip", server.oip, tls.oip, none),
        ];
        let mut warnings = Vec::new();
        for (listener, address, transport, open) in listeners {
            if address.is_none_or(|address| address.ip().is_loopback()) {
                continue;
            }
            let takes_tokens =
                self.tokens.is_some() || listener == "admin" && self.operator.is_some();
            if takes_tokens && self.acceptor(transport).is_none() {
                warnings.push((listener, "this listener accepts bearer tokens without TLS"));
            }
            let is_mutual = self.tls.is_some() && transport == Transport::Mutual;
            if open.hold(Right::Change) && !is_mutual {
                warnings.push((listener, "anybody who reaches this listener may change models"));
            }
        }
        warnings
    }
}

/// Opens the operator's token, if changes need it. Where the file is not configured and cannot be
/// had, as in a container whose files are read-only, predictions are served all the same; changes
/// are refused then.
fn operator(auth: &config::Auth) -> Result<Option<Live<OperatorFile>>, FileError> {
    let Some(file) = auth.operator_file() else { return Ok(None) };
    let path = file.path.clone();
    match Live::open(file) {
        Ok(live) => {
            tracing::info!(path = %path.display(), "changes take the token in this file");
            Ok(Some(live))
        }
        Err(error) if auth.token_file.is_none() => {
            tracing::warn!(%error, "no token for changes: they are refused until auth.token_file names a usable file");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_that_give_more_than_they_seem_to_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let warned = |change: &dyn Fn(&mut Config)| {
            let mut config = Config::default();
            config.auth.token_file = Some(directory.path().join("token"));
            change(&mut config);
            let warnings = Security::open(&config).unwrap().warnings(&config);
            warnings.into_iter().map(|(listener, _)| listener).collect::<Vec<_>>()
        };
        let anywhere = || "0.0.0.0:9901".parse().unwrap();
        let none: [&str; 0] = [];
        assert_eq!(warned(&|_| {}), none);
        assert_eq!(warned(&|it| it.server.admin = anywhere()), ["admin"], "the operator's token");
        let change = || Some(Rights::all());
        assert_eq!(warned(&|it| it.auth.anonymous = change()), none, "on loopback");
        assert_eq!(
            warned(&|it| {
                (it.auth.token_file, it.auth.anonymous) = (None, change());
                (it.server.admin, it.server.xgboost_serving) = (anywhere(), Some(anywhere()));
            }),
            ["admin", "xgboost_serving"]
        );
    }

    #[test]
    fn a_configured_token_file_must_be_usable() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.auth.token_file = Some(directory.path().join("token"));
        assert!(Security::open(&config).is_ok());
        std::fs::write(directory.path().join("a-file"), "").unwrap();
        config.auth.token_file = Some(directory.path().join("a-file/token"));
        assert!(Security::open(&config).is_err());
    }
}
