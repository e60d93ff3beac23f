//! Access tokens of a machine in Google Cloud, from a scripted metadata server.

use outrigger_core::Reason;
use outrigger_oci::{Client, Config, Error, Identity};
use outrigger_testkit::registry::{Registry, Rule};

use crate::support::{config, image, login, reference, registry_with};

const PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
const USER: &str = "oauth2accesstoken";
/// A life that the client takes for longer than the test.
const LONG: u64 = 3600;

struct Fixture {
    registry: Registry,
    metadata: Registry,
    config: Config,
}

impl Fixture {
    /// A registry that the identity is for, and a metadata server without a token yet.
    async fn new() -> Self {
        let (registry, ..) = registry_with(b"one").await;
        let metadata = Registry::start().await;
        let mut config = config(registry.host());
        config.credentials.identity = Some(Identity {
            metadata_server: metadata.host().to_owned(),
            registries: vec![registry.host().to_owned()],
        });
        Self { registry, metadata, config }
    }

    /// Lets the metadata server answer with this token from now on.
    fn gives(&self, token: &str, life: u64) {
        let answer = serde_json::json!({
            "access_token": token, "expires_in": life, "token_type": "Bearer",
        });
        self.metadata.behave();
        self.metadata.script(google(answers(answer.to_string())));
    }

    fn client(&self) -> Client {
        Client::new(self.config.clone()).unwrap()
    }

    async fn resolve(&self, client: &Client) -> Result<(), Error> {
        client.resolve(&reference(self.registry.host(), "")).await.map(drop)
    }

    async fn refusal(&self) -> Error {
        let client = self.client();
        let error = self.resolve(&client).await.unwrap_err();
        let shown = format!("{error} {error:?} {:?} {client:?}", error.failure());
        assert!(!shown.contains("s3cret"), "{shown}");
        error
    }

    /// The number of times that a token was asked for.
    fn asked(&self) -> usize {
        self.metadata.count("GET", PATH)
    }
}

/// An answer of the metadata server.
fn answers(body: impl Into<bytes::Bytes>) -> Rule {
    Rule::get(PATH).status(200).body(body)
}

/// Marks an answer as the metadata server does.
fn google(rule: Rule) -> Rule {
    rule.header("metadata-flavor", "Google")
}

#[tokio::test]
async fn a_registry_gets_the_access_token_as_a_password() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password(USER, "s3cret");
    fixture.gives("s3cret", LONG);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    fixture.resolve(&client).await.unwrap();
    assert_eq!(fixture.asked(), 1);
    let request = &fixture.metadata.requests()[0];
    assert_eq!(request.header("metadata-flavor"), Some("Google"));
    client.push(&reference(fixture.registry.host(), ":new"), &image(&[b"two"])).await.unwrap();
}

#[tokio::test]
async fn a_token_server_gets_the_access_token_as_a_password() {
    let fixture = Fixture::new().await;
    fixture.registry.require_token(USER, "s3cret");
    fixture.gives("s3cret", LONG);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    fixture.registry.revoke_tokens();
    fixture.resolve(&client).await.unwrap();
    assert_eq!(fixture.asked(), 2, "it is asked again after a 401");
}

#[tokio::test]
async fn an_access_token_is_renewed_before_it_expires() {
    for with_token_server in [false, true] {
        let fixture = Fixture::new().await;
        match with_token_server {
            true => fixture.registry.require_token(USER, "s3cret"),
            false => fixture.registry.require_password(USER, "s3cret"),
        }
        // Shorter than the client's margin, so the token counts as expired at once.
        fixture.gives("s3cret", 30);
        let client = fixture.client();
        fixture.resolve(&client).await.unwrap();
        fixture.registry.forget_requests();
        fixture.resolve(&client).await.unwrap();
        let first = &fixture.registry.requests()[0];
        assert_eq!(first.header("authorization"), None, "the old one is not sent again");
        assert_eq!(fixture.asked(), 2);
    }
}

#[tokio::test]
async fn an_access_token_is_renewed_after_a_401() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password(USER, "first");
    fixture.gives("first", LONG);
    let client = fixture.client();
    fixture.resolve(&client).await.unwrap();
    fixture.registry.require_password(USER, "s3cret");
    fixture.gives("s3cret", LONG);
    fixture.resolve(&client).await.unwrap();
    fixture.gives("wrong", LONG);
    fixture.registry.require_password(USER, "other");
    assert_eq!(fixture.refusal().await.reason(), Reason::RegistryDenied);
}

#[tokio::test]
async fn another_registry_gets_no_access_token() {
    let mut fixture = Fixture::new().await;
    fixture.registry.require_password(USER, "s3cret");
    fixture.gives("s3cret", LONG);
    for registries in [Identity::gcp().registries, Vec::new()] {
        fixture.config.credentials.identity.as_mut().unwrap().registries = registries;
        assert_eq!(fixture.refusal().await.reason(), Reason::RegistryDenied);
    }
    assert_eq!(fixture.asked(), 0);
}

#[tokio::test]
async fn a_token_server_elsewhere_gets_no_access_token() {
    let mut fixture = Fixture::new().await;
    let other = Registry::start().await;
    fixture.config.plain_http.push(other.host().to_owned());
    fixture.gives("s3cret", LONG);
    let challenge = format!(r#"Bearer realm="http://{}/token",service="x""#, other.host());
    fixture.registry.script(Rule::any("/v2/").status(401).header("www-authenticate", &challenge));
    let error = fixture.refusal().await;
    assert_eq!(error.reason(), Reason::RegistryDenied);
    assert!(error.to_string().contains("no registry of the identity"), "{error}");
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn credentials_in_the_configuration_file_come_first() {
    let mut fixture = Fixture::new().await;
    fixture.registry.require_password("ann", "s3cret");
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.json");
    login(&file, fixture.registry.host(), "ann", "s3cret");
    fixture.config.credentials.docker_config = Some(file);
    fixture.resolve(&fixture.client()).await.unwrap();
    assert_eq!(fixture.asked(), 0);
}

#[tokio::test]
async fn faults_of_the_metadata_server_are_told_apart() {
    let fixture = Fixture::new().await;
    fixture.registry.require_password(USER, "s3cret");
    let token = r#"{"access_token": "s3cret", "expires_in": 3600}"#;
    let elsewhere = Rule::get(PATH).status(302).header("location", "http://other.example/");
    for (rule, reason) in [
        (google(Rule::get(PATH).status(404)), Reason::RegistryDenied),
        (google(Rule::get(PATH).status(500)), Reason::RegistryUnavailable),
        (google(Rule::get(PATH).status(429)), Reason::RegistryUnavailable),
        (google(elsewhere), Reason::RegistryUnavailable),
        (answers(token), Reason::RegistryDenied),
        (google(answers("s3cret")), Reason::RegistryUnavailable),
    ] {
        fixture.metadata.behave();
        fixture.metadata.script(rule);
        let error = fixture.refusal().await;
        assert_eq!(error.reason(), reason, "{error}");
    }
    // A short outage is bridged.
    fixture.metadata.behave();
    fixture.metadata.script(google(Rule::get(PATH).times(2).status(503)));
    fixture.metadata.script(google(answers(token)));
    fixture.resolve(&fixture.client()).await.unwrap();
}
