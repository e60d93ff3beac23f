use std::os::unix::fs::{MetadataExt as _, symlink};

use tempfile::TempDir;

use super::*;

const MODEL: &str = "m-1111111111111111";

/// A package with the models `m` and `step`, and a repository.
struct Bench {
    directory: TempDir,
    repository: Repository,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let repository =
            Repository::open(directory.path().join("repository")).expect("a directory");
        let bench = Self { directory, repository };
        bench.file("m/config.pbtxt", "name: \"m\" step { model_name: \"step\" }");
        bench.file("m/1/model.py", "code");
        bench.file("step/model-settings.json", r#"{"name": "step"}"#);
        bench
    }

    fn models(&self) -> PathBuf {
        self.directory.path().join("oip")
    }

    fn file(&self, name: &str, content: &str) {
        let file = self.models().join(name);
        fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        fs::write(file, content).expect("written");
    }

    fn publish(&self, digest: Digest) -> Result<Vec<Arc<str>>, Failure> {
        self.repository.publish(&self.models(), &["step".into(), "m".into()], digest)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.repository.root.join(name)).expect("a file")
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.repository.root).expect("a directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        entries.map(|entry| name(entry).into_string().expect("a name")).collect()
    }
}

fn digest(digit: u8) -> Digest {
    let digit = char::from(b'0' + digit).to_string();
    format!("sha256:{}", digit.repeat(64)).parse().expect("a digest")
}

#[test]
fn versions_are_published_beside_each_other_with_names_of_their_own() {
    let bench = Bench::new();
    let names = bench.publish(digest(1)).expect("published");
    assert_eq!(names, ["step-1111111111111111", MODEL].map(Arc::from));
    bench.publish(digest(2)).expect("published");
    assert_eq!(bench.names().len(), 4);
    let configuration = bench.read(&format!("{MODEL}/config.pbtxt"));
    assert_eq!(
        configuration,
        "name: \"m-1111111111111111\" step { model_name: \"step-1111111111111111\" }"
    );
    assert!(
        bench.read("step-2222222222222222/model-settings.json").contains("step-2222222222222222")
    );
    assert_eq!(bench.read(&format!("{MODEL}/1/model.py")), "code");
    let kept = fs::read_to_string(bench.models().join("m/config.pbtxt")).expect("a file");
    assert!(kept.starts_with("name: \"m\""), "the package stays as it is");
}

#[test]
fn files_share_the_content_of_the_package() {
    let bench = Bench::new();
    symlink("model.py", bench.models().join("m/1/link.py")).expect("a link");
    bench.publish(digest(1)).expect("published");
    let inode = |path: PathBuf| fs::symlink_metadata(path).expect("a file").ino();
    let place = bench.repository.root.join(MODEL).join("1");
    let own = inode(bench.models().join("m/1/model.py"));
    assert_eq!(inode(place.join("model.py")), own);
    assert_eq!(inode(place.join("link.py")), own, "a link is followed");
}

#[test]
fn code_of_mlserver_has_names_of_its_own_in_each_version() {
    let bench = Bench::new();
    let settings = |class: &str| format!(r#"{{"implementation": "{class}"}}"#);
    bench.file("m/model-settings.json", &settings("package.models.M"));
    bench.file("m/package/models.py", "code");
    bench.file("step/model-settings.json", &settings("mlserver_sklearn.SKLearnModel"));
    let implementation = |name: &str| {
        let settings = bench.read(&format!("{name}/model-settings.json"));
        let settings: serde_json::Value = serde_json::from_str(&settings).expect("JSON");
        settings["implementation"].as_str().expect("a class").to_owned()
    };
    let classes = [1, 2].map(|number| {
        let names = bench.publish(digest(number)).expect("published");
        assert_eq!(implementation(&names[0]), "mlserver_sklearn.SKLearnModel");
        let class = implementation(&names[1]);
        let module = class.strip_suffix(".OutriggerModel").expect("the model of a module");
        let code = bench.read(&format!("{}/{module}.py", names[1]));
        assert!(code.starts_with("IMPLEMENTATION = \"package.models.M\"\n"), "{code}");
        class
    });
    assert_ne!(classes[0], classes[1]);
}

#[test]
fn published_models_stay_until_their_version_is_removed() {
    let bench = Bench::new();
    bench.publish(digest(1)).expect("published");
    bench.publish(digest(2)).expect("published");
    fs::write(bench.repository.root.join(MODEL).join("trace"), "").expect("written");
    bench.publish(digest(1)).expect("published again");
    bench.read(&format!("{MODEL}/trace"));
    let carried = ["step".into(), "m".into()];
    assert!(bench.repository.has(&carried, digest(1)));
    bench.repository.remove(digest(1)).expect("removed");
    assert!(!bench.repository.has(&carried, digest(1)));
    assert!(bench.repository.has(&carried, digest(2)));
}

#[test]
fn leftovers_of_earlier_processes_are_removed_and_others_directories_stay() {
    let bench = Bench::new();
    bench.publish(digest(1)).expect("published");
    bench.publish(digest(2)).expect("published");
    for name in ["another", ".outrigger-m-3", "plain-1111111111111111"] {
        fs::create_dir(bench.repository.root.join(name)).expect("a directory");
    }
    let removed = bench.repository.keep(&[digest(2)].into()).expect("removed");
    let removed: BTreeSet<_> = removed.into_iter().collect();
    assert_eq!(removed, ["step-1111111111111111", MODEL].map(Arc::from).into());
    let kept = ["another", "m-2222222222222222", "plain-1111111111111111", "step-2222222222222222"];
    assert_eq!(bench.names(), kept.map(String::from).into());
}

#[test]
fn a_model_that_cannot_be_published_leaves_nothing() {
    let bench = Bench::new();
    fs::create_dir(bench.repository.root.join(MODEL)).expect("a directory");
    let failure = bench.publish(digest(1)).expect_err("another's directory");
    assert_eq!(failure.reason, Reason::Internal);
    assert!(fs::read_dir(bench.repository.root.join(MODEL)).expect("it stays").next().is_none());
    bench.file("m/config.pbtxt", "name: \"m");
    let failure = bench.publish(digest(2)).expect_err("malformed");
    assert_eq!(failure.reason, Reason::ImageInvalid);
    assert!(failure.message.starts_with("m/config.pbtxt: "), "{}", failure.message);
    assert!(!bench.names().contains("m-2222222222222222"));
}
