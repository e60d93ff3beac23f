//! A canary is made live in the registry.

use std::sync::{Arc, OnceLock};

use outrigger_core::{Digest, Failure, ModelKey, Reason, fleet::TagKey};

use crate::world::World;

/// What the registry's tag is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// The canary.
    Promoted,
    /// Neither what was live in the trial nor the canary: it is left alone.
    Elsewhere(Digest),
    /// What was live: the push has failed.
    Failed(Failure),
    /// What was live: nothing was pushed, since somebody did not want it any more.
    Cancelled,
}

/// The push of a tag, which can be cancelled until it begins.
#[derive(Debug, Default)]
pub(crate) struct Push(OnceLock<Fate>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Begun,
    Cancelled,
}

impl Push {
    /// Whether the push may begin, which it does then.
    fn begin(&self) -> bool {
        *self.0.get_or_init(|| Fate::Begun) == Fate::Begun
    }

    /// Whether it has not begun, which it never does then.
    pub(crate) fn cancel(&self) -> bool {
        *self.0.get_or_init(|| Fate::Cancelled) == Fate::Cancelled
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.get() == Some(&Fate::Begun)
    }
}

/// Moves the tag `key` to `canary` if it still is `live`, and nobody has cancelled
/// `push`.
///
/// # Errors
/// The registry's, where it does not say what the tag is.
pub(crate) async fn promote(
    world: &Arc<World>,
    key: &TagKey,
    (live, canary): (Digest, Digest),
    push: &Push,
) -> Result<Told, Failure> {
    let version = world.names.version(&ModelKey { name: key.name.clone(), digest: canary })?;
    let moved = world.client.move_tag(&version, &key.tag, live, || push.begin()).await;
    let (named, failure) = match moved {
        Ok(named) => (named, None),
        // What the registry has not confirmed it may have done.
        Err(error) if push.has_begun() => {
            let tagged = version.with_tag(key.tag.clone());
            let named = world.client.resolve(&tagged).await.map_err(|error| error.failure())?;
            (named, Some(error.failure()))
        }
        Err(error) => return Err(error.failure()),
    };
    let unchanged = || {
        let message = "the tag was pushed, and still names what was live";
        failure.unwrap_or_else(|| Failure::new(Reason::RegistryUnavailable, message))
    };
    Ok(match named {
        _ if named == canary => Told::Promoted,
        _ if named != live => Told::Elsewhere(named),
        _ if push.has_begun() => Told::Failed(unchanged()),
        _ => Told::Cancelled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_has_begun_or_is_cancelled_and_stays_so() {
        let (begun, cancelled) = (Push::default(), Push::default());
        assert!(begun.begin() && begun.begin() && !begun.cancel());
        assert!(begun.has_begun());
        assert!(cancelled.cancel() && cancelled.cancel() && !cancelled.begin());
        assert!(!cancelled.has_begun());
    }
}
