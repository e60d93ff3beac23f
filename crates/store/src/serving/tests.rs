use std::fs;

use outrigger_core::LayerKind;

use super::*;
use crate::testing::{Fixture, MODEL, good, servable};

fn fixture() -> (Fixture, Tree) {
    let fixture = Fixture::new();
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
    fixture.serving().publish(&id, &tree).expect("published");
    fixture.serving().publish(&id, &tree).expect("published so already");
    let elsewhere = fixture.dir.path().join("elsewhere");
    fs::rename(fixture.store.path(), &elsewhere).unwrap();
    let seen = elsewhere.join("serving").join(id.name.as_str()).join("3/saved_model.pb");
    assert_eq!(fs::read(seen).unwrap(), b"model");
}

#[test]
fn the_base_path_is_the_engines() {
    let (fixture, _) = fixture();
    let name = servable("churn", 1).name;
    for (engine, directory) in [("default", "/models/serving"), ("big", "/models/serving-big")] {
        let engine = EngineId::new(engine);
        let serving = fixture.store.serving(&engine, Some(Path::new("/models"))).expect("opened");
        assert_eq!(serving.base_path(&name), Path::new(directory).join(name.as_str()));
    }
}

#[test]
fn a_version_is_never_published_as_something_else() {
    let (fixture, tree) = fixture();
    let other = fixture
        .unpack(&[good().file("data/other", b"x").build(LayerKind::Tar)])
        .expect("another image");
    let (id, placeholder) = (servable("churn", 3), servable("churn", 1));
    fixture.serving().publish(&id, &tree).expect("published");
    fixture.serving().publish_file(&placeholder, "model", b"pb").expect("published");
    let taken = |result| matches!(result, Err(Error::VersionTaken(_)));
    assert!(taken(fixture.serving().publish(&id, &other)));
    assert!(taken(fixture.serving().publish(&placeholder, &tree)));
    assert!(taken(fixture.serving().publish_file(&id, "model", b"pb")));
    let target = fs::read_link(link(&fixture, &id)).unwrap();
    assert_eq!(target, Path::new("../../trees").join(tree.digest().hex()).join(MODEL));
}

#[test]
fn a_version_of_the_engine_s_own_is_a_directory_with_one_file() {
    let (fixture, _) = fixture();
    let id = servable("churn", 1);
    fixture.serving().publish_file(&id, "model", b"pb").expect("published");
    fixture.serving().publish_file(&id, "model", b"pb").expect("published already");
    assert_eq!(fs::read(link(&fixture, &id).join("model")).unwrap(), b"pb");
    let published = fixture.serving().published().expect("readable");
    assert_eq!(published, [Published { id, tree: None }]);
}

#[test]
fn unpublishing_leaves_the_base_path_for_the_engine() {
    let (fixture, tree) = fixture();
    let (one, two) = (servable("churn", 1), servable("churn", 2));
    fixture.serving().publish_file(&one, "model", b"pb").expect("published");
    fixture.serving().publish(&two, &tree).expect("published");
    for id in [&one, &two, &two] {
        fixture.serving().unpublish(id).expect("gone, once or twice");
    }
    let serving = format!("serving/{}", one.name);
    assert_eq!(fixture.names(&serving), [""; 0]);
    assert!(tree.model_dir().is_dir(), "only the link went");
    fixture.serving().remove_servable(&one.name).expect("removed");
    assert_eq!(fixture.names("serving"), [""; 0]);
}

#[test]
fn a_published_tree_cannot_be_removed() {
    let (fixture, tree) = fixture();
    let id = servable("churn", 1);
    fixture.serving().publish(&id, &tree).expect("published");
    let refused = fixture.store.remove_tree(tree.digest());
    assert!(matches!(refused, Err(Error::TreePublished(_))), "{refused:?}");
    fixture.serving().unpublish(&id).expect("gone");
    fixture.store.remove_tree(tree.digest()).expect("free");
    assert!(fixture.store.tree(tree.digest()).is_none());
    let missing = fixture.serving().publish(&id, &tree);
    assert!(matches!(missing, Err(Error::TreeMissing(_))), "{missing:?}");
    assert_eq!(fixture.names("trees"), [""; 0]);
}

#[test]
fn names_from_a_file_cannot_lead_elsewhere() {
    let (fixture, _) = fixture();
    for name in ["..", "../x", "a/b", "/a", "", ".", ".tmp-x"] {
        let name: ServableName = serde_json::from_value(name.into()).expect("any text");
        let id = ServableId { name, version: Version(1) };
        assert!(fixture.serving().publish_file(&id, "model", b"pb").is_err(), "{id}");
        assert!(fixture.serving().remove_servable(&id.name).is_err(), "{id}");
    }
}

#[test]
fn entries_that_are_no_version_are_not_listed() {
    let (fixture, tree) = fixture();
    let id = servable("churn", 5);
    fixture.serving().publish(&id, &tree).expect("published");
    fs::write(fixture.path("serving/stray"), b"").unwrap();
    fs::create_dir(link(&fixture, &id).with_file_name("lost+found")).unwrap();
    let published = fixture.serving().published().expect("readable");
    assert_eq!(published, [Published { id, tree: Some(*tree.digest()) }]);
}

#[test]
fn engines_have_directories_of_their_own() {
    let (fixture, tree) = fixture();
    let big = fixture.store.serving(&EngineId::new("big"), None).expect("opened");
    let (one, other) = (servable("churn", 1), servable("churn", 2));
    fixture.serving().publish(&one, &tree).expect("published");
    big.publish(&other, &tree).expect("published");
    let published = |id| [Published { id, tree: Some(*tree.digest()) }];
    assert_eq!(fixture.serving().published().expect("readable"), published(one.clone()));
    assert_eq!(big.published().expect("readable"), published(other));
    let seen = fixture.path("serving-big").join(one.name.as_str()).join("2/saved_model.pb");
    assert_eq!(fs::read(seen).unwrap(), b"model");
    fixture.serving().unpublish(&one).expect("gone");
    let refused = fixture.store.remove_tree(tree.digest());
    assert!(matches!(refused, Err(Error::TreePublished(_))), "another engine has it: {refused:?}");
}

#[test]
fn the_directory_of_an_engine_that_is_gone_no_longer_keeps_models() {
    let (fixture, tree) = fixture();
    let big = fixture.store.serving(&EngineId::new("big"), None).expect("opened");
    big.publish(&servable("churn", 1), &tree).expect("published");
    fixture.store.remove_other_servings().expect("nothing to remove");
    assert_eq!(big.published().expect("readable").len(), 1);
    drop(big);
    let fixture = fixture.reopen();
    fixture.serving();
    let stays = fixture.store.remove_tree(tree.digest());
    assert!(matches!(stays, Err(Error::TreePublished(_))), "{stays:?}");
    fixture.store.remove_other_servings().expect("removed");
    assert!(!fixture.path("serving-big").exists() && fixture.path("serving").is_dir());
    fixture.store.remove_tree(tree.digest()).expect("free");
}
