use std::{
    collections::HashSet,
    iter,
    sync::{Barrier, mpsc},
    thread::{self, ThreadId},
};

use futures::{FutureExt as _, future::join_all};
use outrigger_core::{DType, Interface};

use super::*;
use crate::{
    Run as _, StageTimes,
    local::{
        Model, floats, malformed, tensor,
        tests::{WAIT, bind_on, call},
    },
};

/// Rows of a part of a model about which nothing is known.
const ROWS: usize = 64;

/// A model whose output is its input, a number for each row. The function gets the number of each
/// part that it runs. A second for each row is reported as the stage `echo`.
struct Echo<F>(F);

impl<F: Fn(usize) -> Result<(), RunError> + Send + Sync + 'static> Model for Echo<F> {
    fn interface(&self, _: &str) -> Option<Interface> {
        None
    }

    fn run(&self, call: Call) -> Answer {
        let rows = floats(call.input("x")?)?;
        (self.0)(rows[0] as usize / ROWS)?;
        call.stages.add("echo", Duration::from_secs(rows.len() as u64));
        Ok(vec![tensor("y".into(), vec![rows.len() as i64], &rows)])
    }

    fn rows(&self, call: &Call) -> Option<usize> {
        Some(floats(call.input("x").ok()?).ok()?.len())
    }

    fn divide(&self, call: &Call, rows: usize) -> Option<Vec<Call>> {
        let all = floats(call.input("x").ok()?).ok()?;
        let part = |part: &[f32]| Call { inputs: vec![input(part)], ..call.clone() };
        Some(all.chunks(rows).map(part).collect())
    }

    fn memory(&self) -> usize {
        0
    }
}

fn input(rows: &[f32]) -> Tensor {
    tensor("x".into(), vec![rows.len() as i64], rows)
}

/// A call of so many rows, which are numbered.
fn rows(rows: usize, within: Duration) -> Call {
    let rows: Vec<_> = (0..rows).map(|row| row as f32).collect();
    Call { inputs: vec![input(&rows)], ..call(within) }
}

/// A call of so many parts.
fn parts(parts: usize) -> Call {
    rows(parts * ROWS, WAIT)
}

/// A model that cannot fail.
fn echo(visit: impl Fn(usize) + Send + Sync + 'static) -> Arc<dyn Model> {
    Arc::new(Echo(move |part| {
        visit(part);
        Ok(())
    }))
}

/// A model whose first part reports that it has begun, and then waits until the gate opens. The
/// parts that have begun are in the list.
struct Gated {
    model: Arc<dyn Model>,
    begun: mpsc::Receiver<()>,
    gate: mpsc::Sender<()>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Gated {
    fn new() -> Self {
        let (begins, begun) = mpsc::channel();
        let (gate, opened) = mpsc::channel::<()>();
        let (opened, seen) = (Mutex::new(opened), Arc::<Mutex<Vec<_>>>::default());
        let list = Arc::clone(&seen);
        let model = echo(move |part| {
            lock(&list).push(format!("large {part}"));
            if part == 0 {
                begins.send(()).ok();
                // The gate opens by the end of its sender.
                lock(&opened).recv().ok();
            }
        });
        Self { model, begun, gate, seen }
    }
}

/// Waits until all calls of the pool have had a turn, without a timer.
async fn turn(pool: &Pool) {
    let (ends, ended) = oneshot::channel::<()>();
    let ends = Mutex::new(Some(ends));
    let last = bind_on(pool, echo(move |_| drop(lock(&ends).take())));
    let mut last = last.run(parts(1));
    // The first poll gives the call to the pool, which may have answered it at once.
    let _ = (&mut last).now_or_never();
    ended.await.expect_err("dropped by the run");
}

#[tokio::test]
async fn the_parts_of_a_call_are_joined_in_their_order() {
    let seen = Arc::new(Mutex::new(0));
    let count = Arc::clone(&seen);
    let bound = bind_on(&Pool::start(3), echo(move |_| *lock(&count) += 1));
    let stages = StageTimes::recorded();
    let call = Call { stages: stages.clone(), ..rows(10 * ROWS + 7, WAIT) };
    let outputs = bound.run(call.clone()).await.expect("outputs");
    assert_eq!(outputs, [Tensor { name: "y".into(), ..call.inputs[0].clone() }]);
    assert_eq!(stages.get("echo"), Some(Duration::from_secs(10 * ROWS as u64 + 7)), "all parts");
    assert!(*lock(&seen) > 5, "{seen:?} parts");
}

#[tokio::test]
async fn a_call_of_many_rows_runs_on_several_threads() {
    // No part ends before another one has begun.
    let (meeting, threads) = (Barrier::new(2), Arc::<Mutex<HashSet<ThreadId>>>::default());
    let seen = Arc::clone(&threads);
    let model = echo(move |_| {
        lock(&seen).insert(thread::current().id());
        meeting.wait();
    });
    bind_on(&Pool::start(2), model).run(parts(2)).await.expect("outputs");
    let threads = lock(&threads);
    assert!(threads.len() == 2 && !threads.contains(&thread::current().id()), "{threads:?}");
}

#[tokio::test]
async fn a_small_call_passes_a_large_one() {
    let pool = Pool::start(1);
    let Gated { model, begun, gate, seen } = Gated::new();
    let (large, list) = (bind_on(&pool, model), Arc::clone(&seen));
    let small = bind_on(&pool, echo(move |_| lock(&list).push("small".to_owned())));
    let mut large = large.run(parts(4));
    assert!((&mut large).now_or_never().is_none());
    begun.recv().expect("the first part begins");
    let mut small = small.run(parts(1));
    assert!((&mut small).now_or_never().is_none());
    drop(gate);
    let (large, small) = futures::join!(large, small);
    large.and(small).expect("outputs");
    assert_eq!(*lock(&seen), ["large 0", "large 1", "small", "large 2", "large 3"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_hangs_ends_for_its_caller_at_the_deadline_and_other_parts_are_dropped() {
    let pool = Pool::start(1);
    let Gated { model, begun, gate, seen } = Gated::new();
    let bound = bind_on(&pool, model);
    let mut hanging = bound.run(parts(4));
    assert!((&mut hanging).now_or_never().is_none());
    begun.recv().expect("the first part begins");
    // The clock goes to the deadline, because nothing else is to be done.
    let late = hanging.await;
    assert!(matches!(late, Err(RunError::DeadlineExceeded)), "{late:?}");
    drop(gate);
    turn(&pool).await;
    assert_eq!(*lock(&seen), ["large 0"]);
}

#[tokio::test]
async fn a_call_whose_turn_comes_after_the_deadline_does_not_run() {
    let pool = Pool::start(1);
    let Gated { model, begun, gate, .. } = Gated::new();
    let first = bind_on(&pool, model);
    let mut first = first.run(parts(1));
    assert!((&mut first).now_or_never().is_none());
    begun.recv().expect("it begins");
    let runs = Arc::<Mutex<Vec<usize>>>::default();
    let list = Arc::clone(&runs);
    let late = bind_on(&pool, echo(move |part| lock(&list).push(part)));
    let late = late.run(rows(4 * ROWS, Duration::from_millis(1))).await;
    assert!(matches!(late, Err(RunError::DeadlineExceeded)), "{late:?}");
    drop(gate);
    first.await.expect("outputs");
    turn(&pool).await;
    assert!(lock(&runs).is_empty(), "{runs:?}");
}

#[tokio::test]
async fn parts_that_have_not_begun_are_dropped_with_the_call() {
    let pool = Pool::start(1);
    let Gated { model, begun, gate, seen } = Gated::new();
    let bound = bind_on(&pool, model);
    let mut abandoned = bound.run(parts(4));
    assert!((&mut abandoned).now_or_never().is_none());
    begun.recv().expect("the first part begins");
    drop(abandoned);
    drop(gate);
    turn(&pool).await;
    assert_eq!(*lock(&seen), ["large 0"]);
}

#[tokio::test]
async fn a_part_that_fails_or_panics_is_a_failure_of_its_call_only() {
    let pool = Pool::start(2);
    let model = Arc::new(Echo(|part| match part {
        1 => Err(malformed("part 1".to_owned())),
        2 => panic!("part 2"),
        _ => Ok(()),
    }));
    let bound = bind_on(&pool, model);
    for (first, problem) in [(1, "part 1"), (2, "the run panicked")] {
        let all: Vec<_> = (first * ROWS..(first + 1) * ROWS + ROWS).map(|row| row as f32).collect();
        for rows in [&all[..ROWS], &all] {
            let failed = bound.run(Call { inputs: vec![input(rows)], ..call(WAIT) }).await;
            let error = failed.expect_err(problem).to_string();
            // The parts of a call may end in any order.
            assert!(error.contains(problem) || rows.len() > ROWS, "{error}");
        }
    }
    bound.run(parts(1)).await.expect("other calls are answered");
}

#[tokio::test]
async fn all_calls_share_the_threads() {
    let (pool, threads) = (Pool::start(2), Arc::<Mutex<Vec<ThreadId>>>::default());
    let bounds: Vec<_> = iter::repeat_with(|| {
        let seen = Arc::clone(&threads);
        bind_on(&pool, echo(move |_| lock(&seen).push(thread::current().id())))
    })
    .take(16)
    .collect();
    for answer in join_all(bounds.iter().map(|bound| bound.run(parts(4)))).await {
        answer.expect("outputs");
    }
    let threads = lock(&threads);
    let different: HashSet<_> = threads.iter().collect();
    assert!(threads.len() == 64 && different.len() <= 2, "{threads:?}");
}

#[test]
fn outputs_that_differ_are_not_joined() {
    let one = input(&[1.0]);
    let rows_of_two = Tensor { shape: vec![1, 1], ..one.clone() };
    let strings = Tensor { content: Content::Strings(Vec::new()), ..one.clone() };
    for (others, problem) in [
        (vec![], "their numbers differ"),
        (vec![Tensor { name: "y".into(), ..one.clone() }], "names, types or shapes"),
        (vec![Tensor { dtype: DType::Int32, ..one.clone() }], "names, types or shapes"),
        (vec![rows_of_two], "names, types or shapes"),
        (vec![Tensor { shape: Vec::new(), ..one.clone() }], "one has no rows"),
        (vec![strings], "one has strings"),
    ] {
        let error = joined(&[vec![one.clone()], others]).expect_err(problem).to_string();
        assert!(error.contains(problem), "{error}");
    }
}
