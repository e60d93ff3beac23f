//! Models and their versions as XGBoost Serving names them. Names may have capitals, which count for
//! lower case; versions are numbers and labels, which are tags here.

use outrigger_core::{Arm, Digest, Failure};
use outrigger_lifecycle::{Handle, Lease, ModelView};
use outrigger_proto::{
    outrigger::v1::{ModelSelector, model_selector::Version},
    tensorflow::serving::{ModelSpec, model_spec::VersionChoice},
};

use crate::routing::invalid;

/// The name of the model that a request calls `asked`.
pub(super) fn name(asked: &str) -> String {
    asked.to_ascii_lowercase()
}

/// The version that a specification selects: that of the tag `7` for the version 7, that of the tag
/// of the same name for a label, and else the model's default version.
///
/// # Errors
/// `REQUEST_MALFORMED`: the number is negative.
pub(super) fn selector(spec: &ModelSpec) -> Result<ModelSelector, Failure> {
    let tag = match &spec.version_choice {
        None => None,
        Some(VersionChoice::Version(number)) if *number < 0 => {
            return Err(invalid("model_spec.version", "must not be negative"));
        }
        Some(VersionChoice::Version(number)) => Some(number.to_string()),
        Some(VersionChoice::VersionLabel(label)) => Some(label.clone()),
    };
    Ok(ModelSelector { name: name(&spec.name), version: tag.map(Version::Tag) })
}

/// The specification of the version that answers, with the model's name as the request has it.
pub(super) fn answering(asked: &str, lease: &Lease, models: &Handle) -> ModelSpec {
    let of_tag = lease.tag().filter(|_| lease.arm() != Arm::Canary);
    let of_tag = of_tag.and_then(|tag| number(tag.as_str()));
    let listed = || {
        let snapshot = models.models();
        number_of(snapshot.models.get(&lease.key.name)?, &lease.key.digest)
    };
    let version_choice = of_tag.or_else(listed).map(VersionChoice::Version);
    ModelSpec { name: asked.to_owned(), version_choice, ..ModelSpec::default() }
}

/// The number of a version: the highest one among its tags.
pub(super) fn number_of(view: &ModelView, digest: &Digest) -> Option<i64> {
    let tags = view.tags.iter().filter(|(_, tag)| tag.serving.as_ref() == Some(digest));
    tags.filter_map(|(name, _)| number(name.as_str())).max()
}

/// The number that a tag is.
pub(super) fn number(tag: &str) -> Option<i64> {
    let is_plain = tag == "0" || tag.bytes().all(|b| b.is_ascii_digit()) && !tag.starts_with('0');
    tag.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use outrigger_lifecycle::TagView;

    use super::*;

    fn spec(version_choice: Option<VersionChoice>) -> ModelSpec {
        ModelSpec { name: "ads".into(), version_choice, ..ModelSpec::default() }
    }

    #[test]
    fn numbers_and_labels_are_tags() {
        let tag = |choice| selector(&spec(choice)).map(|selector| selector.version);
        let as_tag = |tag: &str| Ok(Some(Version::Tag(tag.to_owned())));
        assert_eq!(tag(None), Ok(None));
        assert_eq!(tag(Some(VersionChoice::Version(7))), as_tag("7"));
        assert_eq!(tag(Some(VersionChoice::VersionLabel("stable".into()))), as_tag("stable"));
        assert!(tag(Some(VersionChoice::Version(-1))).is_err());
    }

    #[test]
    fn a_version_has_the_highest_number_among_its_tags() {
        let [old, new] = [b"old", b"new"].map(|content| Digest::of(content));
        let tag = |name: &str, digest| {
            let view = TagView { serving: Some(digest), ..TagView::default() };
            (name.parse().unwrap(), view)
        };
        let tags = [tag("7", old), tag("12", old), tag("latest", new), tag("007", new)];
        let view = ModelView { tags: tags.into(), ..ModelView::default() };
        assert_eq!(number_of(&view, &old), Some(12));
        assert_eq!(number_of(&view, &new), None, "neither of its tags is a number");
    }
}
