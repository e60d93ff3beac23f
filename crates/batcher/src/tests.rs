//! Tests over a scripted model: its output is the sum of each row, and a row of a negative number
//! makes a run fail.

mod properties;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{BufMut as _, BytesMut};
use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use http::HeaderMap;
use outrigger_budget::Budget;
use outrigger_core::{
    Content, DType, EngineId, ModelName, ServableId, ServableName, Tensor, Version,
};
use outrigger_run::{Call, RowLayout, Run, RunError};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use crate::{Settings, batcher::Batcher, metrics::Metrics};

/// A tensor of numbers.
pub(crate) fn numbers(name: &str, shape: &[i64], elements: &[f32]) -> Tensor {
    let mut bytes = BytesMut::new();
    elements.iter().for_each(|element| bytes.put_f32_le(*element));
    let content = Content::Bytes(bytes.freeze());
    Tensor { name: name.into(), dtype: DType::Float32, shape: shape.to_vec(), content }
}

/// A tensor of zeros.
pub(crate) fn floats(name: &str, shape: &[i64]) -> Tensor {
    let elements = shape.iter().product::<i64>().unsigned_abs();
    numbers(name, shape, &vec![0.0; usize::try_from(elements).expect("it is small")])
}

/// A call that waits for an hour.
pub(crate) fn call(inputs: Vec<Tensor>) -> Call {
    let deadline = Instant::now() + Duration::from_secs(3600);
    Call { inputs, outputs: Vec::new(), deadline, headers: HeaderMap::new() }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    let Content::Bytes(bytes) = &tensor.content else { panic!("numbers") };
    let values = bytes.chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().expect("four")));
    values.collect()
}

/// A model whose output `sum` has the sum of each row of its input.
#[derive(Default)]
struct Sums {
    /// The rows of each run.
    runs: Mutex<Vec<usize>>,
    /// A permit for each run that may end; without it all end at once.
    gate: Option<Semaphore>,
    /// True if the output has a row too few.
    is_short: bool,
}

impl Sums {
    fn gated() -> Self {
        Self { gate: Some(Semaphore::new(0)), ..Self::default() }
    }

    fn runs(&self) -> Vec<usize> {
        self.runs.lock().expect("not poisoned").clone()
    }

    fn let_one_end(&self) {
        self.gate.as_ref().expect("gated").add_permits(1);
    }

    fn answer(&self, call: &Call) -> Result<Vec<Tensor>, RunError> {
        let input = &call.inputs[0];
        let rows = usize::try_from(input.shape[0]).expect("not negative");
        let all = values(input);
        if all.iter().any(|value| *value < 0.0) {
            let (code, message) = ("InvalidArgument".to_owned(), "a negative number".to_owned());
            return Err(RunError::Failed { code, message });
        }
        let sums: Vec<f32> = all.chunks(all.len() / rows).map(|row| row.iter().sum()).collect();
        let sums = if self.is_short { &sums[1..] } else { &sums };
        Ok(vec![numbers("sum", &[i64::try_from(sums.len()).expect("small")], sums)])
    }
}

impl Run for Sums {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        let rows = usize::try_from(call.inputs[0].shape[0]).expect("not negative");
        self.runs.lock().expect("not poisoned").push(rows);
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.acquire().await.expect("open").forget();
            }
            self.answer(&call)
        })
    }
}

fn settings() -> Settings {
    Settings {
        max_rows: 8,
        max_delay: Duration::from_millis(10),
        max_in_flight: 1,
        max_calls: 100,
        max_bytes: 1 << 20,
    }
}

/// Batches for `model`, whose inputs have this layout, within `budget`.
fn batcher_of(
    model: &Arc<impl Run>,
    layout: RowLayout,
    settings: Settings,
    budget: &Budget,
) -> Batcher {
    let name: ModelName = "churn".parse().expect("a name");
    let id = ServableId { name: ServableName::of(&name), version: Version(1) };
    let metrics = Arc::new(Metrics::new(&EngineId::default()));
    Batcher::new((id, layout), Arc::clone(model) as _, settings, budget.requests.clone(), metrics)
}

fn batcher(model: &Arc<impl Run>, settings: Settings) -> Batcher {
    batcher_of(model, RowLayout::Joined, settings, &Budget::unlimited())
}

/// Batches for a model that pads treatments.
fn padding(model: &Arc<impl Run>, settings: Settings) -> Batcher {
    batcher_of(model, RowLayout::PerEntity, settings, &Budget::unlimited())
}

/// A call of one row of one number.
fn row(value: f32) -> Call {
    call(vec![numbers("x", &[1, 1], &[value])])
}

async fn sum(batcher: &Batcher, value: f32) -> Result<Vec<f32>, RunError> {
    batcher.run(row(value)).await.map(|outputs| values(&outputs[0]))
}

/// Lets all tasks go on until each waits for something other than the time.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

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
        assert_eq!(error.reason(), outrigger_core::Reason::Overloaded);
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
    let model = Arc::new(Sums { is_short: true, ..Sums::default() });
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

/// A model whose runs all end with the same failure.
struct Fails(fn(Vec<Tensor>) -> RunError);

impl Run for Fails {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        Box::pin(std::future::ready(Err((self.0)(call.inputs))))
    }
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

/// A model that panics on a negative number.
struct Panics(Sums);

impl Run for Panics {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        assert!(self.0.answer(&call).is_ok(), "a negative number");
        self.0.run(call)
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_batch_and_frees_its_place() {
    let batcher = batcher(&Arc::new(Panics(Sums::default())), settings());
    let results = join_all([-1.0, 2.0].map(|value| sum(&batcher, value))).await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!(sum(&batcher, 3.0).await.expect("it runs"), [3.0]);
}
