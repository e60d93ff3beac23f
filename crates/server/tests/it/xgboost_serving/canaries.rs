//! Canaries that its predictions are split with.

use std::time::Duration;

use outrigger_proto::{
    outrigger::v1::{ListCanariesRequest, canary_decision::Outcome},
    tensorflow::serving::model_spec::VersionChoice,
};
use tokio::time::{Instant, timeout_at};

use super::fixture::{BIAS, TREES, output_of, predict, publish, request, start};
use crate::{canaries::service, stack::Stack};

/// A canary is decided about in seconds, from a few hundred requests. Live requests are repeated as
/// shadows.
const QUICK: &str = r#"{
    "minimumTime": "0.1s", "minimumRequests": 100, "warmUp": {"requests": 100},
    "ramp": {"share": 0.5}, "shadow": 1,
    "signals": {
        "errorRate": {"margin": 0.2}, "nonFinite": {"limits": {"margin": 0.2}},
        "latency": {"limits": {"off": true}}, "scoreDrift": {"margin": 0.4}
    }
}"#;

/// Sends predictions until a canary of the model is decided about.
async fn decided(stack: &Stack) -> Outcome {
    let end = Instant::now() + Duration::from_secs(60);
    let ids = [1.0_f32, 2.0, 3.0, 4.0];
    loop {
        for weight in ids.iter().cycle().take(50) {
            let row: &[(u64, f32)] = &[(1, *weight), (2, 0.5)];
            let asked = predict(stack, request(TREES, &[("xgboost_features", &[row])]));
            timeout_at(end, asked).await.expect("a decision in time").expect("an answer");
        }
        let asked = ListCanariesRequest { model: TREES.to_owned() };
        let seen = service(stack.addresses.grpc).list_canaries(asked).await.expect("canaries");
        if let Some(decision) = seen.into_inner().decisions.first() {
            return decision.outcome();
        }
    }
}

#[tokio::test]
async fn a_canary_is_judged_by_rows() {
    for (bias, outcome) in [(BIAS, Outcome::Promoted), (BIAS + 100, Outcome::RolledBack)] {
        let settings = [("images.poll_interval", "1s"), ("canary.defaults", QUICK)];
        let stack = start(&settings).await;
        predict(&stack, request(TREES, &[("xgboost_features", &[])])).await.expect("an answer");
        publish(&stack, TREES, "7_canary", bias).await;
        assert_eq!(decided(&stack).await, outcome, "{bias}");
        let (_, text) = stack.health("/metrics").await;
        // All servers of the process count together.
        let series =
            format!("outrigger_canary_shadows_total{{model=\"{TREES}\",outcome=\"agreed\"}} ");
        let shadows = text.lines().find_map(|line| line.strip_prefix(&*series));
        assert!(shadows.is_some_and(|count| count != "0"), "{shadows:?}");
    }
}

#[tokio::test]
async fn the_version_of_an_answer_is_that_of_the_tag() {
    let stack = start(&[]).await;
    let response = predict(&stack, request(TREES, &[("xgboost_features", &[&[]])])).await;
    let (.., version) = output_of(response.expect("an answer"));
    assert_eq!(version, Some(VersionChoice::Version(7)));
}
