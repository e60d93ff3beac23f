//! The version that a request names: a tag or a digest.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use outrigger_lifecycle::Lease;
use outrigger_proto::outrigger::v1::{ModelSelector, model_selector};

use crate::trial::Terms;

/// The digest of the version that answered.
const DIGEST: HeaderName = HeaderName::from_static("outrigger-digest");
/// The arm of the version that answered: `live`, `canary` or `pinned`.
const ARM: HeaderName = HeaderName::from_static("outrigger-arm");
/// The reason why live answered in place of the canary.
const DEGRADED: HeaderName = HeaderName::from_static("outrigger-degraded");

/// The model of a request, and the version that it names; empty for none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: &'a str,
}

impl Target<'_> {
    /// True if the request names a version, so that it takes no part in trials.
    pub(crate) fn has_version(&self) -> bool {
        !self.version.is_empty()
    }

    /// The model and its version in the form of `outrigger.v1`.
    pub(crate) fn selector(&self) -> ModelSelector {
        let version = match self.version {
            "" => None,
            // A tag has no colon.
            digest if digest.contains(':') => {
                Some(model_selector::Version::Digest(digest.to_owned()))
            }
            tag => Some(model_selector::Version::Tag(tag.to_owned())),
        };
        ModelSelector { name: self.model.to_owned(), version }
    }
}

/// The headers of an answer that name the version.
pub(crate) fn headers(lease: &Lease, terms: &Terms) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(3);
    headers.insert(ARM, HeaderValue::from_static(lease.arm().as_str()));
    let reason = terms.degraded.as_ref().map(|degraded| degraded.reason.as_str());
    let texts = [(DIGEST, Some(lease.key.digest.to_string())), (DEGRADED, reason.map(Into::into))];
    for (name, text) in texts {
        // Digests and reasons are ASCII.
        if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_tag_or_a_digest() {
        let of = |version| Target { model: "m", version }.selector().version;
        assert_eq!(of(""), None);
        assert_eq!(of("stable"), Some(model_selector::Version::Tag("stable".to_owned())));
        let digest = "sha256:00";
        assert_eq!(of(digest), Some(model_selector::Version::Digest(digest.to_owned())));
    }
}
