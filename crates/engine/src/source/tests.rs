use std::sync::mpsc::{Receiver, channel};

use outrigger_proto::tensorflow::serving::servable_version_policy::{Latest, Specific};

use super::*;

/// A base path, and the versions that a source reports for it.
struct World {
    root: tempfile::TempDir,
    reported: Receiver<(String, Versions)>,
    source: Source,
}

impl World {
    fn new(policy: Policy) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (report, reported) = channel();
        let aspire = Box::new(move |name: &str, versions| {
            report.send((name.to_owned(), versions)).unwrap();
        });
        let model = monitored("m", &root.path().join("m"), policy);
        Self { source: Source::new(vec![model], aspire), root, reported }
    }

    fn add(&self, names: &[&str]) -> &Self {
        for name in names {
            fs::create_dir_all(self.root.path().join("m").join(name)).unwrap();
        }
        self
    }

    fn reported(&self) -> Vec<(String, Vec<i64>)> {
        self.reported.try_iter().map(|(name, found)| (name, found.into_keys().collect())).collect()
    }

    fn polled(&self) -> Vec<i64> {
        self.source.poll().unwrap();
        let mut reported = self.reported();
        assert_eq!(reported.len(), 1);
        reported.remove(0).1
    }
}

fn monitored(name: &str, base_path: &Path, policy: Policy) -> Monitored {
    Monitored { name: name.into(), base_path: base_path.into(), policy }
}

#[test]
fn a_missing_base_path_fails_the_poll_and_no_versions_are_reported() {
    let world = World::new(Policy::All);
    world.add(&["1"]);
    let missing = monitored("z", &world.root.path().join("z"), Policy::All);
    let there = monitored("m", &world.root.path().join("m"), Policy::All);
    world.source.update(vec![there, missing]);
    assert_eq!(world.source.poll().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(world.reported().is_empty());
    fs::create_dir(world.root.path().join("z")).unwrap();
    world.source.poll().unwrap();
    assert_eq!(world.reported(), [("m".into(), vec![1]), ("z".into(), vec![])]);
}

#[test]
fn a_base_path_without_numbered_entries_has_no_versions() {
    let world = World::new(Policy::Latest(1));
    assert!(world.add(&["next", "2.denied", "v3"]).polled().is_empty());
    assert_eq!(world.add(&["4"]).polled(), [4]);
}

#[test]
fn policies_choose_versions() {
    let all = ["1", "2", "3", "00000017"];
    assert_eq!(World::new(Policy::Latest(1)).add(&all).polled(), [17]);
    assert_eq!(World::new(Policy::Latest(2)).add(&all).polled(), [3, 17]);
    assert_eq!(World::new(Policy::All).add(&all).polled(), [1, 2, 3, 17]);
    let specific = Policy::Specific([2, 17, 99].into());
    assert_eq!(World::new(specific).add(&all).polled(), [2, 17]);
    assert!(World::new(Policy::Specific(BTreeSet::new())).add(&all).polled().is_empty());
}

#[test]
fn a_number_may_have_zeros_signs_and_spaces_and_be_a_file() {
    let world = World::new(Policy::All);
    world.add(&["1", "01", "-3", " 4 "]);
    fs::write(world.root.path().join("m/5"), "").unwrap();
    assert_eq!(world.polled(), [-3, 1, 4, 5]);
}

#[test]
fn a_version_whose_directory_is_renamed_is_gone() {
    let world = World::new(Policy::All);
    assert_eq!(world.add(&["1", "2"]).polled(), [1, 2]);
    let base = world.root.path().join("m");
    fs::rename(base.join("2"), base.join("2.denied")).unwrap();
    assert_eq!(world.polled(), [1]);
}

#[test]
fn only_a_model_left_out_loses_its_versions_at_once() {
    let world = World::new(Policy::All);
    let model = |name| monitored(name, &world.root.path().join("m"), Policy::All);
    world.source.update(vec![model("m"), model("n")]);
    assert!(world.reported().is_empty());
    world.source.update(vec![model("n")]);
    assert_eq!(world.reported(), [("m".into(), vec![])]);
    assert_eq!(world.source.names(), ["n".to_owned()].into());
}

#[test]
fn the_policy_of_a_configuration_defaults_to_the_latest() {
    let policy = |choice| {
        let policy = ServableVersionPolicy { policy_choice: Some(choice) };
        Policy::from(Some(&policy))
    };
    assert_eq!(Policy::from(None), Policy::Latest(1));
    let latest = Latest { num_versions: 0 };
    assert_eq!(policy(PolicyChoice::Latest(latest)), Policy::Latest(1));
    let specific = Specific { versions: vec![5, 5] };
    assert_eq!(policy(PolicyChoice::Specific(specific)), Policy::Specific([5].into()));
}

#[test]
fn polling_once_looks_exactly_once() {
    let World { root, reported, source } = World::new(Policy::All);
    fs::create_dir_all(root.path().join("m/1")).unwrap();
    let poller = Poller::start(Arc::new(source), Poll::Once).unwrap();
    // The iterator ends when the polling thread has dropped the source.
    assert_eq!(reported.iter().count(), 1);
    drop(poller);
}

#[test]
fn a_poller_stops_when_dropped() {
    let World { root, reported, source } = World::new(Policy::All);
    fs::create_dir_all(root.path().join("m/1")).unwrap();
    let poll = Poll::Every(Duration::from_secs(3600));
    let poller = Poller::start(Arc::new(source), poll).unwrap();
    assert_eq!(reported.recv().unwrap().0, "m");
    drop(poller);
    assert_eq!(reported.iter().count(), 0);
}
