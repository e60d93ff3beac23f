//! Callers: the peer of a connection, and the identity that its certificate or token proves.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::http::Extensions;
use outrigger_core::{Failure, Reason};

use crate::{
    config::{CallerName, Right, Rights},
    habit::Habit,
    sending::Unsent,
};

/// The most bytes of a name; a longer name is not accepted.
const LONGEST: usize = 256;

/// The kind of credential that proves a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A token.
    Token,
    /// The URI in a certificate, such as a SPIFFE id.
    Uri,
    /// The DNS name in a certificate.
    Dns,
    /// The common name of a certificate's subject.
    CommonName,
}

/// A name that was proven, with the kind of its credential before a colon: `token:ci`,
/// `uri:spiffe://shop/backend`. So a certificate cannot pass for a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity(Arc<str>);

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer(Arc<Connected>);

#[derive(Debug)]
struct Connected {
    address: SocketAddr,
    certificate: Option<Identity>,
    unsent: Arc<Unsent>,
    habit: Habit,
}

/// A caller and its rights.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    peer: Peer,
    token: Option<Identity>,
    rights: Rights,
}

/// The key by which calls and connections of one caller are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// A caller that proved this name, from any address.
    Known(Identity),
    /// All other callers at an address. An IPv6 address stands for its /64, which one host usually
    /// has to itself.
    Unknown(IpAddr),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(identity) => identity.fmt(f),
            Self::Unknown(address) => address.fmt(f),
        }
    }
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
    /// An identity; `None` if the name is empty, too long or has characters that a log would not
    /// show clearly.
    pub(crate) fn new(kind: Kind, name: &str) -> Option<Self> {
        let shown = |c: char| c == ' ' || !c.is_control() && !c.is_whitespace();
        let fit = !name.is_empty() && name.len() <= LONGEST && name.chars().all(shown);
        fit.then(|| Self(format!("{}:{name}", kind.as_str()).into()))
    }

    /// The holder of the operator's token. Its prefix belongs to no credential of the configuration.
    pub(crate) fn operator() -> Self {
        Self("local:operator".into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&CallerName> for Identity {
    fn from(name: &CallerName) -> Self {
        Self(name.as_str().into())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Peer {
    /// The peer at an address, with the identity that its certificate proves.
    pub(crate) fn new(address: SocketAddr, certificate: Option<Identity>) -> Self {
        let (unsent, habit) = (Arc::default(), Habit::default());
        Self(Arc::new(Connected { address, certificate, unsent, habit }))
    }

    /// The peer of the connection on which a request arrived.
    ///
    /// # Panics
    /// Without a listener, which stores the peer in every request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().expect("listeners say who is at the other end").clone()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The identity that its certificate proves.
    pub(crate) fn certificate(&self) -> Option<&Identity> {
        self.0.certificate.as_ref()
    }

    /// The answers that its connection has not sent yet.
    pub(crate) fn unsent(&self) -> &Arc<Unsent> {
        &self.0.unsent
    }

    /// The habits of its requests.
    pub(crate) fn habit(&self) -> &Habit {
        &self.0.habit
    }

    /// The key by which this peer's connections are counted.
    pub(crate) fn party(&self) -> Party {
        match self.certificate() {
            Some(identity) => Party::Known(identity.clone()),
            None => Party::Unknown(network(self.address().ip().to_canonical())),
        }
    }
}

impl Caller {
    /// A caller with the rights of its certificate, or of anonymous callers.
    pub(crate) fn new(peer: Peer, rights: Rights) -> Self {
        Self { peer, token: None, rights }
    }

    /// A caller with the rights of a token.
    pub(crate) fn with_token(peer: Peer, token: Identity, rights: Rights) -> Self {
        Self { peer, token: Some(token), rights }
    }

    /// The identity that a token proves, or else the connection's certificate.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.token.as_ref().or_else(|| self.peer.certificate())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.peer.address()
    }

    /// The other end of its connection.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The key by which this caller's calls are counted.
    pub(crate) fn party(&self) -> Party {
        match &self.token {
            Some(token) => Party::Known(token.clone()),
            None => self.peer.party(),
        }
    }

    /// Requires a right.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`; `UNAUTHENTICATED` if the caller presented no credential.
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
                let mut message =
                    format!("the right to {right} takes a bearer token or a certificate");
                if matches!(right, Right::Change | Right::Validate) {
                    message += "; `outrigger token`, run beside the server as its user, prints the \
                                token that it wrote if `auth` names none";
                }
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
    fn unknown_callers_are_distinguished_by_address_or_ipv6_network() {
        assert_ne!(party("10.0.0.1"), party("10.0.0.2"));
        assert_eq!(party("10.0.0.1"), party("::ffff:10.0.0.1"));
        assert_eq!(party("2001:db8::1"), party("2001:db8::ffff:1:2"));
        assert_ne!(party("2001:db8::1"), party("2001:db8:0:1::1"));
    }

    #[test]
    fn names_that_would_forge_a_log_line_are_not_identities() {
        assert_eq!(Identity::new(Kind::Token, "ci").unwrap().as_str(), "token:ci");
        for bad in ["", "a\nb", "a\u{2028}b", "a\u{1b}[0m", &"x".repeat(300)] {
            assert_eq!(Identity::new(Kind::CommonName, bad), None);
        }
    }
}
