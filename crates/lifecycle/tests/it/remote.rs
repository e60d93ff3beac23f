//! Failures of an engine in another process that is not TensorFlow Serving.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use outrigger_canary::Layer;
use outrigger_core::{Digest, EngineId, Reason, Stage};
use outrigger_lifecycle::{CanaryPhase, Handle};
use outrigger_testkit::{package::Package, remote::Mode};

use crate::{
    canaries::quick,
    kinds::{Kind, Load, score},
    rig::{PATIENCE, Rig, acquire, acquire_within, canaries, is_in, model, stage, until},
    whole_life::push,
};

/// A process with `tree` on the scripted engine, `churn` on TensorFlow Serving, and `vine` on the
/// engine in this process.
struct Three {
    kind: Kind,
    rig: Rig,
    handle: Handle,
    digest: Digest,
}

impl Three {
    async fn start() -> Self {
        Self::start_with(Kind::scripted()).await
    }

    async fn start_with(kind: Kind) -> Self {
        let mut rig = kind.rig().await;
        rig.beside.push(Kind::linear().make());
        rig.config.tunables.canary.defaults = Layer::from_json(&quick()).expect("a configuration");
        rig.push("churn", "latest", &model(1));
        rig.push_layer("vine", "latest", Kind::linear().package(Package::default()));
        let digest = push(&rig, &kind, "latest", Package::default());
        let handle = rig.start();
        let three = Self { kind, rig, handle, digest };
        three.all_are_served().await;
        three
    }

    async fn all_are_served(&self) {
        for model in ["churn", "vine", "tree"] {
            let lease = acquire(&self.handle, model).await.expect("served");
            score(&lease, 2.0).await.expect("a score");
        }
    }

    async fn until_reachable(&self, reachable: bool) {
        let id = self.kind.id();
        until(&self.handle, |it| it.engines[&id].reachable == reachable).await;
    }

    fn restarts(&self) -> u64 {
        self.handle.models().engines[&self.kind.id()].restarts
    }

    /// Runs a load on the models of the other engines during `outage`. No request fails.
    async fn others_answer_during(&self, outage: impl AsyncFnOnce()) {
        let loads = ["churn", "vine"].map(|model| Load::start(&self.handle, model));
        outage().await;
        for load in loads {
            load.succeeded().await;
        }
        assert!(self.handle.models().engines[&EngineId::default()].reachable);
    }
}

#[tokio::test]
async fn while_it_is_down_only_its_own_models_fail_and_they_come_back_by_themselves() {
    let three = Three::start().await;
    let server = three.kind.server();
    let before = server.loaded();
    three
        .others_answer_during(async || {
            server.stop().await;
            three.until_reachable(false).await;
            let early = acquire_within(&three.handle, "tree", Duration::from_millis(50)).await;
            assert_eq!(early.expect_err("it is down").reason, Reason::EngineUnavailable);
            server.resume().expect("it starts");
            three.until_reachable(true).await;
            three.all_are_served().await;
        })
        .await;
    assert_eq!((server.loaded(), three.restarts()), (before, 1));
}

#[tokio::test]
async fn while_it_hangs_only_its_own_models_wait() {
    let kind = Kind { timeout: Duration::from_secs(1), ..Kind::scripted() };
    let three = Three::start_with(kind).await;
    let server = three.kind.server();
    let lease = acquire(&three.handle, "tree").await.expect("served");
    three
        .others_answer_during(async || {
            server.behave(Mode::Hangs);
            three.until_reachable(false).await;
            let mut waiting = std::pin::pin!(score(&lease, 2.0));
            assert!(futures::poll!(&mut waiting).is_pending());
            server.behave(Mode::Answers);
            assert_eq!(waiting.await.expect("a score"), 2.0);
            three.until_reachable(true).await;
        })
        .await;
    assert_eq!((three.restarts(), three.kind.loads().len()), (0, 1));
}

#[tokio::test]
async fn while_it_refuses_it_counts_as_down() {
    let three = Three::start().await;
    let server = three.kind.server();
    let lease = acquire(&three.handle, "tree").await.expect("served");
    three
        .others_answer_during(async || {
            server.behave(Mode::Refuses);
            let refused = score(&lease, 2.0).await.expect_err("it refuses");
            assert_eq!(refused.reason, Reason::EngineUnavailable);
            three.until_reachable(false).await;
            server.behave(Mode::Answers);
            three.until_reachable(true).await;
        })
        .await;
    three.all_are_served().await;
    assert_eq!(three.restarts(), 0);
}

#[tokio::test]
async fn a_load_that_fails_leaves_the_old_version_serving_until_it_succeeds() {
    let three = Three::start().await;
    three.kind.server().on_load(|_| Err("no memory".to_owned()));
    let load = Load::start(&three.handle, "tree");
    let next = push(&three.rig, &three.kind, "latest", Package { bias: 5, ..Package::default() });
    until(&three.handle, |it| {
        let failure = crate::rig::version(it, "tree", next).and_then(|it| it.failure);
        failure.is_some_and(|it| it.failure.message.contains("no memory"))
    })
    .await;
    assert_eq!(acquire(&three.handle, "tree").await.expect("served").key.digest, three.digest);
    three.kind.server().on_load(|_| Ok(()));
    until(&three.handle, |it| stage(it, "tree", next) == Some(Stage::Available)).await;
    load.succeeded().await;
}

#[tokio::test]
async fn a_version_whose_load_changes_the_answers_of_another_one_is_refused() {
    let kind = Kind::scripted();
    let mut rig = kind.rig().await;
    push(&rig, &kind, "latest", Package { golden: Some(3), ..Package::default() });
    let handle = rig.start();
    let before = acquire(&handle, "tree").await.expect("served").scorer.id.clone();
    let changed = Arc::new(AtomicBool::new(false));
    let changes = Arc::clone(&changed);
    kind.server().on_load(move |_| {
        changes.store(true, SeqCst);
        Ok(())
    });
    let first = before.clone();
    kind.server().on_run(move |id, mut scores| {
        if *id == first && changed.load(SeqCst) {
            scores.iter_mut().for_each(|score| *score *= 2.0);
        }
        Ok(scores)
    });
    rig.push_layer("bush", "latest", kind.package(Package { number: 1, ..Package::default() }));
    let refused = acquire(&handle, "bush").await.expect_err("it changes the answers of tree");
    assert_eq!(refused.reason, Reason::GoldenMismatch);
    assert!(refused.message.contains("its load changed the answers of tree@"), "{refused:?}");
    // The other one is loaded again, and answers as before.
    let lease = acquire(&handle, "tree").await.expect("served again");
    assert_ne!(lease.scorer.id, before);
    assert_eq!(score(&lease, 2.0).await.expect("a score"), 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_version_is_not_refused_for_a_broken_one_whose_check_is_under_way() {
    let kind = Kind::scripted();
    let mut rig = kind.rig().await;
    let handle = rig.start();
    // The first run of `tree` is its own check, which waits for the one after the load of `bush`.
    let runs = std::sync::Mutex::new(0);
    let begun = Arc::new(tokio::sync::Notify::new());
    let started = Arc::clone(&begun);
    let second = std::sync::Condvar::new();
    kind.server().on_run(move |id, scores| {
        if !id.name.as_str().contains("tree") {
            return Ok(scores);
        }
        let mut runs = runs.lock().unwrap();
        *runs += 1;
        started.notify_one();
        second.notify_all();
        drop(second.wait_timeout_while(runs, PATIENCE, |runs| *runs < 2).unwrap());
        Ok(scores.into_iter().map(|score| score * 2.0).collect())
    });
    push(&rig, &kind, "latest", Package { golden: Some(3), ..Package::default() });
    let broken = acquire(&handle, "tree");
    let newcomer = async {
        begun.notified().await;
        rig.push_layer("bush", "latest", kind.package(Package { number: 1, ..Package::default() }));
        acquire(&handle, "bush").await
    };
    let both = futures::join!(broken, newcomer);
    both.1.expect("it changes nothing");
    both.0.expect_err("its scores are wrong");
}

#[tokio::test]
async fn a_canary_whose_runs_fail_is_rolled_back() {
    let three = Three::start().await;
    let before = three.kind.server().loaded();
    // The first run is the gate's.
    let gated = AtomicBool::new(false);
    three.kind.server().on_run(move |id, scores| {
        let fails = !before.contains(id) && gated.swap(true, SeqCst);
        if fails { Err("it broke".to_owned()) } else { Ok(scores) }
    });
    let load = Load::start(&three.handle, "tree");
    push(&three.rig, &three.kind, "canary", Package { number: 2, ..Package::default() });
    let seen = canaries(&three.handle, is_in(CanaryPhase::Rejected)).await;
    assert!(seen.decisions[0].reason.contains("error rate"), "{:?}", seen.decisions[0]);
    load.succeeded().await;
}

#[tokio::test]
async fn a_restart_of_both_loads_the_version_again_under_its_name() {
    let mut three = Three::start().await;
    let digest = three.digest;
    until(&three.handle, |it| stage(it, "tree", digest) == Some(Stage::Available)).await;
    let before = acquire(&three.handle, "tree").await.expect("served").scorer.id.clone();
    three.rig.stop().await;
    three.kind.server().stop().await;
    three.kind.server().resume().expect("it starts");
    three.handle = three.rig.start();
    three.all_are_served().await;
    let lease = acquire(&three.handle, "tree").await.expect("served");
    assert_eq!(
        (&lease.scorer.id, three.kind.loads()),
        (&before, vec![before.clone(), before.clone()])
    );
}

#[tokio::test]
async fn a_version_that_the_next_process_does_not_need_leaves_the_engine() {
    let Three { kind, mut rig, handle, .. } = Three::start().await;
    assert_eq!(kind.server().loaded().len(), 1);
    drop(handle);
    rig.stop().await;
    rig.config.tunables.allowed = vec![format!("{}/other", rig.registry.host())];
    let handle = rig.start();
    // The first snapshot precedes the engines' first reports.
    until(&handle, |it| it.engines.get(&kind.id()).is_some_and(|it| it.reachable)).await;
    // The engine reports its condition after it has unloaded the versions that are no longer
    // needed.
    assert_eq!(kind.server().loaded(), []);
}
