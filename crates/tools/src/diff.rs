//! Compares two packages: `outrigger diff`.

mod both;
mod features;
mod interface;
mod scores;
mod text;

use std::{collections::HashSet, sync::Arc, time::Duration};

use outrigger_core::{Digest, Failure};
use outrigger_features::Plan;
use outrigger_lifecycle::ModelFiles;
use outrigger_oci::{Client, Layer, Progress};
use outrigger_run::Framework;
use outrigger_validation::Tolerance;
use serde::Serialize;

use crate::{
    Error,
    engine::Program,
    fetch::{self, Fetched, Source, blocking},
    framework::framework,
    inspect::{self, TensorReport},
    validate::Rows,
};

pub use features::{FeatureChange, FeatureChangeKind};
pub use scores::{ScoreFailure, Scores};
pub use text::Text;

/// The differences between two packages, A and B.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The first package.
    pub a: Summary,
    /// The second package.
    pub b: Summary,
    /// The blobs (packed layers) that both have: a registry stores them once, and a server pulls
    /// them once.
    pub shared_blobs: Blobs,
    /// The features that differ, in the order of metadata.json.
    pub features: Vec<FeatureChange>,
    /// The differences in the signature and in the use of its tensors.
    pub signature: Vec<Change>,
    /// The scores of the golden cases of both packages; `None` if they were not compared.
    pub golden: Option<Scores>,
    /// The scores of the rows of a file; `None` if they were not compared.
    pub rows: Option<Scores>,
    /// The reason why no scores were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores_skipped: Option<&'static str>,
}

/// The size of a package.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The image's digest.
    pub digest: Digest,
    /// Size of the packed layers in bytes.
    pub packed_bytes: u64,
    /// Size of the unpacked package in bytes.
    pub unpacked_bytes: u64,
}

/// A set of blobs.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Blobs {
    /// Their number.
    pub count: usize,
    /// Their size in bytes.
    pub bytes: u64,
}

/// A property that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The property.
    pub subject: String,
    /// Its value in A, if it has one.
    pub a: Option<String>,
    /// Its value in B, if it has one.
    pub b: Option<String>,
}

/// The result of a comparison as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No feature, no part of the signature and no score differs. Where no score was compared, the
    /// images are the same.
    Same,
    /// Something differs.
    Different,
    /// Nothing was found to differ, but some requests were scored by neither model.
    Incomplete,
}

/// The settings of the comparison of scores.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// The engine that scores; without one, files are compared only.
    pub engine: Option<&'a Program>,
    /// The frameworks of models.
    pub frameworks: &'a [Framework],
    /// The time limit for loading, and for each call.
    pub timeout: Duration,
    /// The difference up to which scores count as equal; those of A are the expected ones.
    pub tolerance: Tolerance,
    /// A file whose rows are scored. Scores that it expects are ignored.
    pub rows: Option<Rows<'a>>,
}

/// A package that has been read.
struct Package {
    fetched: Fetched,
    plan: Arc<Plan>,
    inputs: Vec<TensorReport>,
    outputs: Vec<TensorReport>,
}

/// Compares the packages of two sources.
///
/// # Errors
/// A package cannot be read, or an engine does not load its model.
pub async fn diff(
    client: &Client,
    [a, b]: [&Source; 2],
    settings: Settings<'_>,
    progress: &Progress,
) -> Result<Report, Error> {
    let a = Package::read(client, a, settings.frameworks, progress).await?;
    let b = Package::read(client, b, settings.frameworks, progress).await?;
    let mut report = Report {
        a: a.summary(),
        b: b.summary(),
        shared_blobs: shared(&a.fetched.image.layers, &b.fetched.image.layers),
        features: features::changes(a.plan.metadata(), b.plan.metadata()),
        signature: interface::changes(&a, &b),
        golden: None,
        rows: None,
        scores_skipped: None,
    };
    let deterministic = [&a, &b].iter().all(|package| package.plan.metadata().deterministic);
    match settings.engine {
        None => report.scores_skipped = Some("no engine was requested"),
        Some(_) if !deterministic => report.scores_skipped = Some("a model draws at random"),
        Some(program) => {
            let scored = both::compare(program, [a, b], settings).await?;
            (report.golden, report.rows) = (Some(scored.golden), scored.rows);
        }
    }
    Ok(report)
}

impl Package {
    async fn read(
        client: &Client,
        source: &Source,
        frameworks: &[Framework],
        progress: &Progress,
    ) -> Result<Self, Error> {
        let fetched = fetch::fetch(client, source, frameworks, progress).await?;
        let (tree, frameworks) = (fetched.tree.clone(), frameworks.to_vec());
        let read = move || -> Result<_, Failure> {
            let files = ModelFiles::read(&tree, |name| framework(&frameworks, name))?;
            let reports = |specs: &[_]| specs.iter().map(inspect::tensor).collect::<Vec<_>>();
            let inputs = reports(&files.interface.inputs);
            let outputs = reports(&files.interface.outputs);
            Ok((files.plan()?, inputs, outputs))
        };
        let (plan, inputs, outputs) = blocking(read).await?;
        Ok(Self { fetched, plan, inputs, outputs })
    }

    fn summary(&self) -> Summary {
        let Fetched { image, tree, .. } = &self.fetched;
        Summary {
            digest: image.digest,
            packed_bytes: image.packed_size(),
            unpacked_bytes: tree.size().as_u64(),
        }
    }
}

impl Report {
    /// The result as a whole.
    pub fn outcome(&self) -> Outcome {
        let scores = || [&self.golden, &self.rows].into_iter().flatten();
        let files_differ = !self.features.is_empty() || !self.signature.is_empty();
        if files_differ || scores().any(Scores::differ) {
            Outcome::Different
        } else if scores().any(|scores| scores.unscored > 0) {
            Outcome::Incomplete
        } else if scores().any(|scores| scores.agreement.compared > 0)
            || self.a.digest == self.b.digest
        {
            Outcome::Same
        } else {
            Outcome::Different
        }
    }
}

fn shared(a: &[Layer], b: &[Layer]) -> Blobs {
    let mut of_a: HashSet<_> = a.iter().map(|layer| layer.digest).collect();
    b.iter().filter(|layer| of_a.remove(&layer.digest)).fold(Blobs::default(), |blobs, layer| {
        Blobs { count: blobs.count + 1, bytes: blobs.bytes + layer.size }
    })
}
