//! Who calls: the peer of a connection, and whom its certificate or token names.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::http::Extensions;
use outrigger_core::{Failure, Reason};

use crate::config::{Right, Rights};

/// The most bytes of a name: longer ones name nobody.
const LONGEST: usize = 256;

/// What vouches for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A token.
    Token,
    /// A certificate, by a URI such as a SPIFFE id.
    Uri,
    /// A certificate, by a DNS name.
    Dns,
    /// A certificate, by its subject's common name.
    CommonName,
}

/// A name that was proven, with what vouches for it before a colon: `token:ci`,
/// `uri:spiffe://shop/backend`. So a certificate cannot pass for a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity(Arc<str>);

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer(Arc<(SocketAddr, Option<Identity>)>);

/// Who makes a call, and what they may do.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    peer: Peer,
    token: Option<Identity>,
    rights: Rights,
}

/// What calls are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// Whoever proved this name, from wherever.
    Known(Identity),
    /// All others at an address; over IPv6, in its /64, of which one host has all.
    Unknown(IpAddr),
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Uri => "uri",
            Self::Dns => "dns",
            Self::CommonName => "cn",
        }
    }
}

impl Identity {
    /// A name; `None` for one that would be hard to tell from others in a log.
    pub(crate) fn new(kind: Kind, name: &str) -> Option<Self> {
        let shown = |c: char| c == ' ' || !c.is_control() && !c.is_whitespace();
        let fit = !name.is_empty() && name.len() <= LONGEST && name.chars().all(shown);
        fit.then(|| Self(format!("{}:{name}", kind.as_str()).into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Peer {
    /// The peer at an address, and whom its certificate names.
    pub(crate) fn new(address: SocketAddr, certificate: Option<Identity>) -> Self {
        Self(Arc::new((address, certificate)))
    }

    /// The peer of the connection that a request came by.
    ///
    /// # Panics
    /// Without a listener, which says it of every connection.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().expect("listeners say who is at the other end").clone()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.0
    }

    /// Whom its certificate names.
    pub(crate) fn certificate(&self) -> Option<&Identity> {
        self.0.1.as_ref()
    }
}

impl Caller {
    /// A caller with the rights of its certificate, or of nobody in particular.
    pub(crate) fn new(peer: Peer, rights: Rights) -> Self {
        Self { peer, token: None, rights }
    }

    /// A caller with the rights of a token.
    pub(crate) fn with_token(peer: Peer, token: Identity, rights: Rights) -> Self {
        Self { peer, token: Some(token), rights }
    }

    /// Whom a token, or else the connection's certificate, names.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.token.as_ref().or_else(|| self.peer.certificate())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.peer.address()
    }

    /// What the caller is counted as.
    pub(crate) fn party(&self) -> Party {
        match self.identity() {
            Some(identity) => Party::Known(identity.clone()),
            None => Party::Unknown(network(self.peer.address().ip().to_canonical())),
        }
    }

    /// Requires a right.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`; `UNAUTHENTICATED` if the caller has shown nothing.
    pub(crate) fn may(&self, right: Right) -> Result<(), Failure> {
        if self.rights.hold(right) {
            return Ok(());
        }
        Err(match self.identity() {
            Some(identity) => {
                let message = format!("{identity} does not have the right to {right}");
                Failure::new(Reason::PermissionDenied, message)
            }
            None => {
                let message = format!("the right to {right} takes a bearer token or a certificate");
                Failure::new(Reason::Unauthenticated, message)
            }
        })
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(address: &str) -> Party {
        let address = SocketAddr::new(address.parse().unwrap(), 1);
        Caller::new(Peer::new(address, None), Rights::default()).party()
    }

    #[test]
    fn strangers_are_told_apart_by_address_and_not_within_a_network_of_one_host() {
        assert_ne!(party("10.0.0.1"), party("10.0.0.2"));
        assert_eq!(party("10.0.0.1"), party("::ffff:10.0.0.1"));
        assert_eq!(party("2001:db8::1"), party("2001:db8::ffff:1:2"));
        assert_ne!(party("2001:db8::1"), party("2001:db8:0:1::1"));
    }

    #[test]
    fn names_that_would_forge_a_line_name_nobody() {
        assert_eq!(Identity::new(Kind::Token, "ci").unwrap().as_str(), "token:ci");
        for bad in ["", "a\nb", "a\u{2028}b", "a\u{1b}[0m", &"x".repeat(300)] {
            assert_eq!(Identity::new(Kind::CommonName, bad), None);
        }
    }
}
