//! Runs every check that a server runs before it routes requests to a model: `outrigger
//! validate`.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use outrigger_core::{Digest, Failure, ModelName, Reason, ServableId, ServableName, Version};
use outrigger_features::Plan;
use outrigger_lifecycle::{Gate, Golden, ModelFiles, training_profile};
use outrigger_oci::{Client, Progress};
use outrigger_run::Framework;
use outrigger_score::{Scorer, SharedLimits};
use outrigger_store::Tree;
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    Error,
    engine::{Program, Running},
    fetch::{self, Fetched, Source, blocking},
    framework::framework,
};

/// The outcomes of the checks in order; a failed check is the last one.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The image's digest, once it is known.
    pub digest: Option<Digest>,
    /// The checks.
    pub checks: Vec<Check>,
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
/// golden cases, or a request made from metadata.json where there are none; without an
/// engine that check is skipped.
/// Errors are those of the checker itself; the model's are in the report.
pub async fn validate(
    client: &Client,
    source: &Source,
    (engine, frameworks): (Option<&Program>, &[Framework]),
    timeout: Duration,
    progress: &Progress,
) -> Result<Report, Error> {
    let mut report = Report { digest: None, checks: Vec::new() };
    match check(client, source, (engine, frameworks), timeout, progress, &mut report).await {
        Ok(()) | Err(Error::Failed(_)) => Ok(report),
        Err(error) => Err(error),
    }
}

async fn check(
    client: &Client,
    source: &Source,
    (engine, frameworks): (Option<&Program>, &[Framework]),
    timeout: Duration,
    progress: &Progress,
    report: &mut Report,
) -> Result<(), Error> {
    let fetched = fetch::fetch(client, source, frameworks, progress).await;
    let fetched = report.record("package", fetched, |fetched| {
        format!("{} layers, {} on disk", fetched.image.layers.len(), fetched.tree.size())
    })?;
    report.digest = Some(fetched.image.digest);
    let tree = fetched.tree.clone();
    let frameworks = frameworks.to_vec();
    let plan = blocking(move || plan(&tree, &frameworks)).await;
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
    let Some(program) = engine else {
        report.skip("scores", "no engine was requested");
        return Ok(());
    };
    let scored = scores(program, &fetched, &plan, &golden, timeout).await;
    report.record("scores", scored, |()| match golden.count() {
        0 => "a request generated from metadata.json was answered".to_owned(),
        cases => format!("{cases} golden cases score as expected"),
    })
}

fn plan(tree: &Tree, frameworks: &[Framework]) -> Result<Arc<Plan>, Failure> {
    ModelFiles::read(tree, |name| framework(frameworks, name))?.plan()
}

/// Loads the model in an engine and runs the server's gate on it.
async fn scores(
    program: &Program,
    fetched: &Fetched,
    plan: &Arc<Plan>,
    golden: &Golden,
    timeout: Duration,
) -> Result<(), Error> {
    let name: ModelName = "validated".parse().expect("a valid name");
    let id = ServableId { name: ServableName::of(&name), version: Version(1) };
    let mut running = Running::start(program, &fetched.store)?;
    running.load(&id, &fetched.tree, Instant::now() + timeout).await?;
    let engine = running.engine();
    let scorer = &Scorer::bind(engine, id, Arc::clone(plan), SharedLimits::default());
    let gate = Gate { engine, scorer, timeout, packages: None };
    Ok(gate.pass(golden).await?)
}

impl Report {
    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed { .. }))
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
            writeln!(text, "{verdict:8} {name}: {detail}").expect("writing to a string");
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

    fn skip(&mut self, name: &'static str, reason: &str) {
        self.checks.push(Check { name, outcome: Outcome::Skipped { detail: reason.to_owned() } });
    }
}
