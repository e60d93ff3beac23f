//! Verification that images have the signatures required by the configuration.
//!
//! A version is verified before its layers are pulled, whenever it is loaded from the store, and
//! periodically while it is up. The signatures used for it are stored with its files, so that a
//! later verification needs no registry. If they are not enough because a key has changed, the
//! registry is asked.

use std::sync::Arc;

use outrigger_core::{Digest, Failure, ModelKey};
use outrigger_oci::{
    Error as ImageError, Prefix, Reference,
    signature::{Policy, SignatureRule, Signatures, Unverified},
};

use crate::{
    config::Config,
    error::Error,
    metrics,
    names::parse,
    world::{World, blocking},
};

/// Reads the rules and their keys.
///
/// # Errors
/// If a prefix cannot be parsed or occurs twice, or a file holds no keys.
pub(crate) fn policy(config: &Config) -> Result<Policy, Error> {
    let mut rules = Vec::<SignatureRule>::new();
    for (i, signed) in config.images.signatures.iter().enumerate() {
        let key = format!("images.signatures[{i}].prefix");
        let prefix: Prefix = parse(&key, &signed.prefix)?;
        if rules.iter().any(|rule| rule.prefix == prefix) {
            return Err(Error::Config { key, message: format!("{prefix} is listed twice") });
        }
        rules.push(SignatureRule { prefix, keys: signed.keys.clone() });
    }
    Policy::new(rules).map_err(|error| Error::Config {
        key: format!("images.signatures[{}].keys[{}]", error.rule, error.key),
        message: error.to_string(),
    })
}

/// The source of the signatures by which a version was verified.
pub(crate) enum Verified {
    /// The version need not be signed.
    Free,
    /// The signatures stored with its files.
    Kept,
    /// The signatures found in the registry, to be stored with its files.
    Found(Signatures),
}

impl Verified {
    /// The outcome label for the metrics; `None` if nothing was verified.
    fn outcome(result: &Result<Self, Failure>) -> Option<&'static str> {
        match result {
            Ok(Self::Free) => None,
            Ok(Self::Kept) => Some("kept"),
            Ok(Self::Found(_)) => Some("found"),
            Err(failure) => Some(failure.reason.as_str()),
        }
    }
}

/// Verifies that `key` has the required signature.
///
/// # Errors
/// `SIGNATURE_MISSING`, `SIGNATURE_INVALID`, or the failure to ask the registry.
pub(crate) async fn verify(world: &Arc<World>, key: &ModelKey) -> Result<Verified, Failure> {
    let location = world.names.load().location(&key.name)?;
    let signed = location.image().filter(|image| world.signatures.rule(image).is_some());
    let Some(image) = signed.cloned() else { return Ok(Verified::Free) };
    let result = verify_image(world, image, key.digest).await;
    Verified::outcome(&result).into_iter().for_each(metrics::verified);
    result
}

async fn verify_image(
    world: &Arc<World>,
    image: Reference,
    digest: Digest,
) -> Result<Verified, Failure> {
    let kept = {
        let image = image.clone();
        blocking(world, move |world| world.kept_signatures(&image, digest)).await
    };
    if kept.is_some_and(|result| result.is_ok()) {
        return Ok(Verified::Kept);
    }
    let failed = |error: ImageError| {
        let failure = error.failure();
        failure.map_message(|why| format!("its signature cannot be looked for: {why}"))
    };
    let mut found = world.client.tagged_signatures(&image, digest).await.map_err(failed)?;
    if check(world, &image, digest, &found).await.is_err() {
        let attached = world.client.attached_signatures(&image, digest).await.map_err(failed)?;
        found.extend(attached);
        check(world, &image, digest, &found).await.map_err(|error| error.failure())?;
    }
    Ok(Verified::Found(found))
}

async fn check(
    world: &Arc<World>,
    image: &Reference,
    digest: Digest,
    signatures: &Signatures,
) -> Result<(), Unverified> {
    let (image, signatures) = (image.clone(), signatures.clone());
    blocking(world, move |world| world.verify(&image, digest, &signatures)).await
}

/// Stores the signatures from the registry with the files of `digest`.
pub(crate) async fn keep(world: &Arc<World>, digest: Digest, verified: Verified) {
    let Verified::Found(signatures) = verified else { return };
    let content = serde_json::to_vec(&signatures).expect("text only");
    blocking(world, move |world| {
        if let Err(error) = world.store.keep_signatures(&digest, &content) {
            // The next verification asks the registry again.
            tracing::warn!(model.digest = %digest, %error, "cannot keep an image's signatures");
        }
    })
    .await;
}

/// The versions among `keys` that must not be served any more, with the reasons.
pub(crate) async fn revoked(world: &Arc<World>, keys: Vec<ModelKey>) -> Vec<(ModelKey, Failure)> {
    let mut revoked = Vec::new();
    for key in keys {
        match verify(world, &key).await {
            Ok(verified) => keep(world, key.digest, verified).await,
            Err(failure) => revoked.push((key, failure)),
        }
    }
    revoked
}

impl World {
    /// Whether the signatures in the store are enough to serve `key`. Blocks.
    pub(crate) fn is_verified(&self, key: &ModelKey) -> bool {
        let Ok(location) = self.names.load().location(&key.name) else { return false };
        let signed = location.image().filter(|image| self.signatures.rule(image).is_some());
        signed.is_none_or(|image| {
            self.kept_signatures(image, key.digest).is_some_and(|result| result.is_ok())
        })
    }

    /// Verifies with the signatures stored with the files of `digest`, if there are any.
    fn kept_signatures(&self, image: &Reference, digest: Digest) -> Option<Result<(), Unverified>> {
        let content = self.store.tree(&digest)?.signatures_bytes()?;
        let kept = serde_json::from_slice(&content).ok()?;
        Some(self.verify(image, digest, &kept))
    }

    fn verify(
        &self,
        image: &Reference,
        digest: Digest,
        signatures: &Signatures,
    ) -> Result<(), Unverified> {
        match self.signatures.rule(image) {
            Some(rule) => rule.verify(digest, signatures).map(drop),
            None => Ok(()),
        }
    }
}
