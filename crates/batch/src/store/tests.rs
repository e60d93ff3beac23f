use std::fs;

use super::*;

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::local(directory.path().join("a/b"));
    (directory, store)
}

#[test]
fn an_object_is_created_once() {
    let (_directory, store) = store();
    assert_eq!(store.read("commit/0.json").expect("read"), None);
    assert!(store.create("commit/0.json", b"first").expect("created"));
    assert!(!store.create("commit/0.json", b"second").expect("refused"));
    assert_eq!(store.read("commit/0.json").expect("read"), Some(b"first".to_vec()));
    assert_eq!(store.read_start("commit/0.json", 2).expect("read"), Some(b"fi".to_vec()));
    assert_eq!(store.read_start("commit/2.json", 2).expect("read"), None);
    store.create("commit/1.json", b"").expect("created");
    assert_eq!(store.list("commit").expect("listed"), ["0.json", "1.json"]);
    assert_eq!(store.list("data").expect("listed"), Vec::<String>::new());
    let names = ["commit/1.json", "commit/2.json"].map(str::to_owned);
    assert_eq!(store.read_all(&names).expect("read"), [Some(Vec::new()), None]);
}

#[test]
fn a_directory_is_no_object() {
    let (directory, store) = store();
    store.create("data/0.parquet", b"rows").expect("created");
    std::fs::create_dir(directory.path().join("a/b/data/_delta_log")).expect("a directory");
    assert_eq!(store.list("data").expect("listed"), ["0.parquet"]);
    store.sweep("data").expect("it is left alone");
}

#[test]
fn an_object_that_is_not_finished_is_not_there() {
    let (_directory, store) = store();
    let mut object = store.begin("data/0").expect("begun");
    object.write_all(b"half").expect("written");
    assert_eq!(store.list("data").expect("listed"), Vec::<String>::new());
    // The process ends here: the file is left, and removed later.
    std::mem::forget(object);
    let entries = || fs::read_dir(store.root().join("data")).expect("a directory").count();
    assert_eq!(entries(), 1);
    let data = Store::local(store.root().join("data"));
    assert!(data.is_empty().expect("read") && !store.is_empty().expect("read"));
    store.sweep("data").expect("swept");
    assert_eq!(entries(), 0);
}

#[test]
fn a_link_in_the_place_of_a_directory_leads_nowhere() {
    let (directory, store) = store();
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    for name in ["00000000-00000000.parquet", ".outrigger-0"] {
        fs::write(elsewhere.join(name), "of others").expect("a file");
    }
    let object = store.begin("data/00000000-00000001.parquet").expect("begun");
    fs::rename(store.root().join("data"), store.root().join("moved")).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, store.root().join("data")).expect("a link");
    assert!(object.finish().expect("it has its directory"));
    assert!(store.create("data/00000000-00000001.parquet", b"").is_err());
    assert!(store.replace("data/00000000-00000000.parquet", b"").is_err());
    assert!(store.list("data").is_err() && store.sweep("data").is_err());
    assert!(store.remove("data/00000000-00000000.parquet").is_err());
    assert!(store.read("data/00000000-00000000.parquet").is_err());
    assert_eq!(fs::read_dir(&elsewhere).expect("a directory").count(), 2);
    // The root is the directory that it was, too.
    fs::rename(store.root(), directory.path().join("a/c")).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, store.root()).expect("a link");
    store.remove("00000000-00000000.parquet").expect("there is none");
    assert_eq!(fs::read_dir(&elsewhere).expect("a directory").count(), 2);
}

#[test]
fn replacing_and_removing_leave_one_object_or_none() {
    let (_directory, store) = store();
    store.replace("lease/0", b"a").expect("written");
    store.replace("lease/0", b"b").expect("written");
    assert_eq!(store.read("lease/0").expect("read"), Some(b"b".to_vec()));
    store.remove("lease/0").expect("removed");
    store.remove("lease/0").expect("nothing to remove");
    assert_eq!(store.list("lease").expect("listed"), Vec::<String>::new());
}

#[test]
fn the_places_in_directories_are_found() {
    let (_directory, store) = store();
    assert_eq!(store.directories().expect("listed").len(), 0);
    for name in ["b/plan.json", "a/plan.json", "c"] {
        store.create(name, b"").expect("created");
    }
    let places = store.directories().expect("listed");
    let roots: Vec<_> = places.iter().map(Store::root).collect();
    assert_eq!(roots, [store.root().join("a"), store.root().join("b")]);
    assert_eq!(places[0].read("plan.json").expect("read"), Some(Vec::new()));
}

#[test]
fn wrong_locations_are_refused() {
    for location in ["http://host/a", "s3://", "s3://key:secret@bucket"] {
        let refused = Store::at(Path::new(location));
        assert!(matches!(refused, Err(Error::Usage(_))), "{location}");
    }
    let local = Store::at(Path::new("a/b")).expect("a directory");
    assert_eq!(local.root(), Path::new("a/b"));
}
