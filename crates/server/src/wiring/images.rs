//! The settings of registries.

use outrigger_budget::Budget;
use outrigger_oci as oci;

use crate::config::{CloudIdentity, Images};

/// The configuration of the client of registries.
pub(super) fn oci_config(images: &Images, budget: &Budget) -> oci::Config {
    let mut config = oci::Config {
        plain_http: images.plain_http.clone(),
        ca: images.ca_file.clone(),
        ..oci::Config::default()
    };
    if let Some(directory) = &images.docker_config {
        config.credentials.docker_config = Some(directory.join("config.json"));
    }
    config.credentials.identity = identity(images);
    config.timeouts.idle = images.timeout.0;
    config.timeouts.least = images.min_throughput.0;
    // Sixteen pulls read one each, and parsing takes several times its size.
    let most = budget.pulls.limit() / 64;
    config.limits.manifest = config.limits.manifest.min(most);
    config.limits.config = config.limits.config.min(most);
    config
}

/// The identity for registries that have no credentials of their own.
fn identity(images: &Images) -> Option<oci::Identity> {
    let identity = match images.identity {
        CloudIdentity::None => return None,
        CloudIdentity::Gcp => oci::Identity::gcp(),
    };
    Some(match images.identity_hosts.as_slice() {
        [] => identity,
        hosts => oci::Identity { registries: hosts.to_vec(), ..identity },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_for_the_named_hosts_or_those_of_its_cloud() {
        let mut images = Images::default();
        assert_eq!(identity(&images), None);
        images.identity = CloudIdentity::Gcp;
        assert_eq!(identity(&images), Some(oci::Identity::gcp()));
        images.identity_hosts = vec!["registry.example".to_owned()];
        let named = identity(&images).expect("an identity");
        assert_eq!(named.registries, ["registry.example"]);
        assert_eq!(named.metadata_server, oci::Identity::gcp().metadata_server);
    }
}
