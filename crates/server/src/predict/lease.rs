//! The version that a request selects: found, loaded if need be, and entered when it is the request's
//! turn.

use std::time::Duration;

use outrigger_core::{Failure, ModelName, Selector};
use outrigger_features::Routing;
use outrigger_lifecycle::Lease;
use outrigger_proto::outrigger::v1::ModelSelector;
use tokio::time::Instant;

use super::Predictor;
use crate::{call::Call, failure, metrics::Stage, routing, unknown_names::Name};

impl Predictor {
    /// Loads a version, even if its failure counted as permanent, and waits for it until `deadline`.
    ///
    /// # Errors
    /// The failure of the version; `SHUTTING_DOWN`.
    pub(crate) async fn load(
        &self,
        selector: Option<&ModelSelector>,
        deadline: Instant,
    ) -> Result<Lease, Failure> {
        if self.closing.is_cancelled() {
            return Err(failure::stopping());
        }
        let (name, selector) = routing::target(selector, &self.models)?;
        self.models.load(&name, &selector, deadline).await
    }

    /// Leases the version that a request selects, and waits until it is available, and for the
    /// request's turn if it is crowded. `named` is the model's name as given beside the request.
    ///
    /// # Errors
    /// The request names no model that can be served, or the version is crowded: then `OVERLOADED`.
    pub(crate) async fn lease(
        &self,
        call: &Call,
        routing: Routing<'_>,
        named: Option<&[u8]>,
    ) -> Result<Lease, Failure> {
        let (lease, took) = self.find(call, routing, named).await?;
        let entered = self.enter(call, &lease).await;
        if entered.is_err() {
            lease.refused(call.started().elapsed());
        }
        entered?;
        call.queued(took);
        Ok(lease)
    }

    /// Enters the version of `lease`, after a wait for the request's turn if it is crowded.
    pub(super) async fn enter(&self, call: &Call, lease: &Lease) -> Result<(), Failure> {
        lease.load.allow(self.limits.per_model.most(&lease.key.name));
        if lease.is_capped() {
            call.enters_at_once(&lease.load);
            return Ok(());
        }
        if call.is_low() {
            return self.limits.give_way_at(call, &lease.load).await;
        }
        call.caller().peer().habit().asked_for(&lease.load);
        match call.has_entered(&lease.load) {
            true => Ok(()),
            false => self.limits.enter_version(call, &lease.load, true).await,
        }
    }

    /// Like [`Self::lease`], for a request that the engine does not see.
    ///
    /// # Errors
    /// As [`Self::lease`], except for the load of the version.
    pub(crate) async fn inspect(
        &self,
        call: &Call,
        routing: Routing<'_>,
        named: Option<&[u8]>,
    ) -> Result<Lease, Failure> {
        let (lease, took) = self.find(call, routing, named).await?;
        call.queued(took);
        Ok(lease)
    }

    /// Leases the version that a request selects. Returns the time that this took, too.
    async fn find(
        &self,
        call: &Call,
        routing: Routing<'_>,
        named: Option<&[u8]>,
    ) -> Result<(Lease, Duration), Failure> {
        call.asked_as(routing.request_id);
        let (model, selector) = routing::target(routing.model, &self.models)?;
        routing::agree(named, &model)?;
        self.acquire(call, &model, &selector, routing.routing_key).await
    }

    async fn acquire(
        &self,
        call: &Call,
        model: &ModelName,
        selector: &Selector,
        routing_key: &str,
    ) -> Result<(Lease, Duration), Failure> {
        let (span, start) = (call.stage(Stage::Queue), Instant::now());
        let lease = match self.models.try_acquire(model, selector, routing_key) {
            Some(found) => found,
            None if self.closing.is_cancelled() => Err(failure::stopping()),
            None => {
                let asking = self.models.is_unknown(model, selector);
                let names = &self.limits.unknown_names;
                let name = || (model.clone(), selector.clone());
                let party = call.caller().party();
                let models = self.models.by(self.limits.hash(&party));
                let is_awaited = |(model, selector): &Name| models.is_awaited(model, selector);
                let asking = asking.then(|| names.ask(party, name(), is_awaited)).transpose()?;
                let wait = models.acquire(model, selector, routing_key, call.deadline());
                let lease = call.held().aside_for_model(wait).await;
                asking.into_iter().for_each(|asking| asking.end(&lease));
                lease
            }
        };
        span.end(&lease);
        let mut lease = lease?;
        lease.attribute(|| call.caller().party().to_string());
        call.served_by(&lease);
        Ok((lease, start.elapsed()))
    }
}
