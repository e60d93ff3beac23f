//! The secrets of the listeners, read before any address is bound.

use std::sync::Arc;

use crate::{
    auth::{Auth, TokenFiles},
    config::{self, Config, OperatorFile, Transport},
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
        security.warn(config);
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

    /// Warns about tokens that would be sent without TLS: a connection in plain text reveals them.
    fn warn(&self, config: &Config) {
        let (server, tls) = (&config.server, &config.tls);
        let xgboost_serving = server.xgboost_serving;
        let listeners = [
            ("grpc", Some(server.grpc), tls.grpc),
            ("http", Some(server.http), tls.http),
            ("admin", Some(server.admin), tls.admin),
            ("xgboost_serving", xgboost_serving, tls.xgboost_serving),
        ];
        for (listener, address, transport) in listeners {
            let Some(address) = address else { continue };
            let plain = self.acceptor(transport).is_none() && !address.ip().is_loopback();
            if self.tokens.is_some() && plain {
                tracing::warn!(listener, "this listener accepts bearer tokens without TLS");
            }
        }
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
