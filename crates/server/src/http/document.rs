//! Predictions as JSON documents, typed by the model's metadata.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_core::{Failure, Reason};
use outrigger_features::{Packed, Plan, Request, Routing, json};
use outrigger_proto::outrigger::v1::PredictResponse;
use outrigger_score::Scorer;
use serde_json::Value;
use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::{
    call::Call,
    held::Held,
    predict::{Exchange, Predictor, Scored},
    served::served,
};

/// Larger bodies are parsed on threads of their own: 64 KiB take about half a millisecond.
const SMALL: usize = 64 << 10;
/// The number of large bodies that are parsed at the same time.
const AT_ONCE: usize = 2;
/// The memory of a body while it is parsed, as a multiple of its length; a test in the crate
/// `features` holds it.
const PARSED: u64 = 16;
/// The memory of a score and its treatment's id as JSON.
const SCORE: usize = 512;
/// The memory of an answer besides its scores.
const ANSWER: usize = 8 << 10;

/// Parses bodies, the large ones beside the threads that serve.
#[derive(Debug, Clone)]
pub(super) struct Parsers(Arc<Semaphore>);

impl Parsers {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }

    /// Parses `body` with `parse`, which is charged to the call.
    async fn parse<T, F>(&self, held: &Arc<Held>, body: &Bytes, parse: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, Failure> + Send + 'static,
    {
        let memory = body.len() as u64 * PARSED;
        if body.len() <= SMALL {
            held.work(memory)?;
            return parse(body);
        }
        let permit = Arc::clone(&self.0).acquire_owned().await.expect("never closed");
        held.work(memory)?;
        let (held, body) = (Arc::clone(held), body.clone());
        // The thread holds the permit and the charge even if the caller goes away.
        let parsed = spawn_blocking(move || {
            let _held = (permit, held);
            parse(&body)
        });
        let lost = |_| Failure::new(Reason::Internal, "a body was not parsed to its end");
        parsed.await.map_err(lost)?
    }

    /// Encodes a body as a `PredictRequest` for a model.
    async fn encode(
        &self,
        held: &Arc<Held>,
        plan: &Arc<Plan>,
        body: &Bytes,
    ) -> Result<Bytes, Failure> {
        let for_plan = Arc::clone(plan);
        let encode = move |body: &[u8]| json::encode_request(&for_plan, body).map(Bytes::from);
        let encoded = self.parse(held, body, encode).await?;
        held.receive(body.len() + encoded.len(), None)?;
        Ok(encoded)
    }
}

/// Scores one user's treatments.
///
/// # Errors
/// The failure of the request, the model or the engine.
pub(super) async fn predict(
    predictor: &Predictor,
    parsers: &Parsers,
    call: &Call,
    body: Bytes,
) -> Result<Value, Failure> {
    let held = call.held();
    let json::Routing { model, request_id, routing_key } =
        &parsers.parse(held, &body, json::selector).await?;
    let routing = Routing { model: Some(model), request_id, routing_key };
    let lease = predictor.lease(call, routing, None).await?.sampled();
    let plan = Arc::clone(&lease.scorer.plan);
    let encoded = Some((parsers.encode(held, &plan, &body).await?, plan));
    predictor.exchange(call, lease, Document { call, body, encoded }).await
}

/// A request in JSON.
struct Document<'a> {
    call: &'a Call,
    body: Bytes,
    /// The request as an encoded `PredictRequest`, by the metadata of the model that it was last
    /// packed for.
    encoded: Option<(Bytes, Arc<Plan>)>,
}

impl Document<'_> {
    /// The request as it is encoded for `plan`. Only a request whose canary failed is encoded here:
    /// its live version may have other features.
    fn encoded(&mut self, plan: &Arc<Plan>) -> Result<&Bytes, Failure> {
        let encoded = match self.encoded.take() {
            Some((encoded, of)) if Arc::ptr_eq(&of, plan) => encoded,
            _ => json::encode_request(plan, &self.body).map(Bytes::from)?,
        };
        Ok(&self.encoded.insert((encoded, Arc::clone(plan))).0)
    }
}

impl Exchange for Document<'_> {
    type Answer = Value;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        let call = self.call;
        let encoded = self.encoded(&scorer.plan)?;
        scorer.plan.metered(call).pack_request(&Request::read(encoded, &scorer.limits())?)
    }

    fn request(&self) -> Option<&Bytes> {
        self.encoded.as_ref().map(|(encoded, _)| encoded)
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<Value, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        let scores: usize = packed.users.iter().map(|user| user.kept() * user.outputs.len()).sum();
        self.call.held().answer((ANSWER + scores * SCORE) as u64)?;
        let (model, degraded) = (Some(served(lease)), terms.degraded.clone());
        let response = lease.scorer.plan.response(packed, outputs)?;
        let response = PredictResponse { model, degraded, ..response };
        Ok(json::predict_response(&lease.scorer.plan, &response))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use outrigger_budget::Budget;

    use super::*;
    use crate::{admission::Admission, caller::Party, limits::Limit, metrics};

    fn held(budget: &Budget) -> Arc<Held> {
        let party = Party::Unknown(std::net::Ipv4Addr::LOCALHOST.into());
        let limit = Limit::new(0, "one caller", metrics::Limit::Caller);
        let share = limit.enter(|| party.clone()).unwrap();
        let place = Admission::new(1, 1).enter().unwrap();
        let counted = metrics::in_flight(crate::front::Method::Predict);
        Held::new((place, share), &party, budget, counted)
    }

    #[tokio::test]
    async fn large_bodies_are_parsed_beside_the_thread_that_serves() {
        let (budget, parsers) = (Budget::new(256 << 20), Parsers::new());
        let held = held(&budget);
        let here = thread::current().id();
        for (size, beside) in [(SMALL, false), (SMALL + 1, true)] {
            let body = Bytes::from(vec![b' '; size]);
            let account = budget.requests.clone();
            let parse = move |body: &[u8]| {
                assert_eq!(account.used(), body.len() as u64 * PARSED);
                Ok(thread::current().id())
            };
            let parsed_on = parsers.parse(&held, &body, parse).await.unwrap();
            assert_eq!(parsed_on != here, beside, "{size}");
        }
    }

    #[tokio::test]
    async fn a_body_without_room_to_be_parsed_is_refused() {
        let (budget, parsers) = (Budget::new(256 << 20), Parsers::new());
        let held = held(&budget);
        // 76.8 MiB of requests, half of it for one caller, and sixteen times this body.
        let body = Bytes::from(vec![b' '; 3 << 20]);
        let parsed = parsers.parse(&held, &body, |_| Ok(())).await;
        assert_eq!(parsed.unwrap_err().reason, Reason::TooLarge);
    }

    #[tokio::test]
    async fn few_large_bodies_are_parsed_at_the_same_time() {
        let (budget, parsers) = (Budget::new(1 << 30), Parsers::new());
        let body = Bytes::from(vec![b' '; SMALL + 1]);
        let (started, starts) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let parse = |held: Arc<Held>| {
            let (parsers, body) = (parsers.clone(), body.clone());
            let (started, gate) = (started.clone(), Arc::clone(&gate));
            tokio::spawn(async move {
                let parse = move |_: &[u8]| {
                    started.send(()).unwrap();
                    gate.lock().unwrap().recv().unwrap();
                    Ok(())
                };
                parsers.parse(&held, &body, parse).await
            })
        };
        let all: Vec<_> = (0..AT_ONCE + 1).map(|_| parse(held(&budget))).collect();
        let starts = spawn_blocking(move || {
            for _ in 0..AT_ONCE {
                starts.recv().unwrap();
            }
            starts
        });
        let starts = starts.await.unwrap();
        assert!(starts.try_recv().is_err(), "the last one waits");
        assert_eq!(parsers.0.available_permits(), 0);
        for _ in 0..AT_ONCE + 1 {
            go.send(()).unwrap();
        }
        for parsed in all {
            parsed.await.unwrap().unwrap();
        }
        assert_eq!(parsers.0.available_permits(), AT_ONCE);
    }
}
