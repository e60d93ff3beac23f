//! Rollbacks and promotions that control planes share, as documents attached to the canary's image.

use std::{collections::BTreeMap, time::SystemTime};

use outrigger_core::{Digest, Failure, ModelKey, ModelName, Tag, machines::TagKey};
use outrigger_oci::Artifact;
use serde::{Deserialize, Serialize};

use super::Registry;
use crate::{metrics, pair::Pair, views::CanaryOutcome};

const ARTIFACT_TYPE: &str = "application/vnd.outrigger.canary-verdict.v1+json";
/// The largest verdict that is read, in bytes; Outrigger writes smaller ones.
const MAX_VERDICT: u64 = 16 << 10;
/// The number of characters kept of a text: other programs may write verdicts as well.
const MAX_TEXT: usize = 1000;

/// The decision about a canary, for every control plane that tries the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// The tag that was split.
    pub(crate) tag: Tag,
    /// The version that answered for it.
    pub(crate) live: Digest,
    /// The canary.
    pub(crate) canary: Digest,
    /// The decision.
    pub(crate) outcome: CanaryOutcome,
    /// The judge, or the person who decided.
    pub(crate) by: String,
    /// The reason.
    pub(crate) reason: String,
}

impl Verdict {
    /// True if the verdict ends a trial of that pair. A promoted canary has been live, so it is not
    /// tried against a later version.
    fn ends(&self, tag: &Tag, Pair { live, canary }: Pair) -> bool {
        let against = match self.outcome {
            CanaryOutcome::RolledBack => self.live == live,
            CanaryOutcome::Promoted => true,
            _ => false,
        };
        against && (&self.tag, self.canary) == (tag, canary)
    }
}

/// Attaches a verdict to the canary's image, unless there is one.
pub(crate) async fn publish(registry: &dyn Registry, model: &ModelName, verdict: &Verdict) {
    let Verdict { tag, live, canary, .. } = verdict;
    let key = TagKey { name: model.clone(), tag: tag.clone() };
    let result = match find(registry, &key, Pair { live: *live, canary: *canary }).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => attach(registry, model, verdict).await,
        Err(failure) => Err(failure),
    };
    metrics::verdict_published(&result);
    if let Err(failure) = result {
        tracing::warn!(
            model.name = %model, model.tag = %tag, model.digest = %canary,
            reason = %failure.reason, error = %failure.message,
            "the decision cannot be sent to other control planes"
        );
    }
}

async fn attach(
    registry: &dyn Registry,
    model: &ModelName,
    verdict: &Verdict,
) -> Result<(), Failure> {
    let mut shortened = verdict.clone();
    shortened.by = printable(&verdict.by);
    shortened.reason = printable(&verdict.reason);
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let artifact = Artifact {
        artifact_type: ARTIFACT_TYPE,
        document: serde_json::to_vec(&shortened).expect("text only").into(),
        annotations: BTreeMap::from([("org.opencontainers.image.created".to_owned(), now)]),
    };
    let version = ModelKey { name: model.clone(), digest: verdict.canary };
    registry.attach(&version, &artifact).await
}

/// Finds a verdict that ends the trial of that pair. Other attachments are ignored.
pub(crate) async fn look(registry: &dyn Registry, key: &TagKey, pair: Pair) -> Option<Verdict> {
    let result = find(registry, key, pair).await;
    metrics::verdict_looked_for(&result);
    result.unwrap_or_else(|failure| {
        tracing::debug!(
            model.name = %key.name, model.tag = %key.tag, model.digest = %pair.canary,
            reason = %failure.reason, error = %failure.message,
            "cannot look for decisions of other control planes"
        );
        None
    })
}

async fn find(
    registry: &dyn Registry,
    key: &TagKey,
    pair: Pair,
) -> Result<Option<Verdict>, Failure> {
    let version = ModelKey { name: key.name.clone(), digest: pair.canary };
    let documents = registry.attached(&version, ARTIFACT_TYPE, MAX_VERDICT).await?;
    let verdicts = documents.iter().filter_map(|it| serde_json::from_slice::<Verdict>(it).ok());
    let found = verdicts.into_iter().find(|verdict| verdict.ends(&key.tag, pair));
    Ok(found.map(|verdict| Verdict {
        by: printable(&verdict.by),
        reason: printable(&verdict.reason),
        ..verdict
    }))
}

/// Sanitises a text from any author, for logs and pages.
fn printable(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).take(MAX_TEXT).collect()
}
