//! Tests of batches while a canary is on trial.

use std::time::Duration;

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
    main.end_call();
    other.end_call();
    for (key, arm) in keys.iter().zip(&arms) {
        let alone = lease(&handle, key).await;
        assert_eq!((alone.arm(), alone.is_counted()), (*arm, false), "{key}: its arm is known");
    }
    let canary = if main.arm() == Arm::Canary { &main } else { &other };
    let stand_in = canary.stand_in().expect("live answers if the canary fails");
    assert_eq!((stand_in.arm(), stand_in.is_tried()), (Arm::Live, false));
}

#[tokio::test]
async fn a_batch_for_whose_part_the_canary_has_no_room_is_answered_by_live() {
    let (_rig, handle) = split().await;
    let keys: Vec<_> = (0..20).map(|number| format!("user-{number}")).collect();
    let mut of_live = Vec::new();
    for (position, key) in keys.iter().enumerate() {
        let alone = lease(&handle, key).await;
        alone.end_call();
        if alone.arm() == Arm::Live {
            of_live.push(position);
        }
    }
    // Takes all of the canary's calls.
    let mut calls = Vec::new();
    while let call = lease(&handle, "").await
        && (call.is_counted() || calls.is_empty())
    {
        calls.push(call);
    }
    let (whole, divided) = leases(&handle, &keys, of_live[0]).await;
    assert!(divided.is_none() && !whole.is_counted());
    assert_eq!((whole.arm(), whole.user()), (Arm::Live, of_live[0]));
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

/// Observes 2,000 batches of these users, for which the canary takes 100 s.
async fn answer_slowly(handle: &Handle, keys: impl Fn(usize) -> Vec<String>) {
    for batch in 0..2000 {
        let (lease, divided) = leases(handle, &keys(batch), 0).await;
        lease.end_call();
        divided.iter().for_each(|divided| divided.other.end_call());
        let seconds = if lease.arm() == Arm::Canary { 100.0 } else { 0.01 };
        lease.observe(Duration::from_secs_f64(seconds), well(&lease));
    }
}

fn arms(seen: &Canaries) -> &[ArmView] {
    seen.canaries.first().map_or(&[][..], |canary| &canary.arms)
}

#[tokio::test]
async fn the_latency_of_a_batch_is_compared_only_if_its_users_have_one_key() {
    let (_rig, handle) = split().await;
    let is_slow = |it: &Canaries| {
        let slow = |arm: &ArmView| arm.trial.latency_p95.is_some_and(|seconds| seconds > 90.0);
        arms(it).iter().any(slow)
    };
    let requests = |it: &Canaries| arms(it).iter().map(|arm| arm.trial.requests).sum::<u64>();
    let before = requests(&*canaries(&handle, |_| true).await);
    answer_slowly(&handle, |batch| vec![format!("a-{batch}"), format!("b-{batch}")]).await;
    // A few keys are taken for others that have counted.
    let seen = canaries(&handle, |it| requests(it) > before + 1900).await;
    assert!(!is_slow(&seen), "{seen:?}");
    answer_slowly(&handle, |_| vec![String::new(); 2]).await;
    canaries(&handle, is_slow).await;
}
