//! Models that come from directories of numbered versions.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use outrigger_canary::Layer;
use outrigger_core::{Digest, Reason, Rollover, Selector, Stage, VersionPolicy};
use outrigger_lifecycle::{
    CanaryOutcome, Handle, ModelEntry, Snapshot, Tunables, VersionDirectory, VersionView,
};
use outrigger_testkit::engine::{Loading, Predicting, row_sums};
use tokio::{task::JoinSet, time::Instant};
use tonic::Code;

use crate::{
    canaries::{quick, well},
    reconfigure::entry,
    rig::{PATIENCE, Rig, canaries, decided, model, name, predict, stage, tag, until},
};

/// A rig whose model `churn` comes from a directory.
struct Numbered {
    rig: Rig,
    /// The number of versions that were written, for their names until they are complete.
    written: usize,
}

impl Numbered {
    async fn new(policy: VersionPolicy) -> Self {
        let mut rig = Rig::new().await;
        rig.config.images.directory_poll_interval = Duration::from_millis(20);
        // Changes are reported by the polls of the directory, and not found by look-ups.
        rig.config.images.poll_interval = Duration::from_secs(3600);
        let mut numbered = Self { rig, written: 0 };
        fs::create_dir(numbered.path()).expect("a directory");
        numbered.rig.config.tunables.models = vec![numbered.entry(policy, &[])];
        numbered
    }

    fn path(&self) -> PathBuf {
        self.rig.dir.path().join("models")
    }

    fn entry(&self, policy: VersionPolicy, labels: &[(&str, u64)]) -> ModelEntry {
        let labels = labels.iter().map(|(label, number)| (label.parse().expect("valid"), *number));
        let labels = labels.collect::<BTreeMap<_, _>>();
        let directory = VersionDirectory { path: self.path(), policy, labels };
        ModelEntry { preload: false, directory: Some(directory), ..entry("churn") }
    }

    fn listing(&self, entry: ModelEntry) -> Tunables {
        Tunables { models: vec![entry], ..self.rig.config.tunables.clone() }
    }

    /// Writes a version beside the others, and moves it to its number when it is complete.
    fn write(&mut self, number: u64, bias: u16) {
        self.written += 1;
        let unfinished = self.path().join(format!("unfinished-{}", self.written));
        fs::create_dir(&unfinished).expect("a directory");
        let model = model(bias);
        fs::write(unfinished.join("metadata.json"), model.metadata.to_string()).expect("written");
        fs::write(unfinished.join("saved_model.pb"), model.encode()).expect("written");
        fs::rename(unfinished, self.path().join(number.to_string())).expect("moved");
    }

    fn remove(&self, number: u64) {
        let away = self.path().join("removed");
        fs::rename(self.path().join(number.to_string()), &away).expect("it is there");
        fs::remove_dir_all(away).expect("removed");
    }
}

/// The digest that answers for a tag.
async fn answering(handle: &Handle, text: &str) -> Result<Digest, Reason> {
    let within = Instant::now() + PATIENCE;
    let lease = handle.acquire(&name("churn"), &tag(text), "", within).await;
    let lease = lease.map_err(|failure| failure.reason)?;
    predict(&lease).await.expect("it answers");
    Ok(lease.key.digest)
}

/// Waits until the tag is served by another digest than `before`, and returns that one.
async fn moved(handle: &Handle, text: &str, before: Digest) -> Digest {
    until(handle, |it| serving(it, text).is_some_and(|now| now != before)).await;
    serving(&handle.models(), text).expect("it is served")
}

fn serving(snapshot: &Snapshot, text: &str) -> Option<Digest> {
    let Selector::Tag(tag) = tag(text) else { return None };
    snapshot.models.get(&name("churn"))?.tags.get(&tag)?.serving
}

fn loaded(snapshot: &Snapshot) -> usize {
    let versions = snapshot.models.get(&name("churn")).map(|model| &model.versions);
    let is_up = |stage: Stage| stage == Stage::Available;
    versions.map_or(0, |versions| versions.values().filter(|it| is_up(it.stage)).count())
}

#[tokio::test]
async fn the_latest_version_is_served_and_a_removed_one_is_rolled_back() {
    let mut numbered = Numbered::new(VersionPolicy::Latest(1)).await;
    numbered.write(7, 7);
    let handle = numbered.rig.start();
    until(&handle, |it| it.ready).await;
    assert_eq!(handle.default_selector(&name("churn")), tag("latest"));
    let seven = answering(&handle, "latest").await.expect("served");
    assert_eq!(answering(&handle, "7").await, Ok(seven));
    assert_eq!(answering(&handle, "8").await, Err(Reason::TagNotFound));
    let shown = handle.models().models[&name("churn")].image.clone();
    assert_eq!(shown, numbered.path().display().to_string());

    numbered.write(8, 8);
    let eight = moved(&handle, "latest", seven).await;
    assert_eq!(answering(&handle, "8").await, Ok(eight));
    until(&handle, |it| loaded(it) == 1 && serving(it, "7").is_none()).await;
    assert_eq!(answering(&handle, "7").await, Err(Reason::TagNotFound));

    numbered.remove(8);
    assert_eq!(moved(&handle, "latest", eight).await, seven, "7 is the latest again");
    until(&handle, |it| loaded(it) == 1 && serving(it, "8").is_none()).await;
    assert_eq!(answering(&handle, "8").await, Err(Reason::TagNotFound));
    assert_eq!(numbered.rig.engine.violations(), []);
}

#[tokio::test]
async fn what_was_served_stays_when_the_directory_is_empty_or_gone_and_after_a_restart() {
    let mut numbered = Numbered::new(VersionPolicy::Latest(1)).await;
    numbered.write(7, 7);
    let handle = numbered.rig.start();
    let seven = answering(&handle, "latest").await.expect("served");
    numbered.remove(7);
    fs::remove_dir(numbered.path()).expect("it is empty");
    numbered.rig.stop().await;
    let handle = numbered.rig.start();
    assert_eq!(answering(&handle, "latest").await, Ok(seven), "as the journal says");
    assert_eq!(answering(&handle, "7").await, Ok(seven));
    fs::create_dir(numbered.path()).expect("a directory");
    numbered.write(9, 9);
    let nine = moved(&handle, "latest", seven).await;
    assert_eq!(answering(&handle, "9").await, Ok(nine));
    until(&handle, |it| serving(it, "7").is_none()).await;
}

#[tokio::test]
async fn a_version_that_is_refused_leaves_the_one_before_it() {
    let mut numbered = Numbered::new(VersionPolicy::Latest(1)).await;
    numbered.write(7, 7);
    let handle = numbered.rig.start();
    let seven = answering(&handle, "latest").await.expect("served");
    let broken = numbered.path().join("8");
    fs::create_dir(&broken).expect("a directory");
    fs::write(broken.join("saved_model.pb"), "no metadata").expect("written");
    let refused = |it: &Snapshot| {
        let mut versions = it.models[&name("churn")].versions.values();
        versions.any(|version| {
            let failure = version.failure.as_ref().map(|it| &it.failure);
            failure.is_some_and(|it| it.message.contains("no metadata.json"))
        })
    };
    until(&handle, refused).await;
    assert_eq!(answering(&handle, "latest").await, Ok(seven));
    assert_eq!(answering(&handle, "7").await, Ok(seven), "no selected version is up yet");
    assert_eq!(answering(&handle, "8").await, Err(Reason::ImageInvalid));
    fs::remove_dir_all(broken).expect("removed");
    numbered.write(8, 8);
    let eight = moved(&handle, "latest", seven).await;
    assert_eq!(answering(&handle, "8").await, Ok(eight), "it was replaced by a good one");
}

/// Ways in which a version cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Empty,
    WithoutMetadata,
    NoModel,
    DoesNotLoad,
    FailsAtTheGate,
}

impl Numbered {
    /// Writes version 9, which cannot be served.
    fn write_broken(&mut self, broken: Broken) {
        let path = self.path().join("9");
        match broken {
            Broken::Empty => return fs::create_dir(path).expect("a directory"),
            Broken::WithoutMetadata | Broken::NoModel => {
                fs::create_dir(&path).expect("a directory");
                fs::write(path.join("saved_model.pb"), "no model").expect("written");
            }
            Broken::DoesNotLoad | Broken::FailsAtTheGate => self.write(9, 9),
        }
        if broken == Broken::NoModel {
            let metadata = model(9).metadata.to_string();
            fs::write(path.join("metadata.json"), metadata).expect("written");
        }
        let content = fs::read(path.join("saved_model.pb")).expect("it is there");
        let newest = Arc::new(AtomicI64::new(0));
        let loaded = Arc::clone(&newest);
        self.rig.engine.on_load(move |load| {
            let is_newest =
                fs::read(load.path.join("saved_model.pb")).ok() == Some(content.clone());
            match broken {
                Broken::DoesNotLoad if is_newest => {
                    Loading::Fails(Code::Internal, "an operation is missing".to_owned())
                }
                _ => {
                    loaded.fetch_max(if is_newest { load.version } else { 0 }, SeqCst);
                    Loading::Normal
                }
            }
        });
        self.rig.engine.on_predict(move |prediction| match broken {
            Broken::FailsAtTheGate if prediction.version == newest.load(SeqCst) => {
                Predicting::Fails(Code::Internal, "an operation is missing".to_owned())
            }
            _ => row_sums(prediction),
        });
    }
}

/// The version that answers for `latest` without waiting.
fn latest(handle: &Handle) -> Option<Digest> {
    let lease = handle.try_acquire(&name("churn"), &tag("latest"), "")?;
    lease.ok().map(|lease| lease.key.digest)
}

#[tokio::test]
async fn a_cold_start_beside_a_broken_newest_version_serves_the_one_before() {
    use Broken as B;
    for broken in [B::Empty, B::WithoutMetadata, B::NoModel, B::DoesNotLoad, B::FailsAtTheGate] {
        let mut numbered = Numbered::new(VersionPolicy::Latest(1)).await;
        numbered.write(3, 3);
        numbered.write_broken(broken);
        let handle = numbered.rig.start();
        until(&handle, |it| it.ready).await;
        let three = latest(&handle).unwrap_or_else(|| panic!("{broken:?}: ready, and not served"));
        assert_eq!(answering(&handle, "3").await, Ok(three), "{broken:?}");
        let view = handle.models().models[&name("churn")].clone();
        let failed = |it: &VersionView| it.digest != three && it.failure.is_some();
        assert!(view.versions.values().any(failed), "{broken:?}: the newest has its reason");

        numbered.rig.stop().await;
        let handle = numbered.rig.start();
        assert_eq!(answering(&handle, "latest").await, Ok(three), "{broken:?}: after a restart");
        fs::remove_dir_all(numbered.path().join("9")).expect("it is there");
        numbered.write(9, 10);
        let nine = moved(&handle, "latest", three).await;
        assert_eq!(answering(&handle, "9").await, Ok(nine), "{broken:?}: it was mended");
        until(&handle, |it| serving(it, "3").is_none()).await;
    }
}

#[tokio::test]
async fn a_newest_version_that_recovers_by_itself_takes_over() {
    for rollover in [Rollover::Overlap, Rollover::Replace] {
        let mut numbered = Numbered::new(VersionPolicy::Latest(1)).await;
        numbered.rig.config.tunables.models[0].rollover = rollover;
        numbered.write(3, 3);
        numbered.write_broken(Broken::DoesNotLoad);
        let handle = numbered.rig.start();
        let three = answering(&handle, "latest").await.expect("served");
        numbered.rig.engine.on_load(|_| Loading::Normal);
        handle.load(&name("churn"), &tag("9"), Instant::now() + PATIENCE).await.expect("it loads");
        until(&handle, |it| serving(it, "latest").is_some_and(|now| now != three)).await;
        until(&handle, |it| loaded(it) == 1).await;
    }
}

#[tokio::test]
async fn policies_and_directories_change_at_run_time() {
    let mut numbered = Numbered::new(VersionPolicy::Latest(1)).await;
    numbered.write(7, 7);
    numbered.write(8, 8);
    let handle = numbered.rig.start();
    let eight = answering(&handle, "latest").await.expect("served");
    assert_eq!(answering(&handle, "7").await, Err(Reason::TagNotFound));
    let all = numbered.listing(numbered.entry(VersionPolicy::All, &[]));
    handle.reconfigure(all).await.expect("it is valid");
    until(&handle, |it| serving(it, "7").is_some() && loaded(it) == 2).await;
    let specific = numbered.entry(VersionPolicy::Specific([7].into()), &[]);
    handle.reconfigure(numbered.listing(specific)).await.expect("it is valid");
    let seven = moved(&handle, "latest", eight).await;
    until(&handle, |it| loaded(it) == 1 && serving(it, "8").is_none()).await;
    let pushed = numbered.rig.push("churn", "latest", &model(1));
    let image = ModelEntry { preload: true, ..entry("churn") };
    handle.reconfigure(numbered.listing(image)).await.expect("it is valid");
    assert_eq!(moved(&handle, "latest", seven).await, pushed, "from the registry");
}

#[tokio::test]
async fn files_that_the_store_has_lost_are_copied_again() {
    let mut numbered = Numbered::new(VersionPolicy::Latest(1)).await;
    numbered.write(7, 7);
    let handle = numbered.rig.start();
    let seven = answering(&handle, "latest").await.expect("served");
    handle.unload(&name("churn"), &tag("latest"), true).await.expect("it is known");
    until(&handle, |it| stage(it, "churn", seven) == Some(Stage::New)).await;
    assert_eq!(answering(&handle, "latest").await, Ok(seven));
    let strange = Selector::Digest(Digest::of(b"strange"));
    let lease = handle.acquire(&name("churn"), &strange, "", Instant::now() + PATIENCE).await;
    assert_eq!(lease.expect_err("no version has it").reason, Reason::DigestNotFound);
}

#[tokio::test]
async fn with_the_rollover_replace_one_version_is_loaded_at_a_time() {
    let mut numbered = Numbered::new(VersionPolicy::Latest(1)).await;
    numbered.rig.config.tunables.models[0].rollover = Rollover::Replace;
    numbered.write(7, 7);
    let handle = numbered.rig.start();
    let seven = answering(&handle, "latest").await.expect("served");
    numbered.write(8, 8);
    let eight = moved(&handle, "latest", seven).await;
    until(&handle, |it| stage(it, "churn", eight) == Some(Stage::Available)).await;
    assert_eq!(loaded(&handle.models()), 1);
    numbered.remove(8);
    assert_eq!(moved(&handle, "latest", eight).await, seven);
    assert_eq!(numbered.rig.engine.violations(), []);
}

/// Sends requests for the tag `stable`, all of which succeed.
fn traffic(handle: &Handle) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let handle = handle.clone();
    running.spawn(async move {
        loop {
            for _ in 0..50 {
                let within = Instant::now() + PATIENCE;
                let lease = handle.acquire(&name("churn"), &tag("stable"), "", within).await;
                let lease = lease.expect("served all the time");
                lease.end_call();
                lease.observe(Duration::from_millis(10), well(&lease));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    running
}

#[tokio::test]
async fn a_label_names_a_canary_which_is_promoted_in_this_process() {
    let mut numbered = Numbered::new(VersionPolicy::Latest(2)).await;
    let tunables = &mut numbered.rig.config.tunables;
    tunables.canary.defaults = Layer::from_json(&quick()).expect("a configuration");
    let labels = [("stable", 7), ("canary", 8)];
    let stable = Some("stable".parse().expect("a valid tag"));
    let labelled = ModelEntry { tag: stable, ..numbered.entry(VersionPolicy::Latest(2), &labels) };
    numbered.rig.config.tunables.models = vec![labelled];
    numbered.write(7, 7);
    numbered.write(8, 8);
    let handle = numbered.rig.start();
    let seven = answering(&handle, "7").await.expect("served");
    let eight = answering(&handle, "8").await.expect("served");
    assert_eq!(answering(&handle, "stable").await, Ok(seven));
    let running = traffic(&handle);
    let seen = canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    drop(running);
    assert_eq!(seen.decisions[0].canary, eight);
    assert_eq!(answering(&handle, "stable").await, Ok(eight));
    assert_eq!(answering(&handle, "7").await, Ok(seven), "it has a tag of its own");
}
