//! Scripted models, and batches for them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{BufMut as _, BytesMut};
use futures::future::BoxFuture;
use outrigger_budget::Budget;
use outrigger_core::{
    Content, DType, EngineId, ModelName, ServableId, ServableName, Tensor, Version,
};
use outrigger_run::{Call, RowLayout, Run, RunError};
use tokio::{sync::Semaphore, time::Instant};

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
    Call::new(inputs, Vec::new(), Instant::now() + Duration::from_secs(3600))
}

pub(super) fn values(tensor: &Tensor) -> Vec<f32> {
    let Content::Bytes(bytes) = &tensor.content else { panic!("numbers") };
    let values = bytes.chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().expect("four")));
    values.collect()
}

/// A model whose output `sum` has the sum of each row of its input. Its runs report a second for
/// each row as the stage `sum`.
#[derive(Default)]
pub(super) struct Sums {
    /// The rows of each run.
    runs: Mutex<Vec<usize>>,
    /// A permit for each run that may end; without it all end at once.
    gate: Option<Semaphore>,
    /// True if the output has a row too few.
    is_short: bool,
}

impl Sums {
    pub(super) fn gated() -> Self {
        Self { gate: Some(Semaphore::new(0)), ..Self::default() }
    }

    /// A model whose output has a row too few.
    pub(super) fn short() -> Self {
        Self { is_short: true, ..Self::default() }
    }

    pub(super) fn runs(&self) -> Vec<usize> {
        self.runs.lock().expect("not poisoned").clone()
    }

    pub(super) fn let_one_end(&self) {
        self.gate.as_ref().expect("gated").add_permits(1);
    }

    fn answer(&self, call: &Call) -> Result<Vec<Tensor>, RunError> {
        let input = &call.inputs[0];
        let rows = usize::try_from(input.shape[0]).expect("not negative");
        call.stages.add("sum", Duration::from_secs(rows as u64));
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

pub(super) fn settings() -> Settings {
    Settings {
        max_rows: 8,
        max_delay: Duration::from_millis(10),
        max_in_flight: 1,
        max_calls: 100,
        max_bytes: 1 << 20,
    }
}

/// Batches for `model`, whose inputs have this layout, within `budget`.
pub(super) fn batcher_of(
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

pub(super) fn batcher(model: &Arc<impl Run>, settings: Settings) -> Batcher {
    batcher_of(model, RowLayout::Joined, settings, &Budget::unlimited())
}

/// Batches for a model that pads treatments.
pub(super) fn padding(model: &Arc<impl Run>, settings: Settings) -> Batcher {
    batcher_of(model, RowLayout::PerEntity, settings, &Budget::unlimited())
}

/// A call of one row of one number.
pub(super) fn row(value: f32) -> Call {
    call(vec![numbers("x", &[1, 1], &[value])])
}

pub(super) async fn sum(batcher: &Batcher, value: f32) -> Result<Vec<f32>, RunError> {
    batcher.run(row(value)).await.map(|outputs| values(&outputs[0]))
}

/// Lets all tasks go on until each waits for something other than the time.
pub(super) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// A model whose runs all end with the same failure.
pub(super) struct Fails(pub(super) fn(Vec<Tensor>) -> RunError);

impl Run for Fails {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        Box::pin(std::future::ready(Err((self.0)(call.inputs))))
    }
}

/// A model that panics on a negative number.
pub(super) struct Panics(pub(super) Sums);

impl Run for Panics {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        assert!(self.0.answer(&call).is_ok(), "a negative number");
        self.0.run(call)
    }
}
