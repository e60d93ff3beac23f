use std::fs;

use outrigger_core::LayerKind;

use super::*;
use crate::testing::{Fixture, MODEL, good, servable};

fn fixture() -> (Fixture, Tree) {
    let fixture = Fixture::with(|config| config.engine_path = Some("/models".into()));
    let tree = fixture.unpack(&[good().build(LayerKind::Tar)]).expect("good");
    (fixture, tree)
}

fn link(fixture: &Fixture, id: &ServableId) -> PathBuf {
    fixture.path("serving").join(id.name.as_str()).join(id.version.to_string())
}

#[test]
fn a_published_model_resolves_wherever_the_volume_is_mounted() {
    let (fixture, tree) = fixture();
    let id = servable("offers/spring", 3);
    fixture.store.publish(&id, &tree).expect("published");
    fixture.store.publish(&id, &tree).expect("published so already");
    let elsewhere = fixture.dir.path().join("elsewhere");
    fs::rename(fixture.store.path(), &elsewhere).unwrap();
    let seen = elsewhere.join("serving").join(id.name.as_str()).join("3/saved_model.pb");
    assert_eq!(fs::read(seen).unwrap(), b"model");
}

#[test]
fn the_base_path_is_the_engines() {
    let (fixture, _) = fixture();
    let name = servable("churn", 1).name;
    let path = fixture.store.base_path(&name);
    assert_eq!(path, Path::new("/models/serving").join(name.as_str()));
}

#[test]
fn a_version_is_never_published_as_something_else() {
    let (fixture, tree) = fixture();
    let other = fixture
        .unpack(&[good().file("data/other", b"x").build(LayerKind::Tar)])
        .expect("another image");
    let (id, placeholder) = (servable("churn", 3), servable("churn", 1));
    fixture.store.publish(&id, &tree).expect("published");
    fixture.store.publish_file(&placeholder, "model", b"pb").expect("published");
    let taken = |result| matches!(result, Err(Error::VersionTaken(_)));
    assert!(taken(fixture.store.publish(&id, &other)));
    assert!(taken(fixture.store.publish(&placeholder, &tree)));
    assert!(taken(fixture.store.publish_file(&id, "model", b"pb")));
    let target = fs::read_link(link(&fixture, &id)).unwrap();
    assert_eq!(target, Path::new("../../trees").join(tree.digest().hex()).join(MODEL));
}

#[test]
fn a_version_of_the_engine_s_own_is_a_directory_with_one_file() {
    let (fixture, _) = fixture();
    let id = servable("churn", 1);
    fixture.store.publish_file(&id, "model", b"pb").expect("published");
    fixture.store.publish_file(&id, "model", b"pb").expect("published already");
    assert_eq!(fs::read(link(&fixture, &id).join("model")).unwrap(), b"pb");
    let published = fixture.store.published().expect("readable");
    assert_eq!(published, [Published { id, tree: None }]);
}

#[test]
fn unpublishing_leaves_the_base_path_for_the_engine() {
    let (fixture, tree) = fixture();
    let (one, two) = (servable("churn", 1), servable("churn", 2));
    fixture.store.publish_file(&one, "model", b"pb").expect("published");
    fixture.store.publish(&two, &tree).expect("published");
    for id in [&one, &two, &two] {
        fixture.store.unpublish(id).expect("gone, once or twice");
    }
    let serving = format!("serving/{}", one.name);
    assert_eq!(fixture.names(&serving), [""; 0]);
    assert!(tree.model_dir().is_dir(), "only the link went");
    fixture.store.remove_servable(&one.name).expect("removed");
    assert_eq!(fixture.names("serving"), [""; 0]);
}

#[test]
fn a_published_tree_cannot_be_removed() {
    let (fixture, tree) = fixture();
    let id = servable("churn", 1);
    fixture.store.publish(&id, &tree).expect("published");
    let refused = fixture.store.remove_tree(tree.digest());
    assert!(matches!(refused, Err(Error::TreePublished(_))), "{refused:?}");
    fixture.store.unpublish(&id).expect("gone");
    fixture.store.remove_tree(tree.digest()).expect("free");
    assert!(fixture.store.tree(tree.digest()).is_none());
    let missing = fixture.store.publish(&id, &tree);
    assert!(matches!(missing, Err(Error::TreeMissing(_))), "{missing:?}");
    assert_eq!(fixture.names("trees"), [""; 0]);
}

#[test]
fn names_from_a_file_cannot_lead_elsewhere() {
    let (fixture, _) = fixture();
    for name in ["..", "../x", "a/b", "/a", "", ".", ".tmp-x"] {
        let name: ServableName = serde_json::from_value(name.into()).expect("any text");
        let id = ServableId { name, version: Version(1) };
        assert!(fixture.store.publish_file(&id, "model", b"pb").is_err(), "{id}");
        assert!(fixture.store.remove_servable(&id.name).is_err(), "{id}");
    }
}

#[test]
fn entries_that_are_no_version_are_not_listed() {
    let (fixture, tree) = fixture();
    let id = servable("churn", 5);
    fixture.store.publish(&id, &tree).expect("published");
    fs::write(fixture.path("serving/stray"), b"").unwrap();
    fs::create_dir(link(&fixture, &id).with_file_name("lost+found")).unwrap();
    let published = fixture.store.published().expect("readable");
    assert_eq!(published, [Published { id, tree: Some(*tree.digest()) }]);
}
