//! Rollbacks and promotions as other control planes hear of them: documents that are attached to
//! the canary's image.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use outrigger_core::{Digest, Failure, ModelName, Tag};
use outrigger_oci::Artifact;
use serde::{Deserialize, Serialize};

use crate::{canaries::CanaryOutcome, metrics, world::World};

const ARTIFACT_TYPE: &str = "application/vnd.outrigger.canary-verdict.v1+json";
/// More than any verdict of ours has, bytes.
const MAX_VERDICT: u64 = 16 << 10;
/// What is kept of a text: others may write verdicts as well.
const MAX_TEXT: usize = 1000;

/// What was decided about a canary, for everybody who tries the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// The tag that was split.
    pub(crate) tag: Tag,
    /// What answered for it.
    pub(crate) live: Digest,
    /// The canary.
    pub(crate) canary: Digest,
    /// What was decided.
    pub(crate) outcome: CanaryOutcome,
    /// By whom.
    pub(crate) by: String,
    /// Why.
    pub(crate) reason: String,
}

impl Verdict {
    /// Whether it ends a trial of that canary. What was promoted once has been live,
    /// and is not tried against what came after it.
    fn ends(&self, tag: &Tag, live: Digest, canary: Digest) -> bool {
        let against = match self.outcome {
            CanaryOutcome::RolledBack => self.live == live,
            CanaryOutcome::Promoted => true,
            _ => false,
        };
        against && (&self.tag, self.canary) == (tag, canary)
    }
}

/// Attaches a verdict to the canary's image, unless there is one.
pub(crate) async fn publish(world: &Arc<World>, model: &ModelName, verdict: &Verdict) {
    let Verdict { tag, live, canary, .. } = verdict;
    let result = match find(world, model, tag, *live, *canary).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => attach(world, model, verdict).await,
        Err(failure) => Err(failure),
    };
    metrics::verdict_published(&result);
    if let Err(failure) = result {
        tracing::warn!(
            model.name = %model, model.tag = %tag, model.digest = %canary,
            reason = %failure.reason, error = %failure.message,
            "other control planes cannot be told of the decision"
        );
    }
}

async fn attach(world: &Arc<World>, model: &ModelName, verdict: &Verdict) -> Result<(), Failure> {
    let image = world.names.image(model)?;
    let mut shortened = verdict.clone();
    shortened.by = printable(&verdict.by);
    shortened.reason = printable(&verdict.reason);
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let artifact = Artifact {
        artifact_type: ARTIFACT_TYPE,
        document: serde_json::to_vec(&shortened).expect("text only").into(),
        annotations: BTreeMap::from([("org.opencontainers.image.created".to_owned(), now)]),
    };
    let attached = world.client.attach(&image, verdict.canary, &artifact).await;
    attached.map(drop).map_err(|error| error.failure())
}

/// A verdict by which the trial of `canary` against `live` ends. What is attached
/// and is no such verdict is ignored.
pub(crate) async fn look(
    world: &Arc<World>,
    model: &ModelName,
    tag: &Tag,
    live: Digest,
    canary: Digest,
) -> Option<Verdict> {
    let result = find(world, model, tag, live, canary).await;
    metrics::verdict_looked_for(&result);
    result.unwrap_or_else(|failure| {
        tracing::debug!(
            model.name = %model, model.tag = %tag, model.digest = %canary,
            reason = %failure.reason, error = %failure.message,
            "cannot look for decisions of other control planes"
        );
        None
    })
}

async fn find(
    world: &Arc<World>,
    model: &ModelName,
    tag: &Tag,
    live: Digest,
    canary: Digest,
) -> Result<Option<Verdict>, Failure> {
    let image = world.names.image(model)?;
    let attached = world.client.attached(&image, canary, ARTIFACT_TYPE, MAX_VERDICT).await;
    let documents = attached.map_err(|error| error.failure())?.documents;
    let verdicts = documents.iter().filter_map(|it| serde_json::from_slice::<Verdict>(it).ok());
    let found = verdicts.into_iter().find(|verdict| verdict.ends(tag, live, canary));
    Ok(found.map(|verdict| Verdict {
        by: printable(&verdict.by),
        reason: printable(&verdict.reason),
        ..verdict
    }))
}

/// A text that anybody may have written, for logs and pages.
fn printable(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).take(MAX_TEXT).collect()
}
