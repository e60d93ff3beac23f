//! The job that checks whether a canary's tag is gone from the registry.

use outrigger_core::{Digest, Failure, Reason, machines::TagKey};

use super::Registry;

/// The digest that the live tag names, once it is certain that the registry does not have
/// the tag `canary` any more; `None` if the live tag names none.
///
/// The live tag is looked up last: a promotion by hand moves it first and then removes the
/// canary's tag, and must not be taken for an abandoned canary.
///
/// # Errors
/// If the removal is not certain.
pub(crate) async fn look(
    registry: &dyn Registry,
    canary: &TagKey,
    live: &TagKey,
) -> Result<Option<Digest>, Failure> {
    if !registry.is_missing(canary).await? {
        return Err(unsure(canary));
    }
    match registry.resolve(live).await {
        Ok(digest) => Ok(Some(digest)),
        Err(failure) if is_not_found(failure.reason) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// True if a look-up that failed with this reason may mean that the tag does not exist.
pub(crate) fn is_not_found(reason: Reason) -> bool {
    matches!(reason, Reason::TagNotFound | Reason::ModelNotFound)
}

fn unsure(canary: &TagKey) -> Failure {
    let message = format!("whether there is a tag {:?} is not certain", canary.tag.as_str());
    Failure::new(Reason::RegistryUnavailable, message)
}
