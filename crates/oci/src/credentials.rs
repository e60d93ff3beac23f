//! Credentials from Docker's configuration file and its helpers.

mod docker_config;
mod helper;

use std::{fs, time::SystemTime};

use crate::{Error, config, secret::Secret};
use docker_config::{DockerConfig, Found};

/// A credential to present to a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A user and a password.
    Password { user: String, password: Secret },
    /// A refresh token for the registry's token server.
    Identity(Secret),
    /// A bearer token, ready to be sent.
    Bearer(Secret),
}

/// Provides credentials; reads the configuration file at every request, so that a changed password
/// is found.
#[derive(Debug)]
pub(crate) struct CredentialSource {
    config: config::Credentials,
}

/// Identifies one state of the configuration file by time of modification and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(Option<(SystemTime, u64)>);

impl CredentialSource {
    pub(crate) fn new(config: config::Credentials) -> Self {
        Self { config }
    }

    /// The configuration file's present state.
    pub(crate) fn stamp(&self) -> Stamp {
        let metadata = self.config.docker_config.as_ref().and_then(|path| fs::metadata(path).ok());
        Stamp(metadata.and_then(|file| Some((file.modified().ok()?, file.len()))))
    }

    /// The credential for `host`, if there is one.
    pub(crate) async fn get(&self, host: &str) -> Result<Option<Credential>, Error> {
        let Some(path) = &self.config.docker_config else { return Ok(None) };
        let Some(config) = DockerConfig::read(path).await? else { return Ok(None) };
        match config
            .find(host)
            .map_err(|problem| Error::invalid(path.display().to_string(), problem))?
        {
            Found::Nothing => Ok(None),
            Found::Credential(credential) => Ok(Some(credential)),
            Found::Helper(name) => helper::get(&name, host, self.config.helper_timeout).await,
        }
    }
}

/// The key of docker.io in Docker's configuration.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

fn is_docker_hub(host: &str) -> bool {
    matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io")
}

#[cfg(test)]
mod tests;
