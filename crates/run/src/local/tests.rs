use std::{sync::Barrier, time::Duration};

use futures::FutureExt as _;
use http::HeaderMap;
use outrigger_core::{ModelName, ServableName, Version};

use super::*;

const WAIT: Duration = Duration::from_secs(10);

/// A model whose runs end when as many are under way as the barrier asks for.
struct Meeting(Barrier);

impl Model for Meeting {
    fn interface(&self, _: &str) -> Option<Interface> {
        None
    }

    fn run(&self, _: Call) -> Result<Vec<Tensor>, RunError> {
        self.0.wait();
        Ok(Vec::new())
    }
}

/// Binds a version whose runs wait for `runs` of them.
fn bound(runs: usize) -> Bound {
    let name: ModelName = "m".parse().expect("a valid name");
    let id = ServableId { name: ServableName::of(&name), version: Version(1) };
    let models = Arc::new(Models::default());
    lock(&models.loaded).insert(id.clone(), Arc::new(Meeting(Barrier::new(runs))));
    Bound { id, models, pace: Arc::default() }
}

fn call(within: Duration) -> Call {
    let (inputs, outputs) = (Vec::new(), Vec::new());
    Call { inputs, outputs, deadline: Instant::now() + within, headers: HeaderMap::new() }
}

#[tokio::test]
async fn a_run_that_may_be_long_does_not_occupy_the_callers_thread() {
    let bound = bound(2);
    let (one, other) = tokio::join!(bound.run(call(WAIT)), bound.run(call(WAIT)));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
}

#[tokio::test]
async fn short_runs_move_to_the_callers_thread() {
    let bound = bound(1);
    let short = async || bound.run(call(WAIT)).now_or_never().is_some();
    assert!(!short().await, "nothing is known about the first run");
    while !bound.pace.is_short(0) {
        bound.run(call(WAIT)).await.expect("it runs");
    }
    assert!(short().await);
}

#[tokio::test]
async fn a_run_that_hangs_ends_for_its_caller_at_the_deadline() {
    let bound = bound(2);
    let answer = bound.run(call(Duration::from_millis(1))).await;
    assert!(matches!(answer, Err(RunError::DeadlineExceeded)), "{answer:?}");
    // Lets the run end, because the runtime waits for it.
    bound.run(call(WAIT)).await.expect("two runs are under way");
}
