//! The memory of outputs, which is charged before the model runs.

use std::time::Duration;

use outrigger_proto::xgboost_serving::PredictRequest;
use tokio::time::timeout;

use super::fixture::{BIAS, Row, floats, predict, publish, request, start};
use crate::stack::reason;

/// Counts of this model are those of this file: the servers of a process count together.
const LARGE: &str = "ads/large";

/// Rows whose leaves, two of int32, take 16 MB in all forms. The account of answers has 25.6 MiB, and
/// one caller gets half of it.
const ROWS: usize = 500_000;

/// Longer than anything takes on a busy machine, and less than the deadline.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn outputs_that_do_not_fit_are_refused_before_the_run() {
    let settings = [
        ("server.memory", "256MiB"),
        ("server.max_treatments", "1000000"),
        ("server.default_deadline", "600s"),
    ];
    let stack = start(&settings).await;
    publish(&stack, LARGE, "7", BIAS).await;
    let runs = async || {
        let (_, text) = stack.health("/metrics").await;
        let series = format!("xgboost_predict_count{{model=\"{LARGE}\"}} ");
        let count = text.lines().find_map(|line| line.strip_prefix(&*series));
        count.map_or(0, |count| count.parse::<u64>().expect("a number"))
    };
    let rows: Vec<Row<'_>> = vec![&[]; ROWS];
    let leaves = |rows: &[Row<'_>]| PredictRequest {
        option_mask: 2,
        ..request(LARGE, &[("xgboost_features", rows)])
    };
    let refused = timeout(PATIENCE, predict(&stack, leaves(&rows))).await;
    let status = refused.expect("it does not wait for its deadline").expect_err("too large");
    assert_eq!(reason(&status), "TOO_LARGE", "{status}");
    assert!(status.message().contains("answers"), "{status}");
    assert_eq!(runs().await, 0);
    // Fewer of them fit, and so do the values of all, which are a quarter as large.
    predict(&stack, leaves(&rows[..ROWS / 10])).await.expect("there is room");
    let values = predict(&stack, request(LARGE, &[("xgboost_features", &rows)])).await;
    assert_eq!(floats(values.expect("there is room"), &[ROWS as i64]).len(), ROWS);
    assert_eq!(runs().await, 2);
}
