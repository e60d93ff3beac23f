use std::collections::BTreeMap;

use outrigger_run::RowLayout;
use proptest::prelude::*;

use super::*;
use crate::{
    form,
    tests::{call, floats},
};

const DELAY: Duration = Duration::from_millis(10);

fn queue(max_rows: usize) -> Queue {
    Queue::new(Settings {
        max_rows,
        max_delay: DELAY,
        max_in_flight: 1,
        max_calls: 1000,
        max_bytes: 1 << 20,
    })
}

/// A call of `rows` rows, of a form of its own for each `width`, until `deadline`.
fn push(queue: &mut Queue, (rows, width): (i64, i64), deadline: Instant, now: Instant) -> u64 {
    let call = Call { deadline, ..call(vec![floats("x", &[rows, width])]) };
    let (form, extent) = form::of(&call, RowLayout::Joined).expect("it has rows");
    queue.push(form, Member { call, extent, answer: oneshot::channel().0 }, now).expect("room")
}

fn rows(next: Next) -> Vec<usize> {
    let Next::Run(members, _) = next else { panic!("{next:?}") };
    members.iter().map(|member| member.extent.rows).collect()
}

/// Runs `test` with the present time, which does not go on.
fn at_rest(test: impl FnOnce(Instant)) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async { test(Instant::now()) });
}

#[test]
fn a_batch_is_due_with_its_first_call_or_when_it_is_full() {
    at_rest(|now| {
        let (mut queue, later) = (queue(4), now + Duration::from_secs(100));
        assert!(matches!(queue.next(now), Next::Nothing));
        push(&mut queue, (1, 2), later, now);
        let second = now + DELAY / 2;
        push(&mut queue, (2, 2), later, second);
        assert!(matches!(queue.next(second), Next::WaitUntil(due) if due == now + DELAY));
        push(&mut queue, (2, 2), later, second);
        assert_eq!(rows(queue.next(second)), [1, 2], "a third one does not fit");
        push(&mut queue, (2, 2), later, second);
        assert_eq!(rows(queue.next(second)), [2, 2]);
        push(&mut queue, (1, 2), later, second);
        assert_eq!(rows(queue.next(second + DELAY)), [1]);
        assert_eq!(queue.size(), (0, 0));
    });
}

#[test]
fn a_call_with_little_time_is_due_before_earlier_ones_of_other_forms() {
    at_rest(|now| {
        let mut queue = queue(4);
        push(&mut queue, (1, 2), now + Duration::from_secs(1), now);
        push(&mut queue, (2, 3), now + DELAY, now);
        assert!(matches!(queue.next(now), Next::WaitUntil(due) if due == now + DELAY / 2));
        assert_eq!(rows(queue.next(now + DELAY / 2)), [2]);
        assert_eq!(rows(queue.next(now + DELAY)), [1]);
    });
}

#[test]
fn a_call_that_was_removed_is_in_no_batch() {
    at_rest(|now| {
        let (mut queue, later) = (queue(8), now + Duration::from_secs(100));
        let numbers = [1, 2, 3].map(|rows| push(&mut queue, (rows, 1), later, now));
        queue.remove(numbers[1]);
        queue.remove(numbers[1]);
        assert_eq!(queue.size(), (2, 4 * 4));
        assert_eq!(rows(queue.next(now + DELAY)), [1, 3]);
    });
}

proptest! {
    /// No call is passed over for ever: each batch has the call that is due first, and a call is due
    /// a while after its arrival.
    #[test]
    fn no_call_that_is_due_is_overtaken(
        calls in prop::collection::vec((0..50_u64, 1..4_i64, 1..4_i64, 1..60_u64), 1..60),
        max_rows in 1..8_usize,
    ) {
        let mut result = Ok(());
        at_rest(|start| result = overtakes_none(calls, max_rows, start));
        result?;
    }
}

fn overtakes_none(
    mut calls: Vec<(u64, i64, i64, u64)>,
    max_rows: usize,
    start: Instant,
) -> Result<(), TestCaseError> {
    calls.sort_unstable();
    let mut queue = queue(max_rows);
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    let mut calls = calls.into_iter().peekable();
    // Each batch takes a while, in which others wait.
    for now in (0..2000).step_by(7) {
        while let Some((time, rows, width, left)) = calls.next_if(|call| call.0 <= now) {
            push(&mut queue, (rows, width), at(time + left), at(time));
        }
        let waiting: BTreeMap<_, _> = queue.waiting.iter().map(|it| (it.number, it.due)).collect();
        if !matches!(queue.next(at(now)), Next::Run(..)) {
            continue;
        }
        let is_left = |number: &u64| queue.waiting.iter().any(|it| it.number == *number);
        let (left, ran): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|it| is_left(&it.0));
        let first_ran = ran.iter().map(|it| it.1).min();
        let first_left = left.iter().map(|it| it.1).min();
        prop_assert!(first_left.is_none_or(|left| first_ran.is_some_and(|ran| ran <= left)));
    }
    prop_assert_eq!(queue.size(), (0, 0), "all have run");
    Ok(())
}
