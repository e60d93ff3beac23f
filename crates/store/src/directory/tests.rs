//! Tests of directories of numbered versions: what is listed, what is refused, and what is taken.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::{MetadataExt as _, symlink},
        net::UnixListener,
    },
    path::PathBuf,
    time::{Duration, SystemTime},
};

use outrigger_core::{Describer, Failure, Layouts, Reason};

use super::*;
use crate::{
    Tree,
    testing::{Fixture, LAYOUT, MODEL},
};

/// A directory of versions beside a store.
struct Versions {
    fixture: Fixture,
    base: PathBuf,
}

impl Versions {
    fn new() -> Self {
        Self::in_store(Fixture::new())
    }

    fn in_store(fixture: Fixture) -> Self {
        let base = fixture.dir.path().join("models");
        fs::create_dir(&base).expect("a directory");
        Self { fixture, base }
    }

    fn write(&self, file: &str, content: &str) -> &Self {
        let path = self.base.join(file);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        fs::write(path, content).expect("written");
        self
    }

    fn link(&self, link: &str, target: &str) -> &Self {
        let path = self.base.join(link);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        symlink(target, path).expect("linked");
        self
    }

    /// Writes a version that mirrors an image's `/data`.
    fn package(&self, version: &str) -> &Self {
        let model = MODEL.strip_prefix("data/").expect("it lies there");
        self.write(&format!("{version}/metadata.json"), r#"{"framework": "tensorflow"}"#);
        self.write(&format!("{version}/{model}/saved_model.pb"), "graph")
    }

    fn directory(&self) -> Directory {
        self.fixture.store.directory(&self.base)
    }

    fn files(&self, version: &str) -> Result<Files> {
        self.directory().files(version)
    }

    fn digest(&self, version: &str) -> Digest {
        self.files(version).and_then(|files| files.digest()).expect("it is readable")
    }

    fn problem(&self, version: &str) -> VersionProblem {
        match self.files(version) {
            Err(error @ Error::Version { .. }) => {
                assert_eq!(error.reason(), Reason::ImageInvalid);
                let Error::Version { problem, .. } = error else { unreachable!("matched above") };
                problem
            }
            other => panic!("it should be refused: {other:?}"),
        }
    }

    fn take(&self, files: &Files, digest: Digest) -> Result<Tree> {
        self.fixture.store.take(files, digest, BTreeMap::new(), &|_| false)
    }

    fn taken(&self, version: &str) -> Result<Tree> {
        let files = self.files(version)?;
        let digest = files.digest()?;
        self.take(&files, digest)
    }

    /// No tree was left behind, complete or not.
    fn is_empty(&self) -> bool {
        self.fixture.names("trees").is_empty()
    }
}

#[test]
fn versions_are_directories_whose_names_are_numbers() {
    let versions = Versions::new();
    for file in ["7/f", "0008/f", "08/f", "temporary/f", "-1/f", "1.5/f", ".9/f"] {
        versions.write(file, "");
    }
    versions.write("99", "a file").write(&format!("{}/f", u64::MAX), "beyond int64");
    let found = versions.directory().versions().expect("it is readable");
    assert_eq!(found, [(7, "7".to_owned()), (8, "0008".to_owned())].into());
}

#[test]
fn a_missing_directory_is_an_error_of_its_own() {
    let versions = Versions::new();
    versions.write("file", "");
    for path in ["nowhere", "file"] {
        let directory = versions.fixture.store.directory(&versions.base.join(path));
        let error = directory.versions().expect_err("it is no directory");
        assert!(matches!(error, Error::NoDirectory(_)), "{error:?}");
        assert_eq!(error.reason(), Reason::ModelNotFound);
    }
}

#[test]
fn the_digest_is_that_of_sorted_lines_of_sha256sum() {
    let versions = Versions::new();
    versions.write("7/b", "two").write("7/a/z", "one").write("7/a.txt", "");
    let line =
        |content: &str, name: &str| format!("{}  {name}\n", Digest::of(content.as_bytes()).hex());
    let lines = [line("", "a.txt"), line("one", "a/z"), line("two", "b")].concat();
    assert_eq!(versions.digest("7"), Digest::of(lines.as_bytes()));
}

#[test]
fn the_digest_depends_on_content_and_names_alone() {
    let versions = Versions::new();
    versions.write("1/a", "one").write("2/a", "one").write("3/b", "one").write("4/a", "two");
    fs::create_dir(versions.base.join("2/empty")).expect("a directory");
    let digests = ["1", "2", "3", "4"].map(|version| versions.digest(version));
    assert_eq!(digests[0], digests[1], "an empty directory is not part of it");
    assert!(digests[0] != digests[2] && digests[0] != digests[3]);
}

#[test]
fn the_fingerprint_changes_with_names_sizes_and_times() {
    let versions = Versions::new();
    versions.write("7/a", "one");
    let fingerprint = || versions.files("7").expect("listed").fingerprint();
    let first = fingerprint();
    assert_eq!(fingerprint(), first);
    let file = File::options().write(true).open(versions.base.join("7/a")).expect("there");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).expect("set");
    let touched = fingerprint();
    file.set_len(2).expect("cut");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).expect("set");
    let cut = fingerprint();
    versions.write("7/b", "");
    let all = [first, touched, cut, fingerprint()];
    let different: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{all:?}");
}

/// `rsync -t` and `cp -p` leave such files.
#[test]
fn other_content_of_the_same_size_and_time_has_another_fingerprint() {
    let versions = Versions::new();
    let path = versions.base.join("7/a");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let written = |content: &str| {
        versions.write("7/a", content);
        let file = File::options().write(true).open(&path).expect("there");
        file.set_modified(time).expect("set");
        let metadata = fs::metadata(&path).expect("there");
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let first_change = written("one");
    let first = versions.files("7").expect("listed").fingerprint();
    // The file system's clock may stand still for some milliseconds.
    while written("two") == first_change {}
    assert_ne!(versions.files("7").expect("listed").fingerprint(), first);
}

#[test]
fn links_within_the_directory_count_as_the_files_they_lead_to() {
    let versions = Versions::new();
    versions.write("7/a", "one").write("shared/weights", "two");
    versions.link("7/b", "a").link("7/c", "../shared/weights");
    let base = versions.base.display().to_string();
    versions.link("8", "7").link("9/a", &format!("{base}/7/a"));
    versions.write("plain/a", "one").write("plain/b", "one").write("plain/c", "two");
    assert_eq!(versions.digest("7"), versions.digest("plain"));
    assert_eq!(versions.digest("8"), versions.digest("plain"));
    assert_eq!(versions.files("9").expect("listed").find("a").expect("there").size, 3);
}

#[test]
fn links_that_leave_the_directory_and_special_files_are_refused() {
    let versions = Versions::new();
    let outside = versions.fixture.dir.path().join("secret");
    fs::write(&outside, "secret").expect("written");
    versions.link("1/f", &outside.display().to_string()).link("2/f", "../../secret");
    versions.write("3/f", "").link("4/f", "../3").link("5/f", "nothing").link("6/f", "f");
    versions.link("7/f", "/dev/null").link("8", "../models-elsewhere");
    fs::create_dir(versions.fixture.dir.path().join("models-elsewhere")).expect("a directory");
    fs::create_dir(versions.base.join("9")).expect("a directory");
    let _socket = UnixListener::bind(versions.base.join("9/f")).expect("a socket");
    versions.link("10/f", "../9/f");
    use VersionProblem as P;
    for version in ["1", "2", "7", "8"] {
        assert!(matches!(versions.problem(version), P::LinkOutside(_)), "{version}");
    }
    assert!(matches!(versions.problem("4"), P::LinkDirectory(name) if name == "f"));
    for version in ["5", "6"] {
        assert!(matches!(versions.problem(version), P::LinkTarget(_)), "{version}");
    }
    for version in ["9", "10"] {
        assert!(matches!(versions.problem(version), P::Kind(_)), "{version}");
    }
}

#[test]
fn names_and_sizes_are_bounded() {
    let fixture = Fixture::with(|config| {
        config.limits = UnpackLimits { max_bytes: ByteSize(100), max_entries: 5 };
    });
    let versions = Versions::in_store(fixture);
    versions.write("1/a", &"x".repeat(101));
    for number in 0..6 {
        versions.write(&format!("2/{number}"), "");
    }
    versions.write("3/a\nb", "").write("4/a\\b", "");
    use VersionProblem as P;
    assert!(matches!(versions.problem("1"), P::TooLarge(_)));
    assert!(matches!(versions.problem("2"), P::TooManyEntries(5)));
    assert!(matches!(versions.problem("3"), P::Name(_)));
    assert!(matches!(versions.problem("4"), P::Name(_)));
    versions.write("5/f", "").write("6/f", "");
    let error = versions.directory().versions().expect_err("six entries");
    assert!(matches!(error, Error::Version { problem: P::TooManyEntries(5), .. }), "{error:?}");
    let deep = Versions::new();
    deep.write(&format!("1/{}f", "d/".repeat(64)), "");
    deep.write(&format!("2/{}/{}", "n".repeat(200), "m".repeat(200)), "");
    let long = ["n"; 6].map(|part| part.repeat(200)).join("/");
    deep.write(&format!("3/{long}"), "");
    assert!(matches!(deep.problem("1"), P::TooDeep(_)));
    assert!(deep.files("2").is_ok());
    assert!(matches!(deep.problem("3"), P::NameTooLong(_)));
}

#[test]
fn a_version_that_mirrors_data_becomes_a_tree() {
    let versions = Versions::new();
    versions.package("7").write("7/golden.jsonl", "{}");
    let tree = versions.taken("7").expect("it is a package");
    assert_eq!(*tree.digest(), versions.digest("7"));
    assert_eq!(
        fs::read_to_string(tree.model_dir().join("saved_model.pb")).expect("copied"),
        "graph"
    );
    assert!(tree.golden().is_some() && tree.model() == std::path::Path::new(MODEL));
    fs::remove_dir_all(versions.base.join("7")).expect("removed");
    let again = versions.fixture.store.tree(tree.digest()).expect("the store has a copy");
    assert_eq!(again.metadata_bytes().expect("there"), br#"{"framework": "tensorflow"}"#);
}

#[test]
fn a_version_that_is_a_models_directory_becomes_a_tree() {
    let versions = Versions::new();
    versions.write("7/metadata.json", r#"{"framework": "tensorflow"}"#);
    versions.write("7/saved_model.pb", "graph").write("7/variables/variables.index", "index");
    versions.write("7/golden.jsonl", "{}");
    let tree = versions.taken("7").expect("it is a model");
    assert_eq!(tree.model(), std::path::Path::new(MODEL));
    assert!(tree.model_dir().join("variables/variables.index").is_file());
    assert!(tree.golden().is_some() && !tree.model_dir().join("golden.jsonl").exists());
}

#[test]
fn a_version_without_metadata_is_refused_with_the_reason() {
    let versions = Versions::new();
    versions.write("1/saved_model.pb", "graph");
    let error = versions.taken("1").expect_err("refused");
    assert!(error.to_string().contains("it has no metadata.json"), "{error}");
    versions.write("2/metadata.json", r#"{"framework": "tensorflow"}"#);
    let error = versions.taken("2").expect_err("no model");
    assert!(matches!(error, Error::Package { .. }), "{error:?}");
    assert!(versions.is_empty());
}

/// Describes the model by its file, unless that is malformed.
const DESCRIBER: Describer = Describer {
    file: "saved_model.pb",
    describe: |model| {
        let graph = fs::read_to_string(model.join("saved_model.pb")).expect("copied");
        match graph.as_str() {
            "graph" => Ok(r#"{"framework": "tensorflow"}"#.to_owned()),
            _ => Err(Failure::new(Reason::ImageInvalid, "malformed")),
        }
    },
};

#[test]
fn a_model_without_metadata_is_described_by_its_framework() {
    let layouts: Layouts = [("tensorflow", LAYOUT)].into_iter().collect();
    let layouts = layouts.with_describers([(LAYOUT, DESCRIBER)]);
    let versions = Versions::in_store(Fixture::with(|config| config.layouts = layouts));
    versions.write("7/saved_model.pb", "graph").write("7/golden.jsonl", "{}");
    let tree = versions.taken("7").expect("it is described");
    assert_eq!(*tree.digest(), versions.digest("7"), "the description is not part of it");
    assert_eq!(tree.metadata_bytes().expect("there"), br#"{"framework": "tensorflow"}"#);
    assert!(tree.golden().is_some() && tree.model() == std::path::Path::new(MODEL));
    assert!(!versions.base.join("7/metadata.json").exists(), "nothing is written there");
    versions.fixture.store.remove_tree(tree.digest()).expect("removed");
    versions.write("8/saved_model.pb", "text");
    let error = versions.taken("8").expect_err("it is malformed");
    assert_eq!(error.reason(), Reason::ImageInvalid);
    let message = error.to_string();
    assert!(message.ends_with("its model cannot be described: malformed"), "{message}");
    versions.write("9/other.pb", "graph");
    let message = versions.taken("9").expect_err("no known file").to_string();
    assert!(message.contains("no files of a model that is known without one"), "{message}");
    assert!(versions.is_empty());
}

#[test]
fn a_version_that_changes_meanwhile_is_not_taken() {
    let versions = Versions::new();
    versions.package("7");
    let (files, digest) = (versions.files("7").expect("listed"), versions.digest("7"));
    let model = versions.base.join("7").join(MODEL.strip_prefix("data/").expect("it lies there"));
    let error = |content: &str| {
        fs::write(model.join("saved_model.pb"), content).expect("written");
        versions.take(&files, digest).expect_err("it has changed")
    };
    for content in ["other", "longer than before"] {
        let error = error(content);
        assert!(matches!(error, Error::Changed(_)), "{content}: {error:?}");
        assert_eq!(error.reason(), Reason::RegistryUnavailable, "a later attempt may succeed");
    }
    fs::remove_file(model.join("saved_model.pb")).expect("there");
    symlink("/dev/null", model.join("saved_model.pb")).expect("linked");
    assert!(matches!(versions.take(&files, digest), Err(Error::Changed(_))));
    assert!(versions.is_empty());
}

#[test]
fn a_version_that_does_not_fit_leaves_nothing_behind() {
    let versions = Versions::in_store(Fixture::of_size(ByteSize::kib(64)));
    versions.package("7").write("7/large", &"x".repeat(100_000));
    let error = versions.taken("7").expect_err("it is larger than the store");
    assert_eq!(error.reason(), Reason::StoreFull, "{error:?}");
    assert!(versions.is_empty());
}
