use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use flate2::read::GzDecoder;
use outrigger_core::{Describer, Failure, LayerKind, PackageLayout};

use super::*;

const LARGE: &str = "tensorflow_serving_model/model/variables/variables.data-00000-of-00001";

fn package() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "metadata.json", b"{}");
    write(&directory, "tensorflow_serving_model/model/saved_model.pb", b"graph");
    write(&directory, "tensorflow_serving_model/model/variables/variables.index", b"index");
    write(&directory, LARGE, &vec![7; OWN_LAYER as usize]);
    directory
}

fn write(directory: &tempfile::TempDir, name: &str, content: &[u8]) {
    let path = directory.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn layouts() -> Layouts {
    let layout = |directory| PackageLayout {
        directory,
        files: &["model"],
        parts: &[],
        max_file: 1,
        versioned: false,
    };
    let tensorflow = layout("tensorflow_serving_model/model");
    [("tensorflow", tensorflow), ("linear", layout("linear"))].into_iter().collect()
}

fn build(directory: &tempfile::TempDir) -> ImageToPush {
    let labels = BTreeMap::from([("dev.outrigger.x".to_owned(), "y".to_owned())]);
    image_from_dir(directory.path(), labels, &layouts()).unwrap()
}

fn content(layer: &LayerToPush) -> Vec<u8> {
    let Content::File { path, .. } = &layer.content else { panic!("in a file") };
    let packed = fs::read(path).unwrap();
    assert_eq!(Digest::of(&packed), layer.layer.digest);
    assert_eq!(packed.len() as u64, layer.layer.size);
    if layer.layer.kind == LayerKind::Tar {
        return packed;
    }
    let mut plain = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
    plain
}

fn names(archive: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (0, 0));
        entry.path().unwrap().to_str().unwrap().to_owned()
    });
    entries.collect()
}

#[test]
fn a_large_file_has_a_layer_of_its_own_and_the_rest_shares_one() {
    let image = build(&package());
    let [small, large] = image.layers.as_slice() else { panic!("{:?}", image.layers) };
    assert_eq!((small.layer.kind, large.layer.kind), (LayerKind::TarGzip, LayerKind::Tar));
    let expected = [
        "data/",
        "data/metadata.json",
        "data/tensorflow_serving_model/",
        "data/tensorflow_serving_model/model/",
        "data/tensorflow_serving_model/model/saved_model.pb",
        "data/tensorflow_serving_model/model/variables/",
        "data/tensorflow_serving_model/model/variables/variables.index",
    ];
    assert_eq!(names(&content(small)), expected);
    assert_eq!(names(&content(large)), [format!("data/{LARGE}")]);
}

#[test]
fn the_same_files_give_the_same_digest_whenever_they_were_written() {
    let (one, other) = (package(), package());
    let late = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_900_000_000);
    let metadata = other.path().join("metadata.json");
    fs::File::options().write(true).open(&metadata).unwrap().set_modified(late).unwrap();
    fs::set_permissions(&metadata, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(build(&one).digest(), build(&other).digest());
}

#[test]
fn a_package_keeps_the_digest_it_has_always_had() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "metadata.json", b"{}");
    write(&directory, "tensorflow_serving_model/model/saved_model.pb", b"graph");
    let image = build(&directory);
    let archive = Digest::of(&content(&image.layers[0]));
    // The digest of the uncompressed archive must never change; that of the layer may, with the
    // compressor's version.
    assert_eq!(archive.to_string(), DIFF_ID);
    let config = String::from_utf8(image.config.to_vec()).unwrap();
    assert_eq!(
        config,
        format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Labels":{{"dev.outrigger.x":"y"}}}},"rootfs":{{"type":"layers","diff_ids":["{DIFF_ID}"]}}}}"#
        )
    );
}

const DIFF_ID: &str = "sha256:8b63d1ba8dd42183185f08ae4a2b44d775007611914b50bc8bac749a47c74441";

#[test]
fn versions_share_unchanged_layers() {
    let directory = package();
    let digests = |image: &ImageToPush| -> BTreeSet<_> {
        image.layers.iter().map(|layer| layer.layer.digest).collect()
    };
    let first = build(&directory);
    write(&directory, "metadata.json", b"{ }");
    let second = build(&directory);
    assert_ne!(first.digest(), second.digest());
    assert_eq!(digests(&first).intersection(&digests(&second)).count(), 1);
}

#[test]
fn labels_are_in_the_configuration_and_in_the_annotations() {
    let image = build(&package());
    assert_eq!(crate::manifest::labels("x", &image.config).unwrap(), image.annotations);
    assert_eq!(image.annotations["dev.outrigger.x"], "y");
}

#[test]
fn a_directory_that_is_no_package_is_refused() {
    let refusal = |directory: &tempfile::TempDir| {
        image_from_dir(directory.path(), BTreeMap::new(), &layouts()).unwrap_err()
    };
    let directory = package();
    fs::remove_file(directory.path().join("metadata.json")).unwrap();
    assert!(refusal(&directory).to_string().contains("no metadata.json"));
    write(&directory, "tensorflow_serving_model/metadata.json", b"{}");
    assert!(image_from_dir(directory.path(), BTreeMap::new(), &layouts()).is_ok());

    fs::remove_dir_all(directory.path().join("tensorflow_serving_model/model")).unwrap();
    assert!(matches!(refusal(&directory), BuildError::NoModel { .. }));

    let directory = package();
    symlink("/etc/passwd", directory.path().join("link")).unwrap();
    assert!(refusal(&directory).to_string().contains("a symbolic link"));

    let missing = image_from_dir(&directory.path().join("nowhere"), BTreeMap::new(), &layouts());
    assert!(matches!(missing.unwrap_err(), BuildError::Io { .. }));
}

#[test]
fn a_package_holds_the_model_of_the_framework_that_it_names() {
    let directory = package();
    let packed = |framework: &str| {
        let metadata = format!("{{\"framework\": \"{framework}\"}}");
        write(&directory, "metadata.json", metadata.as_bytes());
        image_from_dir(directory.path(), BTreeMap::new(), &layouts())
    };
    assert!(packed("tensorflow").is_ok());
    let error = packed("linear").unwrap_err();
    assert!(error.to_string().ends_with("it has no directory linear"), "{error}");
    let error = packed("onnx").unwrap_err();
    assert_eq!(error.reason(), Reason::EngineNotChosen);
    assert!(error.to_string().ends_with("known frameworks: linear, tensorflow"), "{error}");
    write(&directory, "linear/model", b"{}");
    assert!(packed("linear").is_ok());
}

#[test]
fn a_model_beside_its_metadata_gives_the_same_image() {
    let flat = tempfile::tempdir().unwrap();
    write(&flat, "metadata.json", br#"{"framework": "linear"}"#);
    write(&flat, "golden.jsonl", b"");
    write(&flat, "model", b"x");
    write(&flat, "parts/a", b"x");
    let whole = tempfile::tempdir().unwrap();
    write(&whole, "metadata.json", br#"{"framework": "linear"}"#);
    write(&whole, "golden.jsonl", b"");
    write(&whole, "linear/model", b"x");
    write(&whole, "linear/parts/a", b"x");
    assert_eq!(build(&flat).digest(), build(&whole).digest());

    fs::remove_file(flat.path().join("metadata.json")).unwrap();
    let describer = |describe: fn(&Path) -> Result<String, Failure>| {
        let layouts = layouts();
        let linear = *layouts.all().find(|layout| layout.directory == "linear").unwrap();
        layouts.with_describers([(linear, Describer { file: "model", describe })])
    };
    let known = describer(|_| Ok(r#"{"framework": "linear"}"#.to_owned()));
    let described = image_from_dir(flat.path(), BTreeMap::new(), &known).unwrap();
    let written = image_from_dir(whole.path(), BTreeMap::new(), &known).unwrap();
    assert_eq!(described.digest(), written.digest());
    let failing = describer(|_| Err(Failure::new(Reason::ImageInvalid, "it is cut off")));
    let error = image_from_dir(flat.path(), BTreeMap::new(), &failing).unwrap_err().to_string();
    assert!(error.ends_with("cannot be described: it is cut off"), "{error}");
}

#[test]
fn labels_of_the_image_that_was_pulled_are_kept() {
    let directory = package();
    let origin = Origin {
        image: "registry.example/churn:v1".parse().unwrap(),
        labels: [("kept", "1"), ("dev.outrigger.x", "old")].map(owned).into(),
        annotations: [("note", "2")].map(owned).into(),
        packed: None,
    };
    origin.write(directory.path()).unwrap();
    assert_eq!(Origin::read(directory.path()).unwrap(), Some(origin));
    let image = build(&directory);
    let labels = crate::manifest::labels("x", &image.config).unwrap();
    assert_eq!(labels, [("dev.outrigger.x", "y"), ("kept", "1")].map(owned).into());
    let all = [("dev.outrigger.x", "y"), ("kept", "1"), ("note", "2")];
    assert_eq!(image.annotations, all.map(owned).into());
    assert!(names(&content(&image.layers[0])).iter().all(|name| !name.contains("outrigger")));
    fs::write(directory.path().join(".outrigger-image.json"), "{").unwrap();
    let error = image_from_dir(directory.path(), BTreeMap::new(), &layouts()).unwrap_err();
    assert!(error.to_string().contains(".outrigger-image.json"), "{error}");
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn temporary_files_are_removed_with_the_image() {
    let image = build(&package());
    let Content::File { path, .. } = image.layers[0].content.clone() else { panic!("in a file") };
    assert!(path.exists());
    drop(image);
    assert!(!path.exists());
}
