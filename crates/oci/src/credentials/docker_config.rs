//! Docker's `config.json`, reduced to the keys about credentials.

use std::{cmp::Reverse, collections::HashMap, io, path::Path};

use base64::{
    Engine as _,
    engine::{
        DecodePaddingMode,
        general_purpose::{GeneralPurpose, GeneralPurposeConfig},
    },
};
use serde::Deserialize;

use super::{Credential, is_docker_hub};
use crate::{Error, reference::starts_with_segments, secret::Secret};

/// The file, as Docker writes it. It holds secrets, so it has no `Debug`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DockerConfig {
    auths: HashMap<String, Entry>,
    creds_store: Option<String>,
    cred_helpers: HashMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase", default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// The source of a host's credential: the file itself, or a credential helper.
pub(super) enum Found {
    Nothing,
    Credential(Credential),
    Helper(String),
}

impl DockerConfig {
    /// Reads the file at `path`; `None` if it does not exist.
    pub(super) async fn read(path: &Path) -> Result<Option<Self>, Error> {
        let text = match tokio::fs::read(path).await {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::io(path)(source)),
        };
        // The parser's message may quote a secret, so the error has its position only.
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let problem = format!("not Docker's configuration: line {line}, column {column}");
            Error::invalid(path.display().to_string(), problem)
        })
    }

    /// Finds the credential of a repository in Docker's order: the host's own helper, an entry, the
    /// default helper. Of several entries the one with the longest path comes first.
    pub(super) fn find(&self, host: &str, repository: &str) -> Result<Found, String> {
        // Helpers are for whole hosts.
        if let Some((_, helper)) =
            entries(&self.cred_helpers, host, "").find(|(_, it)| !it.is_empty())
        {
            return Ok(Found::Helper(helper.clone()));
        }
        for (key, entry) in entries(&self.auths, host, repository) {
            if let Some(credential) = entry.credential(key)? {
                return Ok(Found::Credential(credential));
            }
        }
        match self.creds_store.as_deref() {
            None | Some("") => Ok(Found::Nothing),
            Some(helper) => Ok(Found::Helper(helper.to_owned())),
        }
    }
}

/// The entries for a repository of `host`, the most specific one first. A key is a host or a URL, and
/// may end in the first segments of repositories.
fn entries<'a, T>(
    entries: &'a HashMap<String, T>,
    host: &str,
    repository: &str,
) -> impl Iterator<Item = (&'a str, &'a T)> {
    let mut found: Vec<_> = entries
        .iter()
        .filter_map(|(key, value)| Some((rank(key, host, repository)?, key.as_str(), value)))
        .collect();
    found.sort_by_key(|(rank, key, _)| (Reverse(*rank), *key));
    found.into_iter().map(|(_, key, value)| (key, value))
}

/// The length of the key's path, and whether it names the host exactly; `None` if the key is for
/// another host or path.
fn rank(key: &str, host: &str, repository: &str) -> Option<(usize, bool)> {
    let place = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let place = place.trim_end_matches('/');
    let (named, path) = place.split_once('/').unwrap_or((place, ""));
    // The addresses of registries' interfaces, which Docker writes.
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    let same = named.eq_ignore_ascii_case(host) || (is_docker_hub(host) && is_docker_hub(named));
    let within = starts_with_segments(repository, path);
    (same && within).then_some((path.len(), key == host))
}

impl Entry {
    fn credential(&self, key: &str) -> Result<Option<Credential>, String> {
        let set = |field: &Option<String>| field.clone().filter(|value| !value.is_empty());
        if let Some(token) = set(&self.identitytoken) {
            return Ok(Some(Credential::Identity(Secret::new(token))));
        }
        if let Some(token) = set(&self.registrytoken) {
            return Ok(Some(Credential::Bearer(Secret::new(token))));
        }
        if let Some(auth) = set(&self.auth) {
            let problem = || format!("auths[{key:?}].auth is not the base64 of user:password");
            return decode(&auth).map(Some).ok_or_else(problem);
        }
        let pair = set(&self.username).zip(set(&self.password));
        Ok(pair.map(|(user, password)| login(user, password)))
    }
}

fn decode(auth: &str) -> Option<Credential> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    let text = String::from_utf8(engine.decode(auth.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(login(user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// A credential from user and password. Docker's helpers mark an identity token with the user
/// `<token>`.
pub(super) fn login(user: String, password: String) -> Credential {
    let password = Secret::new(password);
    if user == "<token>" {
        return Credential::Identity(password);
    }
    Credential::Password { user, password }
}
