//! Access control of the registry: none, a password, or a token of its token server.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;

/// The access that the registry requires, with the tokens issued.
#[derive(Debug)]
pub(super) struct Guard {
    kind: Kind,
    /// The life that the token server states for new tokens, seconds.
    pub(super) life: u64,
    issued: u64,
    tokens: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
enum Kind {
    Open,
    Password { basic: String },
    Token { login: Option<Login> },
}

#[derive(Debug)]
struct Login {
    basic: String,
    password: String,
}

impl Default for Guard {
    fn default() -> Self {
        Self { kind: Kind::Open, life: 300, issued: 0, tokens: BTreeMap::new() }
    }
}

impl Guard {
    pub(super) fn password(user: &str, password: &str) -> Self {
        Self { kind: Kind::Password { basic: basic(user, password) }, ..Self::default() }
    }

    pub(super) fn token(login: Option<(&str, &str)>) -> Self {
        let login = login.map(|(user, password)| Login {
            basic: basic(user, password),
            password: password.to_owned(),
        });
        Self { kind: Kind::Token { login }, ..Self::default() }
    }

    pub(super) fn revoke(&mut self) {
        self.tokens.clear();
    }

    /// Checks a request's authorization; the error is the challenge to answer with.
    pub(super) fn check(
        &self,
        host: &str,
        name: &str,
        writes: bool,
        headers: &HeaderMap,
    ) -> Result<(), String> {
        let sent = headers.get("authorization").and_then(|value| value.to_str().ok());
        let scope = format!("repository:{name}:{}", if writes { "pull,push" } else { "pull" });
        match &self.kind {
            Kind::Open => Ok(()),
            Kind::Password { basic } if sent == Some(basic) => Ok(()),
            Kind::Password { .. } => Err("Basic realm=\"testkit\"".to_owned()),
            Kind::Token { .. } if sent.is_some_and(|sent| self.admits(sent, &scope)) => Ok(()),
            Kind::Token { .. } => Err(format!(
                "Bearer realm=\"http://{host}/token\",service=\"testkit\",scope=\"{scope}\""
            )),
        }
    }

    /// Whether a token admits to `scope`. A token for writing admits to reading too.
    fn admits(&self, sent: &str, scope: &str) -> bool {
        let scopes = sent.strip_prefix("Bearer ").and_then(|token| self.tokens.get(token));
        let reads = scope.strip_suffix(",push").unwrap_or(scope);
        let writes = format!("{reads},push");
        scopes.is_some_and(|all| all.contains(scope) || all.contains(&writes))
    }

    /// The token server: issues a token for the requested scope, or refuses.
    pub(super) fn issue(
        &mut self,
        headers: &HeaderMap,
        parameters: &BTreeMap<String, String>,
    ) -> Option<String> {
        let Kind::Token { login } = &self.kind else { return None };
        let sent = headers.get("authorization").and_then(|value| value.to_str().ok());
        let known = login.as_ref().is_none_or(|login| {
            let refresh = parameters.get("refresh_token");
            sent == Some(&login.basic) || refresh.is_some_and(|token| *token == login.password)
        });
        if !known {
            return None;
        }
        self.issued += 1;
        let token = format!("token-{}", self.issued);
        let scope = parameters.get("scope").cloned().unwrap_or_default();
        self.tokens.insert(token.clone(), BTreeSet::from([scope]));
        Some(token)
    }
}

/// The value of the `Authorization` header for a user and a password.
fn basic(user: &str, password: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}
