//! The times of operations.

use std::fs;

use outrigger_engine::{
    Options,
    step_stats::{Node, Times},
};
use outrigger_testkit::saved_model::affine;

use crate::{
    harness::{Local, options, request},
    models::column,
};

#[tokio::test]
async fn operations_of_traced_runs_are_added_up_in_a_file() {
    let root = tempfile::tempdir().expect("a directory");
    let file = root.path().join("step_stats.json");
    let options = Options { step_stats_file: Some(file.clone()), ..options(root.path()) };
    let local = Local::with(root, options).await;
    let times =
        || -> Times { serde_json::from_slice(&fs::read(&file).expect("a file")).expect("times") };
    assert_eq!(times(), Times::default());
    local.serve("half", &affine(0.5, 2.0)).await;
    for _ in 0..3 {
        let answer = local.predict(request("half", [("x", column(&[1.0]))])).await;
        answer.expect("an answer");
    }
    let Times { runs, run_nanos, nodes } = times();
    assert_eq!(runs, 2);
    let Node { operation, executions, nanos } = &nodes["ax"];
    assert_eq!((operation.as_str(), *executions), ("Mul", 2));
    assert!(*nanos > 0 && nodes.values().map(|node| node.nanos).sum::<u64>() < run_nanos);
    local.stop().await;
}
