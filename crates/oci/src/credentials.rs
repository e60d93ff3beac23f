//! Credentials from Docker's configuration file and its helpers, and from the machine's identity.

mod docker_config;
mod helper;
mod identity;

use std::{fs, time::SystemTime};

use crate::{Config, Error, config, secret::Secret};
use docker_config::{DockerConfig, Found};
use identity::Identity;
pub(crate) use identity::{AccessToken, USER};

/// A credential to present to a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A user and a password.
    Password { user: String, password: Secret },
    /// A refresh token for the registry's token server.
    Identity(Secret),
    /// A bearer token, ready to be sent.
    Bearer(Secret),
    /// An access token of the machine or pod.
    Access(AccessToken),
}

impl Credential {
    /// The access token of the machine or pod, if it is one.
    pub(crate) fn access(&self) -> Option<&AccessToken> {
        match self {
            Self::Access(access) => Some(access),
            Self::Password { .. } | Self::Identity(_) | Self::Bearer(_) => None,
        }
    }
}

/// Provides credentials; reads the configuration file at every request, so that a changed password
/// is found.
#[derive(Debug)]
pub(crate) struct CredentialSource {
    config: config::Credentials,
    identity: Option<Identity>,
}

/// Identifies one state of the configuration file by time of modification and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(Option<(SystemTime, u64)>);

impl CredentialSource {
    /// The sources that `config` names.
    ///
    /// # Errors
    /// The HTTP client for the metadata server cannot be made.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let identity = config.credentials.identity.as_ref();
        let identity = identity.map(|identity| Identity::new(config, identity)).transpose()?;
        Ok(Self { config: config.credentials.clone(), identity })
    }

    /// The configuration file's present state.
    pub(crate) fn stamp(&self) -> Stamp {
        let metadata = self.config.docker_config.as_ref().and_then(|path| fs::metadata(path).ok());
        Stamp(metadata.and_then(|file| Some((file.modified().ok()?, file.len()))))
    }

    /// The credential for a repository of `host`, if there is one: that of the configuration file
    /// comes first.
    pub(crate) async fn get(
        &self,
        host: &str,
        repository: &str,
    ) -> Result<Option<Credential>, Error> {
        if let Some(credential) = self.configured(host, repository).await? {
            return Ok(Some(credential));
        }
        let Some(identity) = &self.identity else { return Ok(None) };
        Ok(identity.token(host).await?.map(Credential::Access))
    }

    /// The credential of the configuration file or a helper.
    async fn configured(&self, host: &str, repository: &str) -> Result<Option<Credential>, Error> {
        let Some(path) = &self.config.docker_config else { return Ok(None) };
        let Some(config) = DockerConfig::read(path).await? else { return Ok(None) };
        match config
            .find(host, repository)
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
