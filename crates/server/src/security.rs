//! The secrets of the listeners, read before any address is bound.

use std::sync::Arc;

use crate::{
    auth::{Auth, TokenFiles},
    config::{Config, Transport},
    live::{FileError, Live, Watched},
    tls::{Acceptor, Files},
};

/// The certificate and the authorization rules, reloaded when their files change.
pub(crate) struct Security {
    tls: Option<Arc<Live<Files>>>,
    tokens: Option<Arc<Live<TokenFiles>>>,
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
        let auth = Auth::new(&config.auth, tokens.clone());
        let security = Self { tls, tokens, auth };
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
        tls.into_iter().chain(tokens).collect()
    }

    /// Warns about tokens that would be sent without TLS: a connection in plain text reveals them.
    fn warn(&self, config: &Config) {
        let (server, tls) = (&config.server, &config.tls);
        let listeners = [
            ("grpc", server.grpc, tls.grpc),
            ("http", server.http, tls.http),
            ("admin", server.admin, tls.admin),
        ];
        for (listener, address, transport) in listeners {
            let plain = self.acceptor(transport).is_none() && !address.ip().is_loopback();
            if self.tokens.is_some() && plain {
                tracing::warn!(listener, "this listener accepts bearer tokens without TLS");
            }
        }
    }
}
