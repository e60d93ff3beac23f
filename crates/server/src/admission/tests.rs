use std::{collections::HashMap, future::pending, pin::pin, task::Poll};

use futures::poll;
use outrigger_budget::Budget;

use super::*;
use crate::limits::Limit as PerKey;

/// Memory for 64 MiB of requests, of which one caller may take half.
const MEMORY: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

struct Rig {
    admission: Admission,
    per_caller: PerKey<Party>,
    budget: Budget,
}

fn rig(places: u32, aside: u32) -> Rig {
    let (per_caller, budget) = (PerKey::new(0, "one caller", Limit::Caller), Budget::new(MEMORY));
    let account = budget.requests.clone();
    let admission = Admission::new((places, aside), per_caller.clone(), account);
    Rig { admission, per_caller, budget }
}

/// A new connection of the caller with this number.
fn peer(caller: u8) -> Peer {
    Peer::new(([10, 0, 0, caller], 1).into(), None)
}

impl Rig {
    fn enter(&self, peer: &Peer) -> Result<Seat, Waiting<Seat>> {
        self.admission.enter(&peer.party(), peer)
    }

    fn seat(&self, caller: u8) -> Seat {
        self.enter(&peer(caller)).expect("a place")
    }

    fn waits(&self, caller: u8) -> Waiting<Seat> {
        self.enter(&peer(caller)).expect_err("no place")
    }

    fn refusal(&self, caller: u8) -> String {
        let failure = self.admission.refusal(&peer(caller).party());
        assert_eq!(failure.reason, Reason::Overloaded);
        failure.message
    }
}

/// Waits for `model` aside.
async fn aside<T>(
    place: &Place,
    model: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    place.aside_for_model(model, || 0).await.map(|aside| aside.result)
}

/// The seat of a waiting prediction, if its turn has come.
async fn now(waiting: &mut Waiting<Seat>) -> Option<Seat> {
    match poll!(pin!(waiting.admitted())) {
        Poll::Ready(seat) => seat,
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn predictions_beyond_the_places_wait_and_callers_take_turns() {
    let rig = rig(1, 1);
    let mut seat = rig.seat(1);
    let mut waiting = [1, 1, 2, 1, 3].map(|caller| rig.waits(caller));
    assert!(rig.refusal(4).contains("in flight; this one waited"), "{}", rig.refusal(4));
    for next in [0, 2, 4, 1, 3] {
        drop(seat);
        seat = now(&mut waiting[next]).await.unwrap_or_else(|| panic!("the turn of {next}"));
    }
    drop(waiting);
    assert!(rig.admission.0.is_forgotten());
    drop(seat);
    assert_eq!((rig.admission.0.working.taken(), rig.budget.requests.used()), (0, 0));
}

#[tokio::test]
async fn one_that_goes_away_leaves_its_turn_to_the_next() {
    let rig = rig(1, 1);
    let seat = rig.seat(1);
    let (first, mut second, mut third) = (rig.waits(1), rig.waits(1), rig.waits(1));
    drop(first);
    drop(seat);
    // It has a place, and goes away before it looks.
    let before = now(&mut second).await.expect("its turn");
    drop(second);
    assert!(now(&mut third).await.is_none());
    drop(before);
    drop(now(&mut third).await.expect("its turn"));
    let seat = rig.seat(1);
    let admitted = rig.waits(1);
    drop(seat);
    drop(admitted);
    drop(rig.seat(1));
}

#[tokio::test]
async fn a_caller_at_its_limit_waits_for_its_own_places_and_no_other_does() {
    let rig = rig(9, 9);
    rig.per_caller.set(2, HashMap::new());
    let (first, _second) = (rig.seat(1), rig.seat(1));
    let mut third = rig.waits(1);
    assert!(rig.refusal(1).contains("one caller"), "{}", rig.refusal(1));
    let mut other = rig.waits(2);
    let other = now(&mut other).await.expect("it is passed over");
    drop(other);
    assert!(now(&mut third).await.is_none(), "a place of another caller is none of its own");
    drop(first);
    now(&mut third).await.expect("its own place");
}

#[tokio::test]
async fn a_call_that_waits_for_a_model_leaves_its_place_to_others() {
    let rig = rig(1, 1);
    let slow = rig.seat(1).place;
    let mut waiting = Box::pin(aside(&slow, pending::<Result<(), Failure>>()));
    assert!(poll!(waiting.as_mut()).is_pending());

    let quick = rig.seat(2).place;
    let refused = aside(&quick, async { Ok(()) }).await.unwrap_err();
    assert_eq!(refused.reason, Reason::Overloaded, "one waits already");
    drop(waiting);
    aside(&quick, async { Ok(()) }).await.unwrap();
    drop(rig.waits(3));
    drop(quick);
    drop((rig.seat(3), slow));
}

#[tokio::test]
async fn a_call_whose_model_is_up_comes_before_the_others_of_its_caller() {
    let rig = rig(1, 1);
    rig.per_caller.set(2, HashMap::new());
    let slow = rig.seat(1).place;
    let (up, model) = tokio::sync::oneshot::channel::<()>();
    let mut aside = Box::pin(aside(&slow, async { Ok(model.await.is_ok()) }));
    assert!(poll!(aside.as_mut()).is_pending());
    let other = rig.seat(1);
    // Its caller is at its limit, which does not concern a call that has its share.
    let mut later = rig.waits(1);
    up.send(()).unwrap();
    assert!(poll!(aside.as_mut()).is_pending(), "no place yet");
    drop(other);
    assert!(aside.await.unwrap());
    assert!(now(&mut later).await.is_none());
    drop(slow);
    now(&mut later).await.expect("the next");
}

#[tokio::test]
async fn parts_of_a_call_that_wait_at_the_same_time_share_its_place() {
    let rig = rig(1, 2);
    let place = rig.seat(1).place;
    let waits = || {
        let (up, model) = tokio::sync::oneshot::channel::<()>();
        (up, Box::pin(aside(&place, async { Ok(model.await.is_ok()) })))
    };
    let ((first_up, mut first), (second_up, mut second)) = (waits(), waits());
    assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
    first_up.send(()).unwrap();
    assert!(first.await.unwrap());
    second_up.send(()).unwrap();
    assert!(second.await.unwrap(), "the place is back already");
    drop(place);
    drop(rig.seat(2));
}

#[tokio::test]
async fn a_share_that_becomes_free_while_its_call_waits_for_a_model_lets_the_next_in() {
    let rig = rig(2, 1);
    rig.per_caller.set(1, HashMap::new());
    let slow = rig.seat(1).place;
    let mut aside = Box::pin(aside(&slow, pending::<Result<(), Failure>>()));
    assert!(poll!(aside.as_mut()).is_pending());
    let mut next = rig.waits(1);
    drop(aside);
    drop(slow);
    now(&mut next).await.expect("the share is free");
}

#[tokio::test]
async fn a_lower_number_of_places_lets_calls_in_progress_finish() {
    let rig = rig(3, 1);
    let (first, second) = (rig.seat(1), rig.seat(2));
    rig.admission.resize(1, 1);
    let mut next = rig.waits(3);
    drop(first);
    assert!(now(&mut next).await.is_none(), "one place is taken");
    drop(second);
    now(&mut next).await.expect("the only place");
}

#[tokio::test]
async fn more_places_and_higher_limits_let_waiting_calls_in() {
    let rig = rig(1, 1);
    rig.per_caller.set(1, HashMap::new());
    let _first = rig.seat(1);
    let (mut second, mut third) = (rig.waits(1), rig.waits(2));
    rig.admission.resize(9, 1);
    assert!(now(&mut second).await.is_none());
    let _third = now(&mut third).await.expect("another place");
    rig.per_caller.set(2, HashMap::new());
    rig.admission.resize(9, 1);
    now(&mut second).await.expect("another share");
}

/// Lets requests in one after the other that need memory which they charge only later.
#[tokio::test]
async fn places_are_given_while_there_is_room_for_the_memory_of_requests() {
    let rig = rig(1000, 1);
    let known = peer(1);
    known.habit().needs.learn(4 * MIB);
    let mut seats = Vec::new();
    let mut waiting = loop {
        match rig.enter(&known) {
            Ok(seat) => seats.push(seat),
            Err(waiting) => break waiting,
        }
    };
    assert_eq!(seats.len(), 8, "half of the account");
    assert!(rig.refusal(1).contains("memory"), "{}", rig.refusal(1));
    let mut other = rig.waits(2);
    let other = now(&mut other).await.expect("another caller has its share");
    drop(other);
    assert!(now(&mut waiting).await.is_none());
    drop(seats.pop());
    seats.push(now(&mut waiting).await.expect("the next"));
    assert!(seats.iter().all(|seat| seat.reserved.bytes() == 4 * MIB));
}

#[tokio::test]
async fn an_estimate_that_is_too_high_lets_a_few_in_and_is_corrected() {
    let rig = rig(1000, 1);
    let known = peer(1);
    known.habit().needs.learn(1 << 40);
    let few: Vec<_> = (0..FEW).map(|_| rig.enter(&known).expect("one of a few")).collect();
    let mut next = rig.enter(&known).expect_err("the rest waits");
    for _ in 0..100 {
        known.habit().needs.learn(MIB);
    }
    few[0].place.learn(MIB);
    now(&mut next).await.expect("there is room");
}

/// The large requests of one caller are no reason to keep another one's first request waiting.
#[test]
fn a_caller_that_holds_no_memory_does_not_wait_for_the_large_requests_of_others() {
    let rig = rig(1000, 1);
    let small = peer(1);
    small.habit().needs.learn(MIB);
    let _few: Vec<_> = (0..FEW).map(|_| rig.enter(&small).expect("its share")).collect();
    let large = peer(1);
    large.habit().needs.learn(24 * MIB);
    let seat = rig.enter(&large).expect("its share");
    seat.place.learn(24 * MIB);
    let other = rig.seat(2);
    assert!(other.reserved.bytes() <= MEMORY / UNKNOWN, "{}", other.reserved.bytes());
    rig.waits(2);
}

#[tokio::test]
async fn a_call_that_comes_back_waits_for_the_memory_that_it_still_needs() {
    let rig = rig(99, 1);
    let known = peer(1);
    known.habit().needs.learn(4 * MIB);
    let Seat { place, reserved } = rig.enter(&known).expect("a place");
    drop(reserved);
    let (up, model) = tokio::sync::oneshot::channel::<()>();
    let model = async { Ok(model.await.is_ok()) };
    let mut slow = Box::pin(place.aside_for_model(model, || 4 * MIB));
    assert!(poll!(slow.as_mut()).is_pending());
    let mut others: Vec<_> = (0..8).map(|_| rig.enter(&known).expect("its share")).collect();
    up.send(()).unwrap();
    assert!(poll!(slow.as_mut()).is_pending(), "its caller has no more");
    drop(others.pop());
    let back = slow.await.unwrap();
    assert_eq!(back.reserved.expect("it has a place").bytes(), 4 * MIB);
}
