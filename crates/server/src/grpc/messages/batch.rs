//! `BatchPredict`: many users in one message. If a canary has a share of the requests, users keep
//! their arms: the users of each arm are scored in one call of the engine.

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::join;
use outrigger_core::{Arm, Code, Failure, Reason};
use outrigger_features::{Arrived, Packed, Routing, requests, routing_key};
use outrigger_lifecycle::{Divided, Lease};
use outrigger_proto::{
    outrigger::v1::ResponseOptions,
    raw::{read::Reader, unary, write as wire},
};
use outrigger_score::Scorer;
use rand::seq::IteratorRandom as _;
use tokio::time::Instant;

use super::framed;
use crate::{
    call::Call,
    predict::{Exchange, Predictor, Scored},
    routing::{self, BatchRouting},
    served::encoded,
};

/// `BatchPredictResponse.responses`.
const RESPONSES: u32 = 1;
/// `BatchPredictResponse.request_id`.
const REQUEST_ID: u32 = 2;

/// Scores many users: an encoded `BatchPredictRequest` gives a framed `BatchPredictResponse`.
///
/// # Errors
/// As [`predict`](super::predict), naming the request at fault. Either all users are answered or
/// none.
pub(in crate::grpc) async fn batch(
    predictor: &Predictor,
    call: &Call,
    message: &Bytes,
    named: Option<&[u8]>,
) -> Result<Bytes, Failure> {
    // The requests are read before the wait for the model, so that a malformed one is refused at
    // once.
    let requests = requests(message, &predictor.limits())?;
    let BatchRouting { model, request_id, options } = routing::read(message)?;
    let options: ResponseOptions =
        options.as_ref().map(routing::read).transpose()?.unwrap_or_default();
    // One user stands for the batch in statistics. Always the first one would be a biased sample.
    let chosen = (0..requests.len()).choose(&mut rand::rng()).unwrap_or_default();
    let routing_key = requests.get(chosen).map(key).unwrap_or_default();
    let routing = Routing { model: model.as_ref(), request_id: &request_id, routing_key };
    let lease = predictor.lease(call, routing, named).await?.sampled();
    let (lease, divided) = lease.for_batch(chosen, || requests.iter().map(key).collect());
    let batch = Batch { requests: &requests, options: &options, id: &request_id, chosen };
    match divided {
        None => predictor.exchange(call, lease, batch.whole(call)).await,
        Some(divided) => batch.divided(predictor, call, lease, divided).await,
    }
}

/// The routing key of a user's request. If the request is malformed, packing reports that with the
/// other faults.
fn key<'a>(request: &&'a [u8]) -> &'a str {
    routing_key(request).unwrap_or_default()
}

/// A `BatchPredictRequest`.
#[derive(Clone, Copy)]
struct Batch<'a> {
    requests: &'a [&'a [u8]],
    options: &'a ResponseOptions,
    id: &'a str,
    /// The position of the user who stands for the batch.
    chosen: usize,
}

/// The users of a batch whom one version answers.
struct Users<'a> {
    call: &'a Call,
    batch: Batch<'a>,
    /// Their requests; `None` if they are all users of the batch.
    some: Option<Vec<&'a [u8]>>,
}

impl<'a> Batch<'a> {
    fn whole(self, call: &'a Call) -> Users<'a> {
        Users { call, batch: self, some: None }
    }

    /// Scores the users of both arms at the same time.
    async fn divided(
        self,
        predictor: &Predictor,
        call: &Call,
        lease: Lease,
        Divided { other, arms }: Divided,
    ) -> Result<Bytes, Failure> {
        let on = |call, arm| {
            let users = self.requests.iter().zip(&arms).filter(|(_, of)| **of == arm);
            Users { call, batch: self, some: Some(users.map(|(request, _)| *request).collect()) }
        };
        let (here, there) = (lease.arm(), other.arm());
        let live = if here == Arm::Live { lease.scorer.clone() } else { other.scorer.clone() };
        let other_call = &call.other(there);
        let main = predictor.exchange(call, lease, on(call, here));
        let others = async {
            let running = other.load.enter_at_once(Instant::now());
            let result = predictor.exchange(other_call, other, on(other_call, there)).await;
            if result.is_ok() {
                running.answered();
            }
            result
        };
        // An arm that has failed does not cut the other one off: that would count as its failure.
        let (main, others) = join(main, others).await;
        match (main, others) {
            (Ok(main), Ok(others)) => {
                let is_main = arms.iter().map(|arm| *arm == here);
                let joined = self.joined(call, [&main, &others], is_main)?;
                drop((main, others));
                call.held().keep_answer(joined.len());
                Ok(joined)
            }
            (Err(failure), _) | (_, Err(failure)) => Err(self.failure(call, &live, failure)),
        }
    }

    /// The failure of the batch, one of whose parts failed. Faults of the caller are reported for
    /// the whole batch, as the live version finds them.
    fn failure(self, call: &Call, live: &Scorer, failure: Failure) -> Failure {
        let is_callers = |failure: &Failure| failure.reason.code() == Code::InvalidArgument;
        if !is_callers(&failure) {
            return failure;
        }
        let whole = self.whole(call).pack(live);
        whole.err().filter(is_callers).unwrap_or(failure)
    }

    /// Joins the framed answers of both parts in the order of the batch. `is_main` is true for each
    /// user of the first part.
    fn joined(
        self,
        call: &Call,
        parts: [&Bytes; 2],
        is_main: impl Iterator<Item = bool>,
    ) -> Result<Bytes, Failure> {
        let messages = parts.map(|part| &part[unary::PREFIX..]);
        // Both parts have the id.
        let id = wire::filled_len(REQUEST_ID, self.id.len());
        let length = messages[0].len() + messages[1].len() - id;
        call.held().second_answer(unary::PREFIX + length)?;
        let mut joined = BytesMut::with_capacity(unary::PREFIX + length);
        joined.put_slice(&unary::prefix(length));
        let [mut main, mut others] = messages.map(Reader::new);
        for is_main in is_main {
            let response = next_response(if is_main { &mut main } else { &mut others })?;
            wire::put_bytes(RESPONSES, response, &mut joined);
        }
        wire::put_filled(REQUEST_ID, self.id, &mut joined);
        Ok(joined.freeze())
    }
}

/// The next response of an encoded `BatchPredictResponse`.
fn next_response<'a>(answer: &mut Reader<'a>) -> Result<&'a [u8], Failure> {
    let missing = || Failure::new(Reason::Internal, "a user of the batch has no response");
    match answer.key() {
        Ok((RESPONSES, wire_type)) => answer.bytes_field(wire_type).map_err(|_| missing()),
        _ => Err(missing()),
    }
}

impl Exchange for Users<'_> {
    type Answer = Bytes;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        let Self { call, batch, some } = self;
        let requests = some.as_deref().unwrap_or(batch.requests);
        scorer.plan.metered(*call).pack_batch(requests, batch.options, &scorer.limits())
    }

    fn request(&self) -> Option<Arrived> {
        let Batch { requests, options, chosen, .. } = self.batch;
        Some(Arrived::of_batch(requests.get(chosen)?, options))
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<Bytes, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        let (model, degraded) = (encoded(lease), terms.degraded());
        let answer = lease.scorer.plan.answer_batch(packed, outputs, &model, self.batch.id)?;
        framed(self.call, &answer.degraded(&degraded))
    }
}

#[cfg(test)]
mod tests {
    use outrigger_budget::Budget;
    use outrigger_proto::outrigger::v1::{BatchPredictResponse, PredictResponse};
    use outrigger_trace::Span;
    use prost::Message as _;

    use super::*;
    use crate::{front::Method, grpc::FRONT, held::Held};

    /// A call on `budget`.
    fn call(budget: &Budget) -> Call {
        let now = Instant::now();
        let call = Call::begin(&FRONT, Method::BatchPredict, now, now, Span::none());
        call.seat(Held::on(budget));
        call
    }

    fn framed_answer(users: &[&str], id: &str) -> Bytes {
        let response =
            |user: &&str| PredictResponse { request_id: (*user).into(), ..Default::default() };
        let responses = users.iter().map(response).collect();
        let answer = BatchPredictResponse { responses, request_id: id.into() };
        unary::framed(&answer.encode_to_vec())
    }

    #[test]
    fn answers_of_two_arms_are_joined_in_the_order_of_the_batch() {
        let budget = Budget::new(256 << 20);
        let call = call(&budget);
        for id in ["batch-1", ""] {
            let (options, requests) = (ResponseOptions::default(), [&b""[..]; 3]);
            let batch = Batch { requests: &requests, options: &options, id, chosen: 0 };
            let parts = [framed_answer(&["b", ""], id), framed_answer(&["a"], id)];
            let is_main = [false, true, true].into_iter();
            let joined = batch.joined(&call, [&parts[0], &parts[1]], is_main).expect("joined");
            assert_eq!(joined, framed_answer(&["a", "b", ""], id));
            let failure = batch.joined(&call, [&parts[0], &parts[1]], [false; 3].into_iter());
            assert_eq!(failure.expect_err("one is missing").reason, Reason::Internal);
        }
    }

    #[test]
    fn the_memory_of_both_arms_is_charged() {
        let budget = Budget::new(256 << 20);
        let call = call(&budget);
        let other = call.other(Arm::Canary);
        call.charge_work(100).unwrap();
        other.charge_work(10).unwrap();
        other.charge_answer(20).unwrap();
        call.charge_answer(200).unwrap();
        assert_eq!((budget.requests.used(), budget.answers.used()), (110, 220));
        call.charge_work(0).unwrap();
        assert_eq!(budget.requests.used(), 10);
        call.held().second_answer(5).unwrap();
        call.held().keep_answer(150);
        call.held().release_request();
        assert_eq!((budget.requests.used(), budget.answers.used()), (0, 150));
    }
}
