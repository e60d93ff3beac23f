use std::{os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use super::*;

struct Home(tempfile::TempDir);

impl Home {
    fn new(config: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::write(home.path(), config).unwrap();
        home
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("config.json")
    }

    /// Writes a helper's script and returns its path. Tests run it by path, because the
    /// configuration can only name helpers on `PATH`.
    fn helper(&self, script: &str) -> PathBuf {
        let path = self.0.path().join("docker-credential-test");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn source(&self) -> CredentialSource {
        let helper_timeout = Duration::from_secs(20);
        let docker_config = Some(self.path());
        let credentials = config::Credentials { docker_config, helper_timeout, identity: None };
        CredentialSource::new(&Config { credentials, ..Config::default() }).unwrap()
    }

    async fn get(&self, place: &str) -> Result<Option<Credential>, Error> {
        let (host, repository) = place.split_once('/').unwrap_or((place, "any"));
        self.source().get(host, repository).await
    }
}

fn password(user: &str, password: &str) -> Option<Credential> {
    Some(Credential::Password { user: user.into(), password: Secret::new(password) })
}

#[tokio::test]
async fn entries_are_found_by_host_and_by_address() {
    // "ann:s3:cret" and "ann:x" with a trailing NUL, as Docker once wrote it.
    let home = Home::new(
        r#"{"auths": {
            "registry.example": {"auth": "YW5uOnMzOmNyZXQ="},
            "https://other.example/v1/": {"auth": "YW5uOngA"},
            "https://index.docker.io/v1/": {"username": "ann", "password": "hub"},
            "token.example": {"identitytoken": "refresh", "auth": "PHRva2VuPjo="},
            "marked.example": {"auth": "PHRva2VuPjpyZWZyZXNo"},
            "bearer.example": {"registrytoken": "ready"},
            "empty.example": {}
        }, "credsStore": ""}"#,
    );
    let identity = Some(Credential::Identity(Secret::new("refresh")));
    for (host, expected) in [
        ("registry.example", password("ann", "s3:cret")),
        ("other.example", password("ann", "x")),
        ("docker.io", password("ann", "hub")),
        ("token.example", identity.clone()),
        ("marked.example", identity),
        ("bearer.example", Some(Credential::Bearer(Secret::new("ready")))),
        ("empty.example", None),
        ("unknown.example", None),
    ] {
        assert_eq!(home.get(host).await.unwrap(), expected, "{host}");
    }
}

#[tokio::test]
async fn an_entry_with_a_path_is_for_the_repositories_below_it() {
    let entries = [
        ("host.example", "host"),
        ("host.example/team", "team"),
        ("https://host.example/team/deep/", "deep"),
        ("HOST.example/v2/", "address"),
        ("[::1]:5000/team", "six"),
        ("path.example/team", "path"),
        ("index.docker.io/team", "hub"),
    ];
    let auths: serde_json::Map<_, _> = entries
        .iter()
        .map(|(key, name)| {
            ((*key).to_owned(), serde_json::json!({"username": "ann", "password": name}))
        })
        .chain([("host.example/team/empty".to_owned(), serde_json::json!({}))])
        .collect();
    let home = Home::new(&serde_json::json!({ "auths": auths }).to_string());
    for (place, expected) in [
        ("host.example/churn", Some("host")),
        ("host.example/team-evil/churn", Some("host")),
        ("host.example/team", Some("team")),
        ("host.example/team/churn", Some("team")),
        ("host.example/team/empty/churn", Some("team")),
        ("host.example/team/deep/churn", Some("deep")),
        ("[::1]:5000/team/churn", Some("six")),
        ("[::1]:5000/other", None),
        ("path.example/churn", None),
        ("path.example:5000/team/churn", None),
        ("docker.io/team/churn", Some("hub")),
        ("docker.io/library/churn", None),
    ] {
        let expected = expected.and_then(|name| password("ann", name));
        assert_eq!(home.get(place).await.unwrap(), expected, "{place}");
    }
}

#[tokio::test]
async fn a_missing_file_means_no_credentials() {
    let home = Home::new("{}");
    fs::remove_file(home.path()).unwrap();
    assert_eq!(home.get("registry.example").await.unwrap(), None);
}

#[tokio::test]
async fn a_broken_file_is_an_error_that_quotes_nothing() {
    for text in [
        r#"{"auths": {"registry.example": {"auth": "s3cret-not-base64!"}}}"#,
        r#"{"auths": {"registry.example": "s3cret"}}"#,
        r#"{"auths": "s3cret"#,
    ] {
        let error = Home::new(text).get("registry.example").await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(!format!("{error:?} {error}").contains("s3cret"), "{error}");
    }
}

#[test]
fn a_secret_is_not_printed() {
    let shown = format!("{:?}", password("ann", "s3cret"));
    assert!(shown.contains("ann") && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn the_stamp_changes_with_the_file() {
    let home = Home::new("{}");
    let (source, before) = (home.source(), home.source().stamp());
    assert_eq!(source.stamp(), before);
    fs::write(home.path(), "{ }").unwrap();
    assert_ne!(source.stamp(), before);
}

mod helpers {
    use super::*;

    async fn ask(script: &str, limit: Duration) -> Result<Option<Credential>, Error> {
        let home = Home::new("{}");
        helper::ask(&home.helper(script), "registry.example", limit).await
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_helper_is_asked_for_the_host() {
        let script = r#"read host || true; [ "$1" = get ] && \
            echo "{\"ServerURL\": \"x\", \"Username\": \"$host\", \"Secret\": \"s3cret\"}""#;
        assert_eq!(ask(script, LONG).await.unwrap(), password("registry.example", "s3cret"));
        let script = r#"cat >/dev/null; echo '{"Username": "<token>", "Secret": "refresh"}'"#;
        let identity = Some(Credential::Identity(Secret::new("refresh")));
        assert_eq!(ask(script, LONG).await.unwrap(), identity);
    }

    #[tokio::test]
    async fn a_helper_without_the_credential_means_none() {
        let script = "echo 'credentials not found in native keychain'; exit 1";
        assert_eq!(ask(script, LONG).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_failing_helper_is_unavailable_and_its_output_is_not_quoted() {
        for script in ["echo s3cret; exit 3", "echo s3cret; echo s3cret >&2"] {
            let error = ask(script, LONG).await.unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_hanging_helper_times_out() {
        let error = ask("exec sleep 600", Duration::from_millis(50)).await.unwrap_err();
        assert!(error.to_string().contains("did not answer within"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_helper_is_denied() {
        let home = Home::new(r#"{"credHelpers": {"registry.example": "no-such-helper-here"}}"#);
        let error = home.get("registry.example").await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
        assert!(error.to_string().contains("docker-credential-no-such-helper-here"), "{error}");
    }
}
