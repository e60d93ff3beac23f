//! Runs every check that a server runs before it routes requests to a model, and scores the rows of
//! a file: `outrigger validate`.

mod server;

use std::{fmt::Write as _, sync::Arc, time::Duration};

use outrigger_core::{Digest, Failure, Reason, printable};
use outrigger_features::Plan;
use outrigger_lifecycle::{Gate, Golden, ModelFiles, training_profile};
use outrigger_oci::{Client, Progress};
use outrigger_run::{Framework, remarks};
use outrigger_store::Tree;
use outrigger_validation::{Features, Files, Loaded, Options, Predictor};
use serde::Serialize;

use crate::{
    Error,
    engine::Program,
    fetch::{self, Fetched, Source, blocking},
    framework::framework,
    in_engine::{InEngine, only},
};

pub use server::validate_on_server;

/// The outcomes of the checks in order; a failed check is the last one.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The image's digest, once it is known.
    pub digest: Option<Digest>,
    /// The checks.
    pub checks: Vec<Check>,
    /// The result for the rows of a file, if there is a file and no check failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<outrigger_validation::Report>,
}

/// A file whose rows are to be scored.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// The file, and that for the scores.
    pub files: &'a Files,
    /// The settings.
    pub options: &'a Options,
    /// Shows how far the run is.
    pub progress: &'a outrigger_validation::Progress,
}

impl Rows<'_> {
    /// Scores the rows with a predictor.
    pub(crate) async fn score(
        &self,
        predictor: &impl Predictor,
        features: Features,
    ) -> Result<outrigger_validation::Report, Error> {
        let Self { files, options, progress } = self;
        Ok(outrigger_validation::run(files, (predictor, features), options, progress).await?)
    }
}

/// One check.
#[derive(Debug, Serialize)]
pub struct Check {
    /// The check's name.
    pub name: &'static str,
    /// The check's outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The outcome of a check.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The check passed.
    Passed {
        /// The observed facts.
        detail: String,
    },
    /// The server would refuse the model.
    Failed {
        /// The stable reason.
        reason: Reason,
        /// The cause.
        message: String,
    },
    /// The check was not run.
    Skipped {
        /// The reason.
        detail: String,
    },
}

/// Checks the package `source`, whose framework is one of `frameworks`. `engine` scores the
/// golden cases, or a request made from metadata.json where there are none, and then `rows`;
/// without an engine these checks are skipped.
/// Errors are those of the checker itself; the model's are in the report.
pub async fn validate(
    client: &Client,
    source: &Source,
    (engine, frameworks): (Option<&Program>, &[Framework]),
    rows: Option<Rows<'_>>,
    timeout: Duration,
    progress: &Progress,
) -> Result<Report, Error> {
    let mut report = Report::default();
    let checked = check(client, source, (engine, frameworks), timeout, progress, &mut report);
    let loaded = match checked.await {
        Ok(loaded) => loaded,
        Err(Error::Failed(_)) => return Ok(report),
        Err(error) => return Err(error),
    };
    if let (Some(rows), Some(loaded), Some(digest)) = (rows, loaded, report.digest) {
        let features = Features::of(loaded.scorer.plan.metadata());
        let predictor = Loaded::new(&loaded.scorer, &digest, timeout);
        report.rows = Some(rows.score(&predictor, features).await?);
    }
    Ok(report)
}

async fn check(
    client: &Client,
    source: &Source,
    (engine, frameworks): (Option<&Program>, &[Framework]),
    timeout: Duration,
    progress: &Progress,
    report: &mut Report,
) -> Result<Option<InEngine>, Error> {
    let fetched = fetch::fetch(client, source, frameworks, progress).await;
    let fetched = report.record("package", fetched, |fetched| {
        format!("{} layers, {} on disk", fetched.image.layers.len(), fetched.tree.size())
    })?;
    report.digest = Some(fetched.image.digest);
    let tree = fetched.tree.clone();
    let known = frameworks.to_vec();
    let plan = blocking(move || plan(&tree, &known)).await;
    let plan = report.record("metadata and signature", plan, |plan| {
        let metadata = plan.metadata();
        format!("{} inputs, {} outputs", metadata.inputs.len(), metadata.outputs.len())
    })?;
    let profile = training_profile(&fetched.tree, &plan).map_err(Error::from);
    report.record("profile", profile, |profile| match profile {
        None => "none in the package".to_owned(),
        Some(profile) => format!("{} features", profile.features()),
    })?;
    let golden = Golden::check(&fetched.tree, &plan).map_err(Error::from);
    let golden = report.record("golden cases", golden, |golden| match golden.count() {
        0 => "none in the package".to_owned(),
        cases => format!("{cases} cases"),
    })?;
    for remark in remarks(frameworks, &fetched.tree.data_dir()) {
        report.pass("files", remark);
    }
    let Some(program) = engine else {
        report.skip("scores", "no engine was requested");
        return Ok(None);
    };
    let scored = scores(program, fetched, &plan, &golden, timeout).await;
    let loaded = report.record("scores", scored, |_| match golden.count() {
        0 => "a request generated from metadata.json was answered".to_owned(),
        cases => format!("{cases} golden cases score as expected"),
    });
    let loaded = loaded?;
    if let Some(remark) = loaded.remark() {
        report.pass("files", remark);
    }
    Ok(Some(loaded))
}

/// The plan of a package, checked against the model's own interface. Blocks.
pub(crate) fn plan(tree: &Tree, frameworks: &[Framework]) -> Result<Arc<Plan>, Failure> {
    ModelFiles::read(tree, |name| framework(frameworks, name))?.plan()
}

/// Loads the model in an engine and runs the server's gate on it.
async fn scores(
    program: &Program,
    fetched: Fetched,
    plan: &Arc<Plan>,
    golden: &Golden,
    timeout: Duration,
) -> Result<InEngine, Error> {
    let model = (&only(), Arc::new(fetched));
    let mut loaded = InEngine::load(program, model, plan, timeout).await?;
    loaded.scorer.batches |= program.for_batching;
    let gate = Gate { engine: loaded.engine(), scorer: &loaded.scorer, timeout, packages: None };
    for _ in 0..program.passes {
        gate.pass(golden).await?;
    }
    Ok(loaded)
}

impl Report {
    /// True if no check failed, every row was scored, and the scores agree with the expected ones.
    pub fn passed(&self) -> bool {
        let failed = |check: &Check| matches!(check.outcome, Outcome::Failed { .. });
        !self.checks.iter().any(failed) && self.rows.as_ref().is_none_or(|rows| rows.passed())
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Check { name, outcome } in &self.checks {
            let (verdict, detail) = match outcome {
                Outcome::Passed { detail } => ("ok", detail.clone()),
                Outcome::Skipped { detail } => ("skipped", detail.clone()),
                Outcome::Failed { reason, message } => ("FAILED", format!("{reason}: {message}")),
            };
            let detail = printable(detail);
            writeln!(text, "{verdict:8} {name}: {detail}").expect("writing to a string");
        }
        if let Some(rows) = &self.rows {
            write!(text, "{rows}").expect("writing to a string");
        }
        text
    }

    fn record<T>(
        &mut self,
        name: &'static str,
        result: Result<T, Error>,
        detail: impl FnOnce(&T) -> String,
    ) -> Result<T, Error> {
        let outcome = match &result {
            Ok(done) => Outcome::Passed { detail: detail(done) },
            Err(Error::Failed(failure)) => {
                Outcome::Failed { reason: failure.reason, message: failure.message.clone() }
            }
            Err(_) => return result,
        };
        self.checks.push(Check { name, outcome });
        result
    }

    fn pass(&mut self, name: &'static str, detail: String) {
        self.checks.push(Check { name, outcome: Outcome::Passed { detail } });
    }

    fn skip(&mut self, name: &'static str, reason: &str) {
        self.checks.push(Check { name, outcome: Outcome::Skipped { detail: reason.to_owned() } });
    }
}
