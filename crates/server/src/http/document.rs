//! Predictions as JSON documents, typed by the model's metadata.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_core::{Failure, Reason};
use outrigger_features::{Arrived, Packed, json::Request};
use outrigger_lifecycle::Lease;
use outrigger_score::Scorer;
use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::{
    call::Call,
    held::Held,
    metrics::Stage,
    predict::{Exchange, Predictor, Scored, timed},
    served::served,
    trial::Attempts,
};

/// Larger bodies are parsed on threads of their own: 64 KiB take about half a millisecond.
const SMALL: usize = 64 << 10;
/// The number of large bodies that are parsed at the same time.
const AT_ONCE: usize = 2;
/// The memory of a body while it is read, as a multiple of its length; a test in the crate
/// `features` holds it.
const READ: u64 = 1;

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
        F: FnOnce(Bytes) -> Result<T, Failure> + Send + 'static,
    {
        let memory = body.len() as u64 * READ;
        if body.len() <= SMALL {
            held.work(memory)?;
            return parse(body.clone());
        }
        let permit = Arc::clone(&self.0).acquire_owned().await.expect("never closed");
        held.work(memory)?;
        let (held, body) = (Arc::clone(held), body.clone());
        // The thread holds the permit and the charge even if the caller goes away.
        let parsed = spawn_blocking(move || {
            let _held = (permit, held);
            parse(body)
        });
        let lost = |_| Failure::new(Reason::Internal, "a body was not parsed to its end");
        parsed.await.map_err(lost)?
    }

    /// Packs a request for the model of `lease`.
    async fn pack(&self, call: &Call, lease: &Lease, request: &Request) -> Result<Packed, Failure> {
        let (plan, limits) = (Arc::clone(&lease.scorer.plan), lease.scorer.limits());
        let (call, request) = (call.clone(), request.clone());
        let (held, body) = (Arc::clone(call.held()), request.body().clone());
        let pack = move |_| {
            timed(&call, Stage::Decode, || plan.metered(&call).pack_json(&request, &limits))
        };
        self.parse(&held, &body, pack).await
    }
}

/// Scores one user's treatments.
///
/// As in the gRPC form, a request that is not needed again is freed as soon as it is packed.
///
/// # Errors
/// The failure of the request, the model or the engine.
pub(super) async fn predict(
    predictor: &Predictor,
    parsers: &Parsers,
    call: &Call,
    body: Bytes,
) -> Result<Vec<u8>, Failure> {
    let held = call.held();
    let request = parsers.parse(held, &body, Request::read).await?;
    drop(body);
    let lease = match predictor.lease(call, request.routing(), None).await {
        Ok(lease) => lease.sampled(),
        Err(failure) => return Err(refused(parsers, held, request, failure).await),
    };
    let attempts = Attempts::new(call, lease);
    let packed = parsers.pack(call, attempts.lease(), &request).await;
    let document = |request| Document { call, request };
    if attempts.lease().needs_request() {
        return predictor.answer(call, attempts, packed, document(Some(request))).await;
    }
    drop(request);
    held.release_body();
    predictor.answer(call, attempts, packed, document(None)).await
}

/// The failure of a request that got no version. That its body is no JSON is found when it is packed,
/// and precedes any other failure but that of a crowded version, which must cost little.
async fn refused(
    parsers: &Parsers,
    held: &Arc<Held>,
    request: Request,
    failure: Failure,
) -> Failure {
    if failure.reason == Reason::Overloaded {
        return failure;
    }
    let body = request.body().clone();
    parsers.parse(held, &body, move |_| request.check()).await.err().unwrap_or(failure)
}

/// A request in JSON.
struct Document<'a> {
    call: &'a Call,
    /// `None` once it is packed and not needed again.
    request: Option<Request>,
}

impl Exchange for Document<'_> {
    type Answer = Vec<u8>;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        let gone = || Failure::new(Reason::Internal, "the request was freed before its answer");
        let request = self.request.as_ref().ok_or_else(gone)?;
        scorer.plan.metered(self.call).pack_json(request, &scorer.limits())
    }

    fn request(&self) -> Option<Arrived> {
        self.request.clone().map(Arrived::Json)
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<Vec<u8>, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        let answer = lease.scorer.plan.answer(packed, outputs, &[])?;
        let held = self.call.held();
        held.answer(answer.json_room() as u64)?;
        let written = answer.to_json(&served(lease), terms.degraded.as_ref());
        held.answer(written.capacity() as u64)?;
        Ok(written)
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
            let parse = move |body: Bytes| {
                assert_eq!(account.used(), body.len() as u64 * READ);
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
                let parse = move |_: Bytes| {
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
