//! Models as command-line arguments: `churn`, `churn:latest_canary`, `churn@sha256:...`.

use std::str::FromStr;

use outrigger_core::{InvalidName, ModelName, Selector};
use outrigger_proto::outrigger::v1::{ModelSelector, model_selector};

/// A model's name with an optional version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelArgument {
    /// The name.
    pub name: ModelName,
    /// The tag or digest; `None` means the server's default tag.
    pub version: Option<Selector>,
}

/// The argument does not name a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; a model is written name, name:tag or name@sha256:digest")]
pub struct InvalidModel(#[from] InvalidName);

impl FromStr for ModelArgument {
    type Err = InvalidModel;

    fn from_str(text: &str) -> Result<Self, InvalidModel> {
        let (name, version) = if let Some((name, digest)) = text.split_once('@') {
            (name, Some(Selector::Digest(digest.parse()?)))
        } else if let Some((name, tag)) = text.split_once(':') {
            (name, Some(Selector::Tag(tag.parse()?)))
        } else {
            (text, None)
        };
        Ok(Self { name: name.parse()?, version })
    }
}

impl From<ModelArgument> for ModelSelector {
    fn from(model: ModelArgument) -> Self {
        let version = model.version.map(|version| match version {
            Selector::Tag(tag) => model_selector::Version::Tag(tag.to_string()),
            Selector::Digest(digest) => model_selector::Version::Digest(digest.to_string()),
        });
        Self { name: model.name.to_string(), version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_has_a_tag_a_digest_or_neither() {
        let parse = |text: &str| text.parse::<ModelArgument>();
        let digest = format!("sha256:{}", "ab".repeat(32));
        assert_eq!(parse("team/churn").map(|m| m.version), Ok(None));
        assert!(matches!(parse("churn:live").map(|m| m.version), Ok(Some(Selector::Tag(_)))));
        let pinned = parse(&format!("churn@{digest}")).map(|m| m.version);
        assert_eq!(pinned, Ok(Some(Selector::Digest(digest.parse().unwrap()))));
        for bad in ["", "Churn", "churn:", "churn@sha256:1", "churn:a:b"] {
            let message = parse(bad).expect_err(bad).to_string();
            assert!(message.contains("name:tag"), "{message}");
        }
    }
}
