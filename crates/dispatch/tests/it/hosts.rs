//! Hosts that are limited, refuse, fail, come and go; driven call by call.

use std::time::Duration;

use outrigger_core::Moment;
use outrigger_dispatch::{
    BatchId, Bound, Breaker, Call, Dispatcher, End, Failure, HostId, Limits, Purpose, Settings,
};
use outrigger_resilience::{Class, Cut};

use crate::simulation::{Change, Job, Plan, at};

const A: HostId = HostId(0);
const B: HostId = HostId(1);

fn dispatcher(hosts: &[HostId], batches: u64, rows: u32) -> Dispatcher {
    let settings = Settings::default();
    let mut dispatcher = Dispatcher::new(settings, hosts.iter().copied(), (1, Moment::default()));
    (0..batches).for_each(|batch| dispatcher.add(BatchId(batch), rows));
    dispatcher
}

fn calls(dispatcher: &mut Dispatcher, now: Moment) -> Vec<Call> {
    std::iter::from_fn(|| dispatcher.next(now)).collect()
}

fn failed(class: Class) -> End {
    End::Failed(Failure::new(class, "failed"))
}

#[test]
fn a_host_gets_as_many_calls_as_its_limit() {
    let mut dispatcher = dispatcher(&[A, B], 9, 4);
    let sent = calls(&mut dispatcher, at(0));
    assert_eq!(sent.iter().filter(|call| call.host == A).count(), 2);
    assert_eq!(sent.len(), 4);
    let status = dispatcher.snapshot(at(0));
    assert_eq!((status.in_flight, status.fresh, status.batches, status.rows), (4, 5, 9, 36));
    assert_eq!((status.hosts[0].limit, status.hosts[0].bound), (2, Bound::Start));
    assert!(!dispatcher.has_room(), "a batch for each place is enough");
}

#[test]
fn the_user_s_limits_hold() {
    let mut dispatcher = dispatcher(&[A], 9, 100);
    dispatcher.set_limits(Limits { max_in_flight: 1, rows_per_second: Some(50.0) });
    let sent = calls(&mut dispatcher, at(0));
    assert_eq!(sent.len(), 1);
    assert_eq!(dispatcher.snapshot(at(0)).hosts[0].bound, Bound::User);
    dispatcher.ended(sent[0].id, End::Scored, at(100));
    assert_eq!(dispatcher.next(at(1900)), None, "100 rows are two seconds");
    // The cap is the reason, whatever the number of calls may be.
    dispatcher.set_limits(Limits { max_in_flight: 9, rows_per_second: Some(50.0) });
    assert_eq!(dispatcher.snapshot(at(1900)).hosts[0].bound, Bound::User);
    let at = dispatcher.wake_at(at(1900)).expect("a time");
    assert!(at.since(Moment::default()) >= Duration::from_secs(2));
    assert!(dispatcher.next(at).is_some());
}

#[test]
fn a_call_that_is_late_gives_its_place_to_others_at_a_time_that_is_known() {
    let mut dispatcher = dispatcher(&[A], 9, 4);
    dispatcher.set_limits(Limits { max_in_flight: 2, ..Limits::default() });
    let first = calls(&mut dispatcher, at(0));
    dispatcher.ended(first[0].id, End::Failed(Failure::new(Class::Overloaded, "busy")), at(1));
    dispatcher.ended(first[1].id, End::Scored, at(100));
    let late = calls(&mut dispatcher, at(1000));
    assert_eq!(late.len(), 1, "the refusal has lowered the limit to one");
    let wake = dispatcher.wake_at(at(1000)).expect("a time");
    assert_eq!(wake, at(2000), "ten times as long as usual");
    assert_eq!(calls(&mut dispatcher, wake).len(), 1);
    assert_eq!(calls(&mut dispatcher, at(20_000)), [], "the user's maximum holds");
}

#[test]
fn check_31_the_pause_that_a_host_asks_for_is_obeyed() {
    let mut dispatcher = dispatcher(&[A], 9, 4);
    let sent = calls(&mut dispatcher, at(0));
    let mut failure = Failure::new(Class::Overloaded, "busy");
    failure.retry_after = Some(Duration::from_secs(7));
    dispatcher.ended(sent[0].id, End::Failed(failure), at(1));
    dispatcher.ended(sent[1].id, End::Scored, at(100));
    assert_eq!(dispatcher.next(at(7000)), None);
    assert_eq!(dispatcher.snapshot(at(7000)).hosts[0].quiet_until, Some(at(7001)));
    let again = dispatcher.next(at(7001)).expect("a call");
    assert_eq!((again.batch, again.attempt), (sent[0].batch, 2), "retries come first");
}

#[test]
fn check_39_refusals_lower_the_limit_and_open_nothing_at_once() {
    let slots = vec![(Moment::default(), 1)];
    let plan = Plan { slots, queue: Some(0), ..Plan::steady() };
    let mut job = Job::new(vec![plan], vec![8; 300]);
    job.settings.first_in_flight = 8;
    let report = job.run(1);
    let end = report.end.elapsed();
    assert!(end < Duration::from_secs(36), "30 s of work took {end:?}");
    assert!(report.refused * 10 < report.calls.len() as u64, "{} refused", report.refused);
}

#[test]
fn check_38_a_host_that_fails_every_call_is_withdrawn() {
    let broken = vec![at(0)..at(u64::MAX)];
    let hosts = vec![Plan::steady(), Plan { broken, ..Plan::steady() }, Plan::steady()];
    let report = Job::new(hosts, vec![64; 2000]).run(1);
    assert_eq!((report.dead.len(), report.rows), (0, 128_000));
    assert!(report.attempts[&HostId(1)] < 20, "{:?}", report.attempts);
}

#[test]
fn check_38_a_probe_with_a_scored_row_decides_about_the_return() {
    let mut dispatcher = dispatcher(&[A], 20, 64);
    let sent = calls(&mut dispatcher, at(0));
    let settled = dispatcher.ended(sent[0].id, End::Scored, at(10));
    assert_eq!(settled.keep, Some((sent[0].batch, 0..1)));
    dispatcher.ended(sent[1].id, End::Scored, at(10));
    let mut now = at(10);
    while !matches!(dispatcher.snapshot(now).hosts[0].breaker, Breaker::Open(_)) {
        match dispatcher.next(now) {
            Some(call) => _ = dispatcher.ended(call.id, failed(Class::Unavailable), now),
            None => now = dispatcher.wake_at(now).expect("a time"),
        }
    }
    let Breaker::Open(until) = dispatcher.snapshot(now).hosts[0].breaker else { unreachable!() };
    assert_eq!(dispatcher.next(until - Duration::from_millis(1)), None);
    let probe = dispatcher.next(until).expect("a probe");
    assert!(probe.is_probe && probe.purpose == Purpose::Check);
    assert_eq!((probe.batch, probe.rows.clone()), (sent[0].batch, 0..1));
    assert_eq!(dispatcher.next(until), None, "one probe at a time");
    dispatcher.ended(probe.id, failed(Class::Overloaded), until);
    assert!(matches!(dispatcher.snapshot(until).hosts[0].breaker, Breaker::Open(_)));
    let again = dispatcher.wake_at(until).expect("a time");
    let probe = dispatcher.next(again).expect("a probe");
    dispatcher.ended(probe.id, End::Scored, again);
    assert_eq!(dispatcher.snapshot(again).hosts[0].breaker, Breaker::Closed);
}

#[test]
fn check_38_a_sign_of_life_brings_the_probe_forward() {
    let mut dispatcher = dispatcher(&[A], 20, 64);
    let mut now = at(0);
    while !matches!(dispatcher.snapshot(now).hosts[0].breaker, Breaker::Open(_)) {
        match dispatcher.next(now) {
            Some(call) => _ = dispatcher.ended(call.id, failed(Class::Unavailable), now),
            None => now = dispatcher.wake_at(now).expect("a time"),
        }
    }
    assert_eq!(dispatcher.next(now), None);
    dispatcher.may_return(A, now);
    assert_eq!(dispatcher.snapshot(now).hosts[0].breaker, Breaker::HalfOpen);
    let probe = dispatcher.next(now).expect("a probe");
    assert!(probe.is_probe);
    dispatcher.ended(probe.id, End::Scored, now);
    assert_eq!(dispatcher.snapshot(now).hosts[0].breaker, Breaker::Closed);
    dispatcher.may_return(B, now);
}

#[test]
fn check_40_hosts_are_added_and_removed_while_a_job_runs() {
    let mut job = Job::new(vec![Plan::steady(); 3], vec![64; 2000]);
    let change = |seconds: u64, hosts: &[u32]| (at(seconds * 1000), Change::Hosts(hosts.to_vec()));
    job.changes = vec![change(0, &[0]), change(2, &[0, 1]), change(4, &[2]), change(6, &[])];
    job.changes.push(change(8, &[1]));
    let report = job.run(1);
    assert_eq!((report.rows, report.dead.len()), (128_000, 0));
    assert!(report.attempts.values().all(|attempts| *attempts > 50), "{:?}", report.attempts);
}

#[test]
fn check_41_the_first_answer_of_two_hosts_counts() {
    let mut dispatcher = dispatcher(&[A, B], 4, 64);
    let sent = calls(&mut dispatcher, at(0));
    let of = |host| sent.iter().filter(move |call| call.host == host);
    let late = of(B).next().expect("a call");
    for call in sent.iter().filter(|call| call.id != late.id) {
        dispatcher.ended(call.id, End::Scored, at(100));
    }
    assert_eq!(dispatcher.next(at(299)), None);
    assert_eq!(dispatcher.wake_at(at(100)), Some(at(300)), "three times as long as usual");
    let hedge = dispatcher.next(at(300)).expect("a hedge");
    assert_eq!((hedge.host, hedge.purpose), (A, Purpose::Hedge));
    assert_eq!((hedge.batch, &hedge.rows), (late.batch, &late.rows));
    assert_eq!(dispatcher.next(at(300)), None, "once");
    let settled = dispatcher.ended(hedge.id, End::Scored, at(400));
    assert_eq!(settled.cancel, [late.id]);
    assert_eq!(settled.scored.expect("rows").batch, late.batch);
    assert!(dispatcher.is_idle());
    let again = dispatcher.ended(late.id, End::Scored, at(500));
    assert_eq!(again, outrigger_dispatch::Settled::default(), "check 46: a late answer");
}

#[test]
fn a_paused_job_makes_no_calls() {
    let mut dispatcher = dispatcher(&[A], 9, 4);
    dispatcher.pause();
    assert_eq!((dispatcher.next(at(0)), dispatcher.wake_at(at(0))), (None, None));
    assert!(dispatcher.snapshot(at(0)).is_paused);
    dispatcher.resume();
    assert!(dispatcher.next(at(0)).is_some());
}

#[test]
fn a_call_that_is_withdrawn_says_nothing() {
    let mut dispatcher = dispatcher(&[A], 1, 4);
    let call = dispatcher.next(at(0)).expect("a call");
    dispatcher.ended(call.id, End::Withdrawn, at(1));
    let again = dispatcher.next(at(1)).expect("a call");
    assert_eq!((again.batch, again.rows, again.attempt), (call.batch, 0..4, 2));
    assert_eq!(dispatcher.snapshot(at(1)).hosts[0].totals.failed, 0);
}

#[test]
fn rows_whose_answer_is_too_large_for_the_caller_are_sent_in_two_parts() {
    let mut dispatcher = dispatcher(&[A], 1, 5);
    let call = dispatcher.next(at(0)).expect("a call");
    dispatcher.ended(call.id, End::Oversized, at(1));
    let parts = calls(&mut dispatcher, at(1));
    let rows: Vec<_> = parts.iter().map(|call| call.rows.clone()).collect();
    assert_eq!(rows, [0..2, 2..5]);
    assert!(dispatcher.ended(parts[1].id, End::Scored, at(2)).dead.is_empty());
    dispatcher.ended(parts[0].id, End::Oversized, at(3));
    let parts = calls(&mut dispatcher, at(3));
    assert_eq!(parts.iter().map(|call| call.rows.clone()).collect::<Vec<_>>(), [0..1, 1..2]);
    dispatcher.ended(parts[0].id, End::Oversized, at(4));
    assert_eq!(dispatcher.next(at(4)).expect("the same row").rows, 0..1);
    assert_eq!(dispatcher.snapshot(at(4)).hosts[0].totals.failed, 0);
}

#[test]
fn rows_of_later_batches_wait_while_they_are_held() {
    let mut dispatcher = dispatcher(&[A, B], 3, 4);
    let sent = dispatcher.next(at(0)).expect("a call");
    dispatcher.hold_after(Some(BatchId(0)));
    assert_eq!(dispatcher.next(at(0)), None);
    dispatcher.ended(sent.id, End::Withdrawn, at(1));
    assert_eq!(dispatcher.next(at(1)).expect("a call").batch, BatchId(0));
    assert_eq!(
        dispatcher.next(at(3_600_000)),
        None,
        "there is no second call for slow rows either"
    );
    dispatcher.hold_after(Some(BatchId(1)));
    assert_eq!(dispatcher.next(at(3_600_000)).expect("a call").batch, BatchId(1));
    dispatcher.hold_after(None);
    assert_eq!(dispatcher.next(at(3_600_000)).expect("a call").batch, BatchId(2));
}

#[test]
fn a_batch_is_cut_to_the_size_that_a_host_names() {
    let mut dispatcher = dispatcher(&[A], 2, 10);
    let call = dispatcher.next(at(0)).expect("a call");
    let cut = Class::TooLarge(Cut { rows: Some(4), bytes: None });
    dispatcher.ended(call.id, failed(cut), at(1));
    let mut rows = Vec::new();
    for step in 0..20 {
        while let Some(call) = dispatcher.next(at(100 * step)) {
            rows.push(call.rows.len());
            dispatcher.ended(call.id, End::Scored, at(100 * step + 1));
        }
    }
    // The second batch was sent whole only if it was in flight before.
    assert!(rows.iter().all(|rows| *rows <= 4), "{rows:?}");
    assert_eq!(rows.iter().sum::<usize>(), 20);
}
