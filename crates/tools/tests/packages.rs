//! push, pull and inspect over an image layout directory.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use outrigger_budget::Budget;
use outrigger_oci::Artifact;
use outrigger_testkit::{
    package::{Framework, Package},
    registry::{Signer, statement},
    saved_model::{Linear, package_dir},
};
use outrigger_tfserving::TENSORFLOW;
use outrigger_tools::{
    Error,
    engine::Program,
    fetch::Source,
    inspect::{self, Report},
    package,
    registry::{self, Client, Progress, Reference},
    validate,
};

const GOLDEN: &str = r#"{"request": {"treatments": [{"features": {"t0": 1, "t1": 1}}]},
    "expected": {"scores": [5]}, "rtol": 0, "atol": 0}"#;

fn client() -> Client {
    // Fails if another test has installed the provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    registry::client(Vec::new(), None).expect("a client")
}

fn package_in(directory: &Path) {
    let model = Linear { user: vec![1.0], treatment: vec![2.0, 3.0], bias: 0.0 }.model();
    package_dir(directory, &model).expect("a package");
    fs::write(directory.join("golden.jsonl"), GOLDEN).expect("golden cases");
}

fn layout(directory: &Path, tag: &str) -> Reference {
    format!("oci:{}:{tag}", directory.join("layout").display()).parse().expect("a reference")
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("dev.example.run".to_owned(), "7".to_owned())])
}

async fn inspected(source: Source) -> Report {
    inspect::inspect(&client(), &source, &[], &[TENSORFLOW], &Progress::default())
        .await
        .expect("a report")
}

#[tokio::test]
async fn a_pulled_package_can_be_pushed_again_as_the_same_image() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (made, pulled) = (scratch.path().join("made"), scratch.path().join("pulled"));
    package_in(&made);
    let (first, second) = (layout(scratch.path(), "first"), layout(scratch.path(), "second"));
    let digest =
        package::push(&client(), &made, &first, labels(), &[TENSORFLOW]).await.expect("a push");
    let progress = Progress::default();
    let there =
        package::pull(&client(), &first, &pulled, &[TENSORFLOW], &progress).await.expect("a pull");
    assert_eq!(there, digest);
    assert!(progress.bytes() > 0);
    let again =
        package::push(&client(), &pulled, &second, labels(), &[TENSORFLOW]).await.expect("a push");
    assert_eq!(again, digest);
}

#[tokio::test]
async fn a_pull_overwrites_nothing() {
    let scratch = tempfile::tempdir().expect("a directory");
    let reference = layout(scratch.path(), "none");
    let pull =
        package::pull(&client(), &reference, scratch.path(), &[TENSORFLOW], &Progress::default())
            .await;
    assert!(matches!(pull, Err(Error::Usage(_))), "{pull:?}");
    let nothing = scratch.path().join("nothing");
    let pull =
        package::pull(&client(), &reference, &nothing, &[TENSORFLOW], &Progress::default()).await;
    assert!(matches!(pull, Err(Error::Failed(_))), "{pull:?}");
    assert!(!nothing.exists());
}

#[tokio::test]
async fn inspect_reports_the_place_of_each_feature() {
    let scratch = tempfile::tempdir().expect("a directory");
    let made = scratch.path().join("made");
    package_in(&made);
    let reference = layout(scratch.path(), "latest");
    let digest =
        package::push(&client(), &made, &reference, labels(), &[TENSORFLOW]).await.expect("a push");
    let report = inspected(Source::Image(reference)).await;
    assert_eq!(report.digest, digest.to_string());
    assert_eq!(report.labels, labels());
    let treatment = report.features.iter().filter(|feature| feature.entity == "treatment");
    assert_eq!(treatment.map(|feature| feature.offset).collect::<Vec<_>>(), [0, 1]);
    assert!(report.inputs.len() >= 3 && report.outputs.len() == 1, "{report:?}");
    let treatment = report.inputs.iter().find(|input| input.name == "treatment");
    let treatment = treatment.expect("an input of the model");
    assert_eq!(treatment.dtype, "float32");
    assert_eq!(treatment.shape.as_deref(), Some(&[-1, -1, 2][..]));
    let text = report.text();
    assert!(text.contains(&digest.to_string()) && text.contains("label      dev.example.run=7"));
}

#[tokio::test]
async fn a_framework_that_no_engine_takes_is_refused() {
    let scratch = tempfile::tempdir().expect("a directory");
    let made = scratch.path().join("made");
    package_in(&made);
    let file = made.join("metadata.json");
    let metadata = fs::read_to_string(&file).expect("metadata");
    fs::write(&file, metadata.replace("\"tensorflow\"", "\"torch\"")).expect("written");
    let (source, progress) = (Source::Directory(made), Progress::default());
    let message = "ENGINE_NOT_CHOSEN: no engine runs models of torch; known frameworks: tensorflow";
    let error = inspect::inspect(&client(), &source, &[], &[TENSORFLOW], &progress)
        .await
        .expect_err("refused");
    assert_eq!(error.to_string(), message);
    let timeout = Duration::from_secs(10);
    let report =
        validate::validate(&client(), &source, (None, &[TENSORFLOW]), None, timeout, &progress)
            .await;
    let text = report.expect("a report").text();
    assert!(text.contains(message), "{text}");
}

/// A program that must not be started: all models run in this process.
fn in_this_process() -> Program {
    Program {
        binary: "/nonexistent".into(),
        arguments: Vec::new(),
        flags: |_, _| Ok(Vec::new()),
        connect: |_, _| unreachable!("it does not start"),
        in_process: |_| Some(Arc::new(outrigger_forest::engine(&Budget::unlimited()))),
        other: |_| Ok(None),
        passes: 1,
        for_batching: false,
    }
}

#[tokio::test]
async fn lines_that_a_lenient_model_skips_are_reported() {
    let scratch = tempfile::tempdir().expect("a directory");
    let made = scratch.path().join("made");
    let package = Package { framework: Framework::GbdtFm, ..Package::default() };
    package.write(&made).expect("a package");
    let validated = async || {
        let (source, progress) = (Source::Directory(made.clone()), Progress::default());
        let engine = (Some(&in_this_process()), &outrigger_forest::FRAMEWORKS[..]);
        let timeout = Duration::from_secs(10);
        let report = validate::validate(&client(), &source, engine, None, timeout, &progress).await;
        report.expect("a report").text()
    };
    let text = validated().await;
    assert!(!text.contains("skipped entries"), "{text}");
    // A lenient reading takes lines with vectors only, as XGBoost Serving does.
    let file = made.join("gbdt_fm/deploy.fm");
    let machine = fs::read_to_string(&file).expect("a machine");
    let (bias, lines) = machine.split_once('\n').expect("lines");
    let lines: String = lines.lines().map(|line| format!("{line} 0\n")).collect();
    fs::write(&file, format!("{bias}\nx 1 0\n{lines}7\n")).expect("written");
    fs::write(made.join("gbdt_fm/options.json"), r#"{"lenient": true}"#).expect("written");
    let text = validated().await;
    let expected = "ok       files: skipped entries of the model's files: 2; of the first one, the \
                    FM file is invalid in line 2: \"x\" is no id";
    assert!(text.contains(expected), "{text}");
}

#[tokio::test]
async fn a_directory_is_inspected_like_its_image() {
    let scratch = tempfile::tempdir().expect("a directory");
    let made = scratch.path().join("made");
    package_in(&made);
    let source = Source::parse(made.to_str().expect("utf-8")).expect("a directory");
    let report = inspected(source).await;
    assert_eq!(report.features.len(), 3);
    assert!(report.labels.is_empty());
}

#[tokio::test]
async fn with_a_key_only_signed_images_are_inspected() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (made, file) = (scratch.path().join("made"), scratch.path().join("cosign.pub"));
    package_in(&made);
    let signer = Signer::new();
    fs::write(&file, signer.public_key()).expect("a key");
    let keys = inspect::read_keys(&[file]).expect("a key");
    let reference = layout(scratch.path(), "latest");
    let digest =
        package::push(&client(), &made, &reference, labels(), &[TENSORFLOW]).await.expect("a push");
    let inspected = async || {
        let source = Source::Image(reference.clone());
        inspect::inspect(&client(), &source, &keys, &[TENSORFLOW], &Progress::default()).await
    };
    let failure = inspected().await.expect_err("not signed");
    assert!(failure.to_string().starts_with("SIGNATURE_MISSING"), "{failure}");
    let bundle = Artifact {
        artifact_type: "application/vnd.dev.sigstore.bundle.v0.3+json",
        document: signer.bundle(&statement(digest)).to_string().into(),
        annotations: BTreeMap::new(),
    };
    client().attach(&reference, digest, &bundle).await.expect("signed");
    let report = inspected().await.expect("signed");
    assert_eq!(report.signed_by, Some(keys[0].fingerprint().to_string()));
    assert!(report.text().contains("signed by  sha256:"));

    let directory = Source::parse(made.to_str().expect("utf-8")).expect("a directory");
    let signed =
        inspect::inspect(&client(), &directory, &keys, &[TENSORFLOW], &Progress::default()).await;
    assert!(signed.expect_err("no image").is_usage());
    let nothing = inspect::read_keys(&[scratch.path().join("nothing")]);
    assert!(nothing.expect_err("no file").is_usage());
}

#[tokio::test]
async fn text_that_is_neither_a_directory_nor_an_image_is_a_usage_error() {
    let error = Source::parse("no/such/place").expect_err("not a source");
    assert!(error.is_usage(), "{error}");
}
