//! Every check a server makes before a model becomes routable: `outrigger validate`.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use outrigger_core::{Digest, Failure, ModelName, Reason, ServableId, ServableName, Version};
use outrigger_features::{GoldenCase, Plan};
use outrigger_lifecycle::{Gate, Profiled, read_model};
use outrigger_oci::{Client, Progress};
use outrigger_store::{Store, Tree};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    Error,
    engine::{Engine, Program},
    fetch::{self, Fetched, Source, blocking},
};

/// What came of the checks, in the order they were made. A failed check ends
/// them.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The image's digest, as soon as it is known.
    pub digest: Option<Digest>,
    /// The checks.
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a check.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be.
    Passed {
        /// What was seen.
        detail: String,
    },
    /// The server would refuse the model.
    Failed {
        /// The stable reason.
        reason: Reason,
        /// What is wrong.
        message: String,
    },
    /// Not made.
    Skipped {
        /// Why not.
        detail: String,
    },
}

/// Checks what `source` names. `engine` scores the golden cases, or a request
/// made from metadata.json where there are none; without one that is skipped.
/// Errors are those of the checker itself; the model's are in the report.
pub async fn validate(
    client: &Client,
    source: &Source,
    engine: Option<&Program>,
    timeout: Duration,
    progress: &Progress,
) -> Result<Report, Error> {
    let mut report = Report { digest: None, checks: Vec::new() };
    match check(client, source, engine, timeout, progress, &mut report).await {
        Ok(()) | Err(Error::Failed(_)) => Ok(report),
        Err(error) => Err(error),
    }
}

async fn check(
    client: &Client,
    source: &Source,
    engine: Option<&Program>,
    timeout: Duration,
    progress: &Progress,
    report: &mut Report,
) -> Result<(), Error> {
    let fetched = fetch::fetch(client, source, progress).await;
    let fetched = report.note("package", fetched, |fetched| {
        format!("{} layers, {} on disk", fetched.image.layers.len(), fetched.tree.size())
    })?;
    report.digest = Some(fetched.image.digest);
    let tree = fetched.tree.clone();
    let plan = blocking(move || plan(&tree)).await;
    let plan = report.note("metadata and signature", plan, |plan| {
        let metadata = plan.metadata();
        format!("{} inputs, {} outputs", metadata.inputs.len(), metadata.outputs.len())
    })?;
    let profile = profile(&plan, &fetched.tree).map_err(Error::from);
    report.note("profile", profile, |profile| match profile {
        None => "none in the package".to_owned(),
        Some(profile) => format!("{} features", profile.features()),
    })?;
    let golden = golden(&plan, &fetched.tree).map_err(Error::from);
    let golden = report.note("golden cases", golden, |golden| match golden.len() {
        0 => "none in the package".to_owned(),
        cases => format!("{cases} cases"),
    })?;
    let Some(program) = engine else {
        report.skip("scores", "no engine was asked for");
        return Ok(());
    };
    let scored = scores(program, &fetched, &plan, &golden, timeout).await;
    report.note("scores", scored, |()| match golden.len() {
        0 => "a request made from metadata.json was answered".to_owned(),
        cases => format!("{cases} golden cases score as expected"),
    })
}

fn plan(tree: &Tree) -> Result<Arc<Plan>, Failure> {
    let (metadata, interface) = read_model(tree)?;
    let plan = Plan::load(metadata, &interface);
    plan.map(Arc::new).map_err(|error| Failure::because(error.reason(), &error))
}

fn golden(plan: &Plan, tree: &Tree) -> Result<Vec<GoldenCase>, Failure> {
    let cases = tree.golden_bytes().map_err(of_store)?.unwrap_or_default();
    plan.golden_cases(&cases).map_err(|error| Failure::because(error.reason(), &error))
}

fn profile(plan: &Plan, tree: &Tree) -> Result<Option<Profiled>, Failure> {
    let profile = tree.profile_bytes().map_err(of_store)?;
    profile.map(|json| Profiled::read(&json, plan)).transpose()
}

fn of_store(error: outrigger_store::Error) -> Failure {
    Failure::because(error.reason(), &error)
}

/// Loads the model in an engine and passes it through the server's own gate.
async fn scores(
    program: &Program,
    fetched: &Fetched,
    plan: &Arc<Plan>,
    golden: &[GoldenCase],
    timeout: Duration,
) -> Result<(), Error> {
    let name: ModelName = "validated".parse().expect("a valid name");
    let id = ServableId { name: ServableName::of(&name), version: Version(1) };
    let (store, tree, published) = (fetched.store.clone(), fetched.tree.clone(), id.clone());
    blocking(move || publish(&store, &published, &tree)).await?;
    let mut engine = Engine::start(program, fetched.store.path())?;
    engine.load(&id, fetched.store.base_path(&id.name), Instant::now() + timeout).await?;
    let gate = Gate { backend: &engine.client, id: &id, plan, timeout };
    Ok(gate.pass(golden).await?)
}

fn publish(store: &Store, id: &ServableId, tree: &Tree) -> Result<(), Failure> {
    store.publish(id, tree).map_err(of_store)
}

impl Report {
    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed { .. }))
    }

    /// The report for people.
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

    fn note<T>(
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

    fn skip(&mut self, name: &'static str, why: &str) {
        self.checks.push(Check { name, outcome: Outcome::Skipped { detail: why.to_owned() } });
    }
}
