use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use outrigger_core::{EngineId, LayerKind, Reason};

use super::*;
use crate::testing::{Fixture, good, servable};

#[test]
fn a_new_store_has_its_directories_open_to_the_engine() {
    let fixture = Fixture::new();
    fixture.serving();
    for dir in ["", "blobs", "blobs/sha256", "partial", "trees", "serving", "journal"] {
        let mode = fs::metadata(fixture.path(dir)).expect(dir).permissions().mode();
        assert_eq!(mode & 0o777, 0o775, "{dir:?}");
    }
}

#[test]
fn a_path_that_is_no_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = Store::open(Config::new(&path)).expect_err("a file");
        assert!(error.to_string().contains("is not a directory"), "{error}");
        assert_eq!(error.reason(), Reason::Internal);
    }
    assert_eq!(fs::read(&file).unwrap(), b"");
}

#[test]
fn a_second_control_plane_is_refused_while_the_first_holds_the_lock() {
    let Fixture { store, dir } = Fixture::new();
    let config = Config::new(store.path());
    let error = Store::open(config.clone()).expect_err("locked");
    assert!(matches!(&error, Error::Locked(path) if path.ends_with("lock")), "{error:?}");
    let clone = store.clone();
    drop(store);
    assert!(Store::open(config.clone()).is_err(), "a clone still holds it");
    drop(clone);
    Store::open(config).expect("free again");
    drop(dir);
}

#[test]
fn a_store_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    fs::create_dir(&path).unwrap();
    // Not even root can write to a directory as a file.
    fs::create_dir(path.join("lock")).unwrap();
    let error = Store::open(Config::new(&path)).expect_err("no lock file");
    assert!(matches!(&error, Error::NotWritable { path: named, .. } if named.ends_with("store")));
    assert!(error.to_string().contains("cannot be written to"), "{error}");
}

/// With a limit of file size of zero, every write fails as on a full disk.
const FULL: &str = "OUTRIGGER_STORE_TEST_FULL";

#[test]
fn the_store_opens_on_a_full_disk() {
    if std::env::var_os(FULL).is_some() {
        let fixture = Fixture::new();
        let version = fixture.store.journal().next_version().expect("by the clock");
        assert_eq!(fixture.names("journal"), [""; 0]);
        let full = fixture.store.journal().save(&crate::Record::default()).expect_err("no room");
        assert_eq!(full.reason(), Reason::StoreFull);
        assert!(fixture.store.journal().next_version().expect("by the clock") > version);
        return;
    }
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe().expect("this test"))
        .arg("store::tests::the_store_opens_on_a_full_disk")
        .env(FULL, "1")
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn the_engine_path_must_be_absolute() {
    let serving = Fixture::new().store.serving(&EngineId::default(), Some(Path::new("models")));
    assert!(matches!(serving, Err(Error::EnginePath(_))));
}

#[test]
fn unfinished_items_are_removed_at_the_start_and_finished_ones_stay() {
    let Fixture { store, dir } = Fixture::new();
    let fixture = Fixture { store: store.clone(), dir };
    let layer = good().build(LayerKind::Tar);
    let tree = fixture.unpack(std::slice::from_ref(&layer)).expect("good");
    let id = servable("churn", 7);
    fixture.serving().publish(&id, &tree).expect("published");
    let root = store.path().to_owned();
    let serving = format!("serving/{}", id.name);
    drop(store);
    let Fixture { store, dir } = fixture;
    drop(store);

    fs::create_dir_all(root.join("trees/.tmp-1-2/data")).unwrap();
    fs::write(root.join("trees/.tmp-1-2/data/half"), b"x").unwrap();
    fs::create_dir(root.join("trees").join(Digest::of(b"no sidecar").hex())).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join(&serving).join(".tmp-1-3")).unwrap();
    fs::write(root.join("journal/.tmp-1-4"), b"{").unwrap();
    fs::write(root.join("partial").join(Digest::of(b"half").hex()), b"resumable").unwrap();

    let store = Store::open(Config::new(&root)).expect("opens again");
    let fixture = Fixture { store, dir };
    fixture.serving();
    assert_eq!(fixture.names("trees"), [tree.digest().hex()]);
    assert_eq!(fixture.names(&serving), ["7"]);
    assert_eq!(fixture.names("journal"), [""; 0]);
    assert_eq!(fixture.names("partial").len(), 1);
    assert!(fixture.store.has_blob(&layer.digest));
    assert_eq!(fixture.serving().published().unwrap()[0].tree, Some(*tree.digest()));
}

#[test]
fn the_store_is_shared_between_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Store>();
    shared::<Journal>();
}
