//! Passwords and tokens, and changes of them.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use outrigger_core::Reason;
use outrigger_oci::{Client, Error};
use outrigger_testkit::registry::{Registry, Rule};
use tempfile::TempDir;

use crate::support::{client_with, image, login, reference, registry_with};

const SECRET: &str = "s3cret";

struct Fixture {
    registry: Registry,
    home: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let (registry, ..) = registry_with(b"one").await;
        Self { registry, home: tempfile::tempdir().unwrap() }
    }

    fn config(&self) -> PathBuf {
        self.home.path().join("config.json")
    }

    fn login(&self, password: &str) {
        login(&self.config(), self.registry.host(), "ann", password);
    }

    fn identity(&self, token: &str) {
        let text = format!(
            r#"{{"auths": {{"{}": {{"identitytoken": "{token}"}}}}}}"#,
            self.registry.host()
        );
        std::fs::write(self.config(), text).unwrap();
    }

    fn client(&self) -> Client {
        client_with(self.registry.host(), &self.config())
    }

    async fn resolve(&self, client: &Client) -> Result<(), Error> {
        client.resolve(&reference(self.registry.host(), "")).await.map(drop)
    }

    async fn refusal(&self, client: &Client) -> Error {
        let error = self.resolve(client).await.unwrap_err();
        let shown = format!("{error} {error:?} {:?} {client:?}", error.failure());
        assert!(!shown.contains(SECRET) && !shown.contains("token-"), "{shown}");
        error
    }

    fn tokens_asked(&self) -> usize {
        self.registry.count("GET", "/token") + self.registry.count("POST", "/token")
    }
}

#[tokio::test]
async fn a_password_is_sent_when_asked_for_and_kept() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password("ann", SECRET);
    fixture.login(SECRET);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    assert_eq!(fixture.registry.requests().len(), 2);
    fixture.resolve(&client).await.unwrap();
    assert_eq!(fixture.registry.requests().len(), 3);
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_does_not_stick() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password("ann", SECRET);
    fixture.login("wrong");
    let client = fixture.client();
    assert_eq!(fixture.refusal(&client).await.reason(), Reason::RegistryDenied);
    fixture.login(SECRET);
    fixture.resolve(&client).await.unwrap();
}

#[tokio::test]
async fn a_changed_password_is_read_again_after_a_refusal() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password("ann", SECRET);
    fixture.login(SECRET);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    fixture.registry.require_password("ann", "changed");
    fixture.login("changed");
    fixture.resolve(&client).await.unwrap();
}

#[tokio::test]
async fn an_expired_password_is_read_again_when_the_registry_says_403() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password("ann", SECRET);
    fixture.login(SECRET);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    fixture.registry.script(Rule::head("/manifests/").times(1).status(403));
    fixture.resolve(&client).await.unwrap();
    // A 403 to credentials that were just read is final.
    fixture.registry.script(Rule::head("/manifests/").status(403));
    assert_eq!(fixture.refusal(&client).await.reason(), Reason::RegistryDenied);
}

#[tokio::test]
async fn a_token_has_two_names_of_which_one_may_be_empty() {
    let fixture = Fixture::new().await;
    fixture.registry.require_anonymous_token();
    let answer = r#"{"token": "", "access_token": "other"}"#;
    fixture.registry.script(Rule::get("/token").body(answer));
    let client = fixture.client();
    fixture.refusal(&client).await;
    let sent = fixture.registry.requests();
    assert!(sent.iter().any(|request| request.header("authorization") == Some("Bearer other")));
}

#[tokio::test]
async fn without_credentials_a_locked_registry_is_denied() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password("ann", SECRET);
    let error = fixture.refusal(&fixture.client()).await;
    assert!(error.to_string().contains("there are none"), "{error}");
    fixture.registry.require_token("ann", SECRET);
    assert_eq!(fixture.refusal(&fixture.client()).await.reason(), Reason::RegistryDenied);
}

#[tokio::test]
async fn a_token_is_fetched_for_the_scope_and_kept() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token("ann", SECRET);
    fixture.login(SECRET);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    fixture.resolve(&client).await.unwrap();
    assert_eq!(fixture.tokens_asked(), 1);
    let requests = fixture.registry.requests();
    let token = requests.iter().find(|request| request.path == "/token").unwrap();
    assert!(token.query.contains("repository%3Ateam%2Fchurn%3Apull"), "{}", token.query);
    assert!(token.query.contains("service=testkit"), "{}", token.query);
}

#[tokio::test]
async fn a_token_is_fetched_without_credentials() {
    let fixture = Fixture::new().await;
    fixture.registry.require_anonymous_token();
    fixture.resolve(&fixture.client()).await.unwrap();
}

#[tokio::test]
async fn an_expired_token_is_replaced_before_it_is_sent() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token("ann", SECRET);
    // Shorter than the client's margin, so the token counts as expired at once.
    fixture.registry.token_life(1);
    fixture.login(SECRET);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    fixture.registry.forget_requests();
    fixture.resolve(&client).await.unwrap();
    let first = &fixture.registry.requests()[0];
    assert_eq!(first.header("authorization"), None);
    assert_eq!(fixture.tokens_asked(), 1);
}

#[tokio::test]
async fn a_revoked_token_is_replaced() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token("ann", SECRET);
    fixture.login(SECRET);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    fixture.registry.revoke_tokens();
    fixture.resolve(&client).await.unwrap();
    assert_eq!(fixture.tokens_asked(), 2);
}

#[tokio::test]
async fn an_identity_token_is_exchanged() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token("ann", SECRET);
    fixture.identity(SECRET);
    fixture.resolve(&fixture.client()).await.unwrap();
    let requests = fixture.registry.requests();
    let token = requests.iter().find(|request| request.path == "/token").unwrap();
    assert_eq!((token.method.as_str(), token.query.as_str()), ("POST", ""));
    for part in ["grant_type=refresh_token", "refresh_token=s3cret", "service=testkit"] {
        assert!(token.form.contains(part), "{}", token.form);
    }
    fixture.identity("wrong");
    assert_eq!(fixture.refusal(&fixture.client()).await.reason(), Reason::RegistryDenied);
}

#[tokio::test]
async fn a_failing_token_server_is_unavailable_and_not_denied() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token("ann", SECRET);
    fixture.login(SECRET);
    for status in [429, 500, 503] {
        fixture.registry.behave();
        fixture.registry.script(Rule::any("/token").times(2).status(status));
        fixture.resolve(&fixture.client()).await.unwrap();
        fixture.registry.script(Rule::any("/token").status(status));
        let error = fixture.refusal(&fixture.client()).await;
        assert_eq!(error.reason(), Reason::RegistryUnavailable, "{status}");
    }
    fixture.registry.behave();
    fixture.registry.script(Rule::any("/token").status(403));
    assert_eq!(fixture.refusal(&fixture.client()).await.reason(), Reason::RegistryDenied);
}

#[tokio::test]
async fn a_token_that_no_header_can_carry_is_an_error() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token("ann", SECRET);
    fixture.login(SECRET);
    for body in [r#"{"token": "a\nb"}"#, r#"{"token": ""}"#, "{}", "s3cret"] {
        fixture.registry.behave();
        fixture.registry.script(Rule::any("/token").body(body));
        let error = fixture.refusal(&fixture.client()).await;
        assert!(!error.is_transient(), "{error}");
    }
}

#[tokio::test]
async fn credentials_are_not_sent_to_a_token_server_over_plain_http() {
    let fixture = Fixture::new().await;
    fixture.login(SECRET);
    let challenge = r#"Bearer realm="http://other.example/token",service="x""#;
    fixture.registry.script(Rule::any("/v2/").status(401).header("www-authenticate", challenge));
    let error = fixture.refusal(&fixture.client()).await;
    assert!(error.to_string().contains("plain HTTP"), "{error}");
}

#[tokio::test]
async fn a_redirect_gets_no_credentials_and_must_not_leave_tls() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password("ann", SECRET);
    fixture.login(SECRET);
    let client = fixture.client();
    let (other, ..) = registry_with(b"one").await;
    let there = format!("http://{}/v2/team/churn/manifests/latest?signature=s3cret", other.host());
    fixture.registry.script(Rule::get("/manifests/").status(307).header("location", &there));
    fixture.registry.script(Rule::head("/manifests/").status(405));
    let error = fixture.refusal(&client).await;
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(other.requests().is_empty());

    fixture.resolve(&client_of_both(&fixture, &other)).await.unwrap();
    assert!(other.requests().iter().all(|request| request.header("authorization").is_none()));
    assert_eq!(other.requests().len(), 1);
}

/// A client that may call both registries over plain HTTP, with the fixture's credentials.
fn client_of_both(fixture: &Fixture, other: &Registry) -> Client {
    let mut config = crate::support::config(fixture.registry.host());
    config.plain_http.push(other.host().to_owned());
    config.credentials.docker_config = Some(fixture.config());
    Client::new(config).unwrap()
}

#[tokio::test]
async fn a_challenge_from_the_target_of_a_redirect_gets_no_credentials() {
    let fixture = Fixture::new().await;
    fixture.login(SECRET);
    let (other, ..) = registry_with(b"one").await;
    let client = client_of_both(&fixture, &other);
    let there = format!("http://{}/v2/team/churn/manifests/latest", other.host());
    let realm = format!("Bearer realm=\"http://{}/token\"", other.host());
    for challenge in ["Basic realm=\"x\"", &realm] {
        let refusal = Rule::any("/v2/").status(401).header("www-authenticate", challenge);
        other.script(refusal);
        fixture.registry.script(Rule::any("/manifests/").status(307).header("location", &there));
        let error = fixture.refusal(&client).await;
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
        assert!(error.to_string().contains(other.host()), "{error} does not name the host");
        let requests = other.requests();
        assert!(requests.iter().all(|request| request.header("authorization").is_none()));
        assert!(requests.iter().all(|request| request.path != "/token"));
        assert!(!requests.is_empty());
    }
}

#[tokio::test]
async fn a_token_server_that_redirects_does_not_pass_on_credentials() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token("ann", SECRET);
    let (other, ..) = registry_with(b"one").await;
    other.require_token("ann", SECRET);
    let client = client_of_both(&fixture, &other);
    let there = format!("http://{}/token", other.host());
    for status in [301, 302, 303, 307, 308] {
        fixture.registry.behave();
        fixture.registry.script(Rule::any("/token").status(status).header("location", &there));
        for write in [Fixture::login, Fixture::identity] {
            write(&fixture, SECRET);
            fixture.refusal(&client).await;
        }
    }
    assert!(!other.requests().is_empty(), "redirects without a secret are followed");
    for request in other.requests() {
        assert!(request.header("authorization").is_none(), "{request:?}");
        assert!(!request.form.contains(SECRET) && !request.query.contains(SECRET), "{request:?}");
    }
}

#[tokio::test]
async fn a_push_asks_for_a_token_with_push_access() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token("ann", SECRET);
    fixture.login(SECRET);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    let reference = reference(fixture.registry.host(), ":new");
    let digest = client.push(&reference, &image(&[b"new"])).await.unwrap();
    assert_eq!(client.resolve(&reference).await.unwrap(), digest);
    // One token for pulling, one for pushing.
    assert_eq!(fixture.tokens_asked(), 2);
}

/// Collects all log lines of this thread, at the finest level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_secret_is_logged_at_any_level() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let fixture = Fixture::new().await;
    fixture.login(SECRET);
    fixture.registry.require_password("ann", SECRET);
    fixture.resolve(&fixture.client()).await.unwrap();
    fixture.registry.require_token("ann", SECRET);
    fixture.registry.script(Rule::any("/token").times(1).status(503));
    fixture.resolve(&fixture.client()).await.unwrap();
    fixture.identity(SECRET);
    fixture.resolve(&fixture.client()).await.unwrap();

    let text = log.text();
    assert!(text.contains("trying again"), "{text}");
    let basic = "YW5uOnMzY3JldA"; // ann:s3cret
    for secret in [SECRET, basic, "token-1", "token-2"] {
        let line = text.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
}
