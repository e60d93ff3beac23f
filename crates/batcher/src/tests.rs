//! Tests over a scripted model: its output is the sum of each row, and a row of a negative number
//! makes a run fail.

mod models;
mod properties;

use std::{sync::Arc, time::Duration};

use futures::{FutureExt as _, future::join_all};
use outrigger_budget::Budget;
use outrigger_core::Reason;
use outrigger_run::{Call, RowLayout, Run, RunError, StageTimes};
use tokio::time::{Instant, sleep, timeout};

use self::models::{
    Fails, Panics, Sums, batcher, batcher_of, padding, row, settings, settle, sum, values,
};
pub(crate) use self::models::{call, floats, numbers};
use crate::Settings;

#[tokio::test(start_paused = true)]
async fn calls_within_the_delay_are_one_run_and_each_gets_its_own_rows() {
    let model = Arc::<Sums>::default();
    let batcher = batcher(&model, settings());
    let sums = join_all([1.0, 2.0, 3.0].map(|value| sum(&batcher, value))).await;
    let sums: Vec<_> = sums.into_iter().map(|sum| sum.expect("it runs")).collect();
    assert_eq!(sums, [[1.0], [2.0], [3.0]]);
    assert_eq!(model.runs(), [3]);
}

#[tokio::test(start_paused = true)]
async fn each_call_of_a_run_that_records_stages_has_the_times_of_the_run() {
    let batcher = batcher(&Arc::<Sums>::default(), settings());
    let stages = [StageTimes::recorded(), StageTimes::default(), StageTimes::recorded()];
    let calls = stages.clone().map(|stages| batcher.run(Call { stages, ..row(1.0) }));
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    let three = Some(Duration::from_secs(3));
    assert_eq!(stages.map(|stages| stages.get("sum")), [three, None, three]);
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_wait() {
    let model = Arc::<Sums>::default();
    let hour = Settings { max_delay: Duration::from_secs(3600), ..settings() };
    let batcher = batcher(&model, hour);
    let start = Instant::now();
    let sums = join_all((0..8_u8).map(|value| sum(&batcher, value.into()))).await;
    assert!(sums.iter().all(Result::is_ok));
    assert_eq!((start.elapsed(), model.runs()), (Duration::ZERO, vec![8]));
}

#[tokio::test(start_paused = true)]
async fn a_call_alone_waits_for_the_delay_or_half_of_its_time() {
    let model = Arc::<Sums>::default();
    let batcher = batcher(&model, settings());
    for (left, expected) in [(3600.0, 10), (0.008, 4)] {
        let start = Instant::now();
        let call = Call { deadline: start + Duration::from_secs_f64(left), ..row(1.0) };
        batcher.run(call).await.expect("it runs");
        assert_eq!(start.elapsed(), Duration::from_millis(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn treatments_are_padded_with_their_own_first_element() {
    let model = Arc::<Sums>::default();
    let batcher = padding(&model, settings());
    let calls = [(2, vec![1.0, 2.0]), (3, vec![10.0, 20.0, 30.0])];
    let runs = calls
        .map(|(count, rows)| batcher.run(call(vec![numbers("treatment", &[1, count, 1], &rows)])));
    let sums: Vec<_> = join_all(runs).await.into_iter().map(|it| it.expect("it runs")).collect();
    assert_eq!([values(&sums[0][0]), values(&sums[1][0])], [[4.0], [60.0]]);
    assert_eq!(model.runs(), [2]);
}

#[tokio::test(start_paused = true)]
async fn much_wider_calls_have_a_batch_of_their_own() {
    let model = Arc::<Sums>::default();
    let batcher = padding(&model, settings());
    let runs =
        [1, 1, 100].map(|count| batcher.run(call(vec![floats("treatment", &[1, count, 1])])));
    assert!(join_all(runs).await.iter().all(Result::is_ok));
    assert_eq!(model.runs(), [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_does_so_alone() {
    let model = Arc::<Sums>::default();
    let batcher = batcher(&model, settings());
    let values = [1.0, 2.0, -1.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let sums = join_all(values.map(|value| sum(&batcher, value))).await;
    for (value, sum) in values.into_iter().zip(sums) {
        match sum {
            Ok(sum) => assert_eq!(sum, [value]),
            Err(error) => assert!(value < 0.0 && error.to_string().contains("negative"), "{error}"),
        }
    }
    assert_eq!(model.runs(), [8, 4, 2, 2, 1, 1, 4]);
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_limits_are_refused() {
    for limit in [Settings { max_calls: 2, ..settings() }, Settings { max_bytes: 11, ..settings() }]
    {
        let model = Arc::new(Sums::gated());
        let batcher = batcher(&model, limit);
        let mut first = batcher.run(row(0.0));
        assert!(timeout(Duration::from_secs(1), &mut first).await.is_err(), "it runs");
        let mut waiting = [1.0, 2.0].map(|value| batcher.run(row(value)));
        assert!(waiting.iter_mut().all(|call| call.now_or_never().is_none()));
        let error = batcher.run(row(3.0)).await.expect_err("the queue is full");
        assert_eq!(error.reason(), Reason::Overloaded);
        // A caller that goes away makes room.
        let [one, other] = waiting;
        drop(one);
        let mut third = batcher.run(row(3.0));
        assert!((&mut third).now_or_never().is_none());
        model.let_one_end();
        model.let_one_end();
        let sums = join_all([first, other, third]).await;
        let sums: Vec<_> =
            sums.iter().map(|it| values(&it.as_ref().expect("it runs")[0])).collect();
        assert_eq!((sums, model.runs()), (vec![vec![0.0], vec![2.0], vec![3.0]], vec![1, 2]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_callers_are_all_gone_is_cancelled() {
    let model = Arc::new(Sums::gated());
    let batcher = batcher(&model, settings());
    let mut calls = [1.0, 2.0].map(|value| batcher.run(row(value)));
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    sleep(Duration::from_millis(10)).await;
    settle().await;
    assert_eq!(model.runs(), [2]);
    drop(calls);
    settle().await;
    // The place of the batch is free: the next one is run.
    let mut next = batcher.run(row(3.0));
    assert!(timeout(Duration::from_secs(1), &mut next).await.is_err(), "it is gated");
    assert_eq!(model.runs(), [2, 1]);
    model.let_one_end();
    assert_eq!(values(&next.await.expect("it runs")[0]), [3.0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_and_does_not_take_the_others_with_it() {
    let model = Arc::new(Sums::gated());
    let batcher = batcher(&model, settings());
    let start = Instant::now();
    let short = batcher.run(Call { deadline: start + Duration::from_secs(1), ..row(1.0) });
    let long = batcher.run(row(2.0));
    let later = async {
        sleep(Duration::from_secs(2)).await;
        model.let_one_end();
    };
    let (short, long, ()) = tokio::join!(
        async {
            let result = short.await;
            (result, start.elapsed())
        },
        long,
        later
    );
    assert!(matches!(short.0, Err(RunError::DeadlineExceeded)));
    assert_eq!(short.1, Duration::from_secs(1));
    assert_eq!(values(&long.expect("it has time")[0]), [2.0]);
    assert_eq!(model.runs(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_model_whose_outputs_have_other_rows_runs_without_batches() {
    let model = Arc::new(Sums::short());
    let batcher = batcher(&model, settings());
    let both = || join_all([1.0, 2.0].map(|value| sum(&batcher, value)));
    for runs in [&[2, 1, 1][..], &[2, 1, 1, 1, 1]] {
        assert!(both().await.iter().all(Result::is_ok));
        assert_eq!(model.runs(), runs);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_cannot_be_joined_run_at_once() {
    let model = Arc::<Sums>::default();
    let batcher = batcher(&model, settings());
    let lists = vec![floats("x", &[3]), floats("lengths", &[2])];
    for inputs in [lists, vec![floats("x", &[8, 1])], vec![floats("x", &[9, 1])]] {
        let start = Instant::now();
        batcher.run(call(inputs)).await.expect("it runs");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    assert_eq!(model.runs(), [3, 8, 9]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_engine_is_that_of_every_call_with_its_own_inputs() {
    let lost: fn(_) -> _ = |inputs| RunError::Lost { inputs, source: "closed".into() };
    let unsent: fn(_) -> _ = |inputs| {
        let source = Box::new(RunError::Unavailable("refused".into()));
        RunError::Unsent { inputs, source }
    };
    for failure in [lost, unsent] {
        let batcher = batcher(&Arc::new(Fails(failure)), settings());
        let calls = [1.0, 2.0].map(row);
        let results = join_all(calls.clone().map(|call| batcher.run(call))).await;
        for (call, result) in calls.into_iter().zip(results) {
            let Err(RunError::Lost { inputs, .. } | RunError::Unsent { inputs, .. }) = result
            else {
                panic!("another failure")
            };
            assert_eq!(inputs, call.inputs);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_memory_for_joined_inputs_calls_run_alone() {
    let model = Arc::<Sums>::default();
    let budget = Budget::new(16);
    let batcher = batcher_of(&model, RowLayout::Joined, settings(), &budget);
    let sums = join_all([1.0, 2.0].map(|value| sum(&batcher, value))).await;
    assert!(sums.iter().all(Result::is_ok));
    assert_eq!((model.runs(), budget.requests.used()), (vec![1, 1], 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_batch_and_frees_its_place() {
    let batcher = batcher(&Arc::new(Panics(Sums::default())), settings());
    let results = join_all([-1.0, 2.0].map(|value| sum(&batcher, value))).await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!(sum(&batcher, 3.0).await.expect("it runs"), [3.0]);
}
