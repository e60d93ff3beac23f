//! Tests of batches while a canary is on trial.

use std::time::Duration;

use outrigger_canary::Outcome;
use outrigger_core::Arm;
use outrigger_lifecycle::{ArmView, Canaries, Divided, Handle, Lease};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    canaries::{quick, started, traffic, well, with},
    rig::{PATIENCE, Rig, canaries, model, name, tag},
};

/// Starts a process with a canary that has half of the requests.
async fn split() -> (Rig, Handle) {
    let (rig, handle, _) = started(&with(quick(), "minimumTime", json!("3600s"))).await;
    rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    let measured = |it: &Canaries| arms(it).iter().filter(|arm| arm.trial.requests > 20).count();
    canaries(&handle, |it| measured(it) == 2).await;
    (rig, handle)
}

async fn lease(handle: &Handle, key: &str) -> Lease {
    let deadline = Instant::now() + PATIENCE;
    handle.acquire(&name("churn"), &tag("latest"), key, deadline).await.expect("served")
}

/// Leases for a batch of users with these keys, of whom the one at `chosen` stands for all.
async fn leases(handle: &Handle, keys: &[String], chosen: usize) -> (Lease, Option<Divided>) {
    let lease = lease(handle, &keys[chosen]).await;
    lease.for_batch(chosen, || keys.iter().map(String::as_str).collect())
}

#[tokio::test]
async fn users_of_a_batch_have_the_arms_of_their_keys() {
    let (_rig, handle) = split().await;
    let keys: Vec<_> = (0..20).map(|number| format!("user-{number}")).collect();
    let (main, divided) = leases(&handle, &keys, 7).await;
    let Divided { other, arms } = divided.expect("the users have different arms");
    assert!(main.is_counted() && !other.is_counted(), "one user stands for the batch");
    assert_ne!((main.arm(), &main.key), (other.arm(), &other.key));
    assert_eq!(arms[7], main.arm());
    assert_eq!(main.user(), arms[..7].iter().filter(|arm| **arm == main.arm()).count());
    for (key, arm) in keys.iter().zip(&arms) {
        let alone = lease(&handle, key).await;
        assert_eq!((alone.arm(), alone.is_counted()), (*arm, *key != keys[7]), "{key}");
    }
    let canary = if main.arm() == Arm::Canary { &main } else { &other };
    let stand_in = canary.stand_in().expect("live answers if the canary fails");
    assert_eq!((stand_in.arm(), stand_in.is_tried()), (Arm::Live, false));
}

#[tokio::test]
async fn a_batch_of_one_arm_is_not_divided() {
    let (_rig, handle) = split().await;
    let (mut same, mut seen) = (vec![String::new(); 3], Vec::new());
    for number in 0..40 {
        for keys in [same.clone(), vec![String::new(); 3]] {
            let (lease, divided) = leases(&handle, &keys, 1).await;
            assert!(divided.is_none(), "{divided:?}");
            assert_eq!(lease.user(), 1);
            seen.push(lease.arm());
        }
        same = vec![format!("user-{number}"); 3];
    }
    assert!(seen.contains(&Arm::Live) && seen.contains(&Arm::Canary));
}

/// Observes the failure of 2,000 batches of these users, which takes 100 s each.
async fn fail_slowly(handle: &Handle, keys: impl Fn(usize) -> Vec<String>) {
    for batch in 0..2000 {
        let (lease, _) = leases(handle, &keys(batch), 0).await;
        lease.observe(Duration::from_secs(100), Outcome::Failed);
    }
}

fn arms(seen: &Canaries) -> &[ArmView] {
    seen.canaries.first().map_or(&[][..], |canary| &canary.arms)
}

#[tokio::test]
async fn the_latency_of_a_batch_is_compared_only_if_its_users_have_one_key() {
    let (_rig, handle) = split().await;
    let slow = |arm: &ArmView| arm.trial.latency_p95.is_some_and(|seconds| seconds > 90.0);
    fail_slowly(&handle, |batch| vec![format!("a-{batch}"), format!("b-{batch}")]).await;
    let failed = |it: &Canaries| arms(it).iter().map(|arm| arm.trial.failed).sum::<u64>();
    // A few keys are taken for others that have counted.
    let seen = canaries(&handle, |it| failed(it) > 1900).await;
    assert!(!arms(&seen).iter().any(slow), "{seen:?}");
    fail_slowly(&handle, |_| vec![String::new(); 2]).await;
    canaries(&handle, |it| arms(it).len() == 2 && arms(it).iter().all(slow)).await;
}
