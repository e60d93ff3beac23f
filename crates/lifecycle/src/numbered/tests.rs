//! Tests of the polls of a directory, and of the tags that follow from them.

use std::{
    fs::{self, File},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use futures::FutureExt as _;
use outrigger_core::{ModelName, VersionPolicy};
use outrigger_store::{Config, Directory, Store};
use tempfile::TempDir;
use tokio::time::{Instant, advance};

use super::*;

/// A directory of versions, and the polls of it.
struct Polled {
    dir: TempDir,
    store: Store,
    versions: Arc<Versions>,
}

impl Polled {
    fn new(policy: VersionPolicy) -> Self {
        Self::labelled(policy, &[])
    }

    fn labelled(policy: VersionPolicy, labels: &[(&str, u64)]) -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = Store::open(Config::new(dir.path().join("store"))).expect("a store");
        let path = dir.path().join("models");
        fs::create_dir(&path).expect("a directory");
        let labels = labels.iter().map(|(label, number)| (tag(label), *number)).collect();
        let versions = Arc::new(Versions::new(VersionDirectory { path, policy, labels }));
        Self { dir, store, versions }
    }

    fn directory(&self) -> Directory {
        self.store.directory(&self.versions.directory.path)
    }

    fn path(&self, version: u64) -> PathBuf {
        self.versions.directory.path.join(version.to_string())
    }

    fn write(&self, version: u64, content: &str) {
        fs::create_dir_all(self.path(version)).expect("a directory");
        fs::write(self.path(version).join("model"), content).expect("written");
    }

    fn remove(&self, version: u64) {
        fs::remove_dir_all(self.path(version)).expect("removed");
    }

    /// Polls once. Returns true if the state has changed.
    fn poll(&self) -> bool {
        self.poll_as(Turn::Due)
    }

    fn poll_as(&self, turn: Turn) -> bool {
        let listing = self.versions.poll(&self.directory(), turn);
        let is_changed = listing.is_some();
        listing.into_iter().for_each(|it| drop(self.versions.state.send_replace(Some(it.into()))));
        is_changed
    }

    /// Sets the versions that cannot be served, by their contents.
    fn fail(&self, contents: &[&str]) {
        self.versions.set_failing(contents.iter().map(|it| digest(it)).collect());
    }

    /// The tags that `latest` stands for, and whether there are more.
    fn latest(&self) -> (Vec<String>, bool) {
        let latest = self.versions.listed().and_then(|listed| listed.latest).expect("known");
        (latest.versions.iter().map(ToString::to_string).collect(), latest.has_more)
    }

    fn tags(&self) -> Option<Vec<String>> {
        let tags = self.versions.listed()?.tags;
        Some(tags.iter().map(ToString::to_string).collect())
    }

    fn find(&self, text: &str) -> Result<Digest, Reason> {
        let listing = self.versions.state.borrow().clone().expect("it is known");
        self.versions.find(&listing, &tag(text)).map_err(|failure| failure.reason)
    }
}

fn tag(text: &str) -> Tag {
    text.parse().expect("a valid tag")
}

/// The digest of a version whose only file has this content.
fn digest(content: &str) -> Digest {
    Digest::of(format!("{}  model\n", Digest::of(content.as_bytes()).hex()).as_bytes())
}

#[test]
fn a_version_is_taken_once_two_polls_see_the_same_files() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    polled.write(7, "seven");
    assert!(!polled.poll(), "one poll cannot know");
    assert!(polled.poll());
    assert_eq!(polled.find("latest"), Ok(digest("seven")));
    assert_eq!(polled.find("7"), Ok(digest("seven")));
    assert!(!polled.poll(), "nothing has changed");
    polled.write(8, "eig");
    assert!(!polled.poll());
    polled.write(8, "eight");
    assert!(!polled.poll(), "it is still being written");
    assert_eq!(polled.find("latest"), Ok(digest("seven")));
    assert!(polled.poll());
    assert_eq!(polled.find("latest"), Ok(digest("eight")));
    assert_eq!(polled.find("7"), Err(Reason::TagNotFound), "it is not selected any more");
}

#[test]
fn a_version_whose_content_is_replaced_keeps_its_digest_until_two_polls_see_the_same() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    polled.write(7, "seven");
    polled.poll();
    polled.poll();
    polled.write(7, "another seven");
    assert!(!polled.poll());
    assert_eq!(polled.find("7"), Ok(digest("seven")));
    assert!(polled.poll());
    assert_eq!(polled.find("7"), Ok(digest("another seven")));
}

#[test]
fn a_change_of_times_alone_is_no_change_of_the_content() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    polled.write(7, "seven");
    polled.poll();
    polled.poll();
    let file = File::options().write(true).open(polled.path(7).join("model")).expect("there");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("set");
    assert!(!polled.poll() && !polled.poll());
    assert_eq!(polled.find("7"), Ok(digest("seven")));
}

#[test]
fn policies_select_versions_by_their_numbers() {
    let cases: [(VersionPolicy, &[&str]); 4] = [
        (VersionPolicy::Latest(1), &["10", "latest"]),
        (VersionPolicy::Latest(2), &["10", "9", "latest"]),
        (VersionPolicy::All, &["10", "3", "9", "latest"]),
        (VersionPolicy::Specific([3, 9, 11].into()), &["3", "9", "latest"]),
    ];
    for (policy, tags) in cases {
        let polled = Polled::new(policy.clone());
        for number in [9, 10, 3] {
            polled.write(number, &number.to_string());
        }
        polled.poll();
        assert!(polled.poll());
        assert_eq!(polled.tags().expect("known"), tags, "{policy:?}");
        let latest = if matches!(policy, VersionPolicy::Specific(_)) { "9" } else { "10" };
        assert_eq!(polled.find("latest"), Ok(digest(latest)), "{policy:?}");
    }
}

#[test]
fn another_policy_needs_no_further_polls_of_versions_that_are_known() {
    let mut polled = Polled::new(VersionPolicy::Latest(2));
    polled.write(7, "seven");
    polled.write(8, "eight");
    polled.poll();
    polled.poll();
    let same = polled.versions.with(polled.versions.directory.clone());
    assert!(Arc::ptr_eq(&same, &polled.versions));
    let policy = VersionPolicy::Specific([7].into());
    polled.versions =
        polled.versions.with(VersionDirectory { policy, ..polled.versions.directory.clone() });
    assert!(polled.poll());
    assert_eq!(polled.tags().expect("known"), ["7", "latest"]);
    let path = polled.dir.path().join("elsewhere");
    polled.versions =
        polled.versions.with(VersionDirectory { path, ..polled.versions.directory.clone() });
    assert!(!polled.poll(), "nothing is known of another directory");
}

#[test]
fn a_version_that_is_removed_gives_way_and_the_last_one_does_not() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    polled.write(7, "seven");
    polled.write(8, "eight");
    polled.poll();
    polled.poll();
    assert_eq!(polled.tags().expect("known"), ["8", "latest"]);
    polled.remove(8);
    assert!(polled.poll(), "two polls have seen 7 before");
    assert_eq!(polled.find("latest"), Ok(digest("seven")));
    polled.remove(7);
    assert!(polled.poll());
    assert_eq!(polled.find("latest"), Err(Reason::TagNotFound));
    assert_eq!(polled.tags(), None, "what it held stays in service");
    fs::remove_dir(&polled.versions.directory.path).expect("it is empty");
    assert!(polled.poll());
    assert_eq!(polled.find("latest"), Err(Reason::ModelNotFound));
    fs::create_dir(&polled.versions.directory.path).expect("a directory");
    polled.write(7, "seven");
    polled.poll();
    assert!(polled.poll());
    assert_eq!(polled.tags().expect("known"), ["7", "latest"]);
}

#[test]
fn a_refused_version_is_shown_and_the_one_before_it_is_the_latest() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    polled.write(7, "seven");
    fs::create_dir(polled.path(8)).expect("a directory");
    fs::write(polled.dir.path().join("secret"), "secret").expect("written");
    std::os::unix::fs::symlink("../../secret", polled.path(8).join("model")).expect("linked");
    polled.poll();
    assert!(polled.poll());
    assert_eq!(polled.tags().expect("known"), ["7", "8", "latest"]);
    assert_eq!(polled.find("8"), Err(Reason::ImageInvalid));
    assert_eq!(polled.find("latest"), Ok(digest("seven")));
    polled.remove(7);
    assert!(polled.poll());
    assert_eq!(polled.find("latest"), Err(Reason::ImageInvalid), "the only one there is");
    fs::remove_file(polled.path(8).join("model")).expect("there");
    polled.write(8, "eight");
    polled.poll();
    assert!(polled.poll());
    assert_eq!(polled.find("latest"), Ok(digest("eight")));
}

#[test]
fn an_older_version_is_selected_beside_one_that_cannot_be_served() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    for (number, content) in [(3, "three"), (8, "eight"), (9, "nine")] {
        polled.write(number, content);
    }
    polled.poll();
    assert!(polled.poll());
    assert_eq!(polled.latest(), (vec!["9".to_owned()], true));
    polled.fail(&["nine"]);
    assert!(polled.poll_as(Turn::Early), "eight was seen by two polls");
    assert_eq!(polled.tags().expect("known"), ["8", "9", "latest"]);
    assert_eq!(polled.latest(), (vec!["9".to_owned(), "8".to_owned()], true));
    assert_eq!(polled.find("latest"), Ok(digest("nine")), "it is still the newest");
    polled.fail(&["nine", "eight"]);
    assert!(!polled.poll_as(Turn::Early), "three was not looked at lately");
    polled.poll();
    assert!(polled.poll());
    assert_eq!(polled.tags().expect("known"), ["3", "8", "9", "latest"]);
    polled.fail(&["nine", "eight", "three"]);
    polled.poll_as(Turn::Early);
    assert!(!polled.latest().1, "there are no more");
    polled.fail(&[]);
    assert!(polled.poll_as(Turn::Early));
    assert_eq!(polled.tags().expect("known"), ["9", "latest"], "the newest was mended");
}

#[test]
fn a_version_that_is_being_written_is_not_taken_by_an_early_poll() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    polled.write(9, "nine");
    polled.poll();
    assert!(polled.poll());
    polled.write(8, "eig");
    polled.fail(&["nine"]);
    assert!(polled.poll_as(Turn::Early), "there is a further one");
    assert!(!polled.poll_as(Turn::Early));
    assert_eq!(polled.tags().expect("known"), ["9", "latest"]);
    polled.write(8, "eight");
    assert!(!polled.poll());
    assert!(polled.poll());
    assert_eq!(polled.find("8"), Ok(digest("eight")));
}

#[test]
fn labels_are_tags_of_selected_versions() {
    let labels = [("stable", 7), ("canary", 8), ("old", 1)];
    let polled = Polled::labelled(VersionPolicy::Latest(2), &labels);
    for (number, content) in [(1, "one"), (7, "seven"), (8, "eight")] {
        polled.write(number, content);
    }
    polled.poll();
    polled.poll();
    assert_eq!(polled.tags().expect("known"), ["7", "8", "canary", "latest", "stable"]);
    assert_eq!(polled.find("stable"), Ok(digest("seven")));
    assert_eq!(polled.find("canary"), Ok(digest("eight")));
    for unknown in ["old", "1", "07", "stable_canary"] {
        assert_eq!(polled.find(unknown), Err(Reason::TagNotFound), "{unknown}");
    }
}

#[tokio::test(start_paused = true)]
async fn directories_are_polled_in_every_period() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    polled.write(7, "seven");
    let (name, period) = ("churn".parse::<ModelName>().expect("valid"), Duration::from_secs(5));
    let versions = Arc::new(Versions::new(polled.versions.directory.clone()));
    let mut watches = Watches::new();
    let directories = || [(&name, &versions)].into_iter();
    let started = Instant::now();
    watches.follow(directories(), &polled.store, period);
    assert_eq!(watches.changed().await.as_ref(), Some(&name));
    assert_eq!(started.elapsed(), period, "the first poll is at once, the second after a period");
    assert_eq!(versions.look_up(&tag("7")).await, Ok(digest("seven")));
    watches.follow(directories(), &polled.store, period);
    polled.write(8, "eight");
    watches.changed().await;
    assert_eq!(started.elapsed(), period * 3, "the same task goes on");
    assert_eq!(versions.look_up(&tag("latest")).await, Ok(digest("eight")));
    watches.follow([].into_iter(), &polled.store, period);
    polled.write(9, "nine");
    advance(period * 10).await;
    assert!(watches.changed().now_or_never().is_none(), "it is not polled any more");
}

#[tokio::test(start_paused = true)]
async fn a_look_up_waits_until_the_directory_is_known() {
    let polled = Polled::new(VersionPolicy::Latest(1));
    let versions = Arc::new(Versions::new(polled.versions.directory.clone()));
    let name = "churn".parse::<ModelName>().expect("valid");
    let latest = tag("latest");
    let mut found = std::pin::pin!(versions.look_up(&latest));
    assert!(futures::poll!(found.as_mut()).is_pending());
    let mut watches = Watches::new();
    watches.follow([(&name, &versions)].into_iter(), &polled.store, Duration::from_secs(5));
    let failure = found.await.expect_err("there is no version");
    assert_eq!(failure.reason, Reason::TagNotFound);
}
