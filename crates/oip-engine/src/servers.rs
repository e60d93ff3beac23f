//! Calls about the models of versions, at all servers.

use std::sync::Arc;

use futures::future::join_all;
use outrigger_core::{Failure, Reason, ServableId};
use outrigger_oip_client::{self as client, Class};
use tokio::time::Instant;

use crate::{Engine, framework::Remote};

/// Has the models of a version loaded, if that is allowed, and checks that a server has the one that
/// is run.
pub(crate) async fn load(engine: &Engine, id: &ServableId) -> Result<(), Failure> {
    let unpublished = || Failure::new(Reason::Internal, "the version was not published");
    let version = engine.versions.get(id).ok_or_else(unpublished)?;
    let remote = &version.remote;
    if engine.settings.load {
        for model in &version.models {
            load_one(engine, model).await.map_err(|failure| not_loaded(&failure))?;
        }
    }
    match is_ready(engine, remote).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let message = format!("no server has the model {:?} ready", remote.model);
            Err(Failure::new(Reason::EngineUnavailable, message))
        }
        Err(failure) => Err(unavailable(&failure)),
    }
}

/// Has a model loaded at every server.
async fn load_one(engine: &Engine, model: &str) -> Result<(), client::Failure> {
    let deadline = Instant::now() + engine.settings.load_timeout;
    let hosts = 0..engine.client.addresses().count();
    let loads = hosts.map(|host| engine.client.load(host, model, deadline));
    join_all(loads).await.into_iter().collect()
}

/// A failure that may pass: the model may appear on the servers.
fn unavailable(failure: &client::Failure) -> Failure {
    Failure::new(Reason::EngineUnavailable, failure.to_string())
}

/// The failure of a load. A server that answers has refused the model itself.
fn not_loaded(failure: &client::Failure) -> Failure {
    let answered = matches!(failure.class, Class::Refused | Class::Ambiguous);
    match answered && !failure.is_not_served() {
        true => Failure::new(Reason::EngineFailed, failure.to_string()),
        false => unavailable(failure),
    }
}

/// Has models unloaded at every server, in the opposite order of their load.
pub(crate) async fn unload(engine: &Engine, models: &[Arc<str>]) {
    let deadline = Instant::now() + engine.settings.load_timeout;
    for model in models.iter().rev() {
        let hosts = 0..engine.client.addresses().count();
        let unloads = hosts.map(|host| engine.client.unload(host, model, deadline));
        let failures = join_all(unloads).await.into_iter().filter_map(Result::err);
        for failure in failures.filter(|failure| !failure.is_not_served()) {
            // The model takes the server's memory, and no request.
            tracing::warn!(%model, %failure, "a model was not unloaded");
        }
    }
}

/// True if a server has the model ready; the failure if no server answers.
async fn is_ready(engine: &Engine, remote: &Remote) -> Result<bool, client::Failure> {
    let deadline = Instant::now() + engine.settings.timeout;
    let hosts = 0..engine.client.addresses().count();
    let answers = hosts.map(|host| engine.client.is_ready(host, remote.reference(), deadline));
    any(join_all(answers).await)
}

/// True if an answer is true; the failure if there are only failures.
fn any(answers: Vec<Result<bool, client::Failure>>) -> Result<bool, client::Failure> {
    let (mut answered, mut last) = (false, None);
    for answer in answers {
        match answer {
            Ok(true) => return Ok(true),
            Ok(false) => answered = true,
            Err(failure) => last = Some(failure),
        }
    }
    match last {
        Some(failure) if !answered => Err(failure),
        _ => Ok(false),
    }
}

/// The versions whose models no server has; the failure if no server answers.
pub(crate) async fn check(
    engine: &Engine,
    up: Vec<(ServableId, Remote)>,
) -> Result<Vec<ServableId>, Failure> {
    let deadline = Instant::now() + engine.settings.timeout;
    let hosts = 0..engine.client.addresses().count();
    let live = hosts.map(|host| engine.client.is_live(host, deadline));
    let live = any(join_all(live).await).map_err(|failure| unavailable(&failure))?;
    if !live {
        return Err(Failure::new(Reason::EngineUnavailable, "no server reports to be live"));
    }
    let mut missing = Vec::new();
    for (id, remote) in up {
        if !is_ready(engine, &remote).await.map_err(|failure| unavailable(&failure))? {
            missing.push(id);
        }
    }
    Ok(missing)
}
