use std::fs;

use outrigger_core::{EngineId, LayerKind, ModelKey, ModelName, Tag};

use super::{models::MAX_TAGS, *};
use crate::{
    Desired,
    testing::{Fixture, good, servable},
};

fn name(text: &str) -> ModelName {
    text.parse().expect("a valid name")
}

fn tag(text: &str) -> Tag {
    text.parse().expect("a valid tag")
}

fn tree(fixture: &Fixture, content: &str) -> Digest {
    let layer = good().file("data/extra", content.as_bytes()).build(LayerKind::Tar);
    *fixture.unpack(&[layer]).expect("good").digest()
}

fn named(tags: &[(&str, &str, Digest)]) -> Record {
    let mut record = Record::default();
    for (model, text, digest) in tags {
        record.tags.entry(name(model)).or_default().insert(tag(text), *digest);
    }
    record
}

fn recorded(fixture: &Fixture, digest: &Digest) -> Models {
    read(&fixture.store.inner.layout, digest)
}

#[test]
fn without_a_journal_the_tags_come_from_the_trees() {
    let fixture = Fixture::new();
    let (first, second) = (tree(&fixture, "1"), tree(&fixture, "2"));
    let tags = [("churn", "latest", first), ("offers", "latest", first), ("churn", "old", second)];
    let record = named(&tags);
    fixture.store.journal().save(&record).expect("saved");
    fixture.store.record_seen(&record).expect("recorded");
    fs::remove_dir_all(fixture.path("journal")).unwrap();
    let fixture = fixture.reopen();
    assert_eq!(fixture.store.record().expect("read"), record);
}

#[test]
fn a_tag_belongs_to_the_tree_that_it_named_last() {
    let fixture = Fixture::new();
    let (first, second) = (tree(&fixture, "1"), tree(&fixture, "2"));
    for digest in [first, second, first] {
        fixture.store.record_seen(&named(&[("churn", "latest", digest)])).expect("recorded");
        let known = tags(&fixture.store.inner.layout).expect("read");
        assert_eq!(known, named(&[("churn", "latest", digest)]).tags);
        // Times of one millisecond could not be told apart.
        let before = now();
        while now() == before {}
    }
    assert!(recorded(&fixture, &second).contains_key(&name("churn")), "it is a history");
}

#[test]
fn a_version_that_only_its_digest_names_is_recorded_with_its_model() {
    let fixture = Fixture::new();
    let digest = tree(&fixture, "1");
    let key = ModelKey { name: name("churn"), digest };
    let desired = Desired { key, servable: servable("churn", 1), engine: EngineId::default() };
    let record = Record { desired: vec![desired], ..Record::default() };
    fixture.store.record_seen(&record).expect("recorded");
    assert_eq!(recorded(&fixture, &digest), [(name("churn"), BTreeMap::new())].into());
    assert_eq!(tags(&fixture.store.inner.layout).expect("read"), Tags::new());
}

#[test]
fn only_news_are_written_and_a_tree_unpacked_again_is_recorded_again() {
    let fixture = Fixture::new();
    let digest = tree(&fixture, "1");
    let record = named(&[("churn", "latest", digest)]);
    let path = fixture.store.inner.layout.tree(&digest).join(SEEN);
    fixture.store.record_seen(&record).expect("recorded");
    fs::remove_file(&path).unwrap();
    fixture.store.record_seen(&record).expect("nothing to do");
    assert!(!path.exists(), "nothing was new");
    fixture.store.remove_tree(&digest).expect("removed");
    fixture.store.record_seen(&record).expect("a missing tree is skipped");
    assert_eq!(tree(&fixture, "1"), digest);
    fixture.store.record_seen(&record).expect("recorded");
    assert_eq!(tags(&fixture.store.inner.layout).expect("read"), record.tags);
}

#[test]
fn the_names_of_a_tree_are_limited_to_the_latest() {
    let all = |from: u64, to: u64| {
        let tags = (from..to).map(|time| (tag(&format!("t{time}")), time));
        Models::from([(name("churn"), tags.collect())])
    };
    let most = MAX_TAGS as u64;
    assert_eq!(merged(all(0, most), all(most, most + 10)), all(10, most + 10));
}

#[test]
fn a_damaged_file_of_names_loses_that_tree_s_names_only() {
    let fixture = Fixture::new();
    let (first, second) = (tree(&fixture, "1"), tree(&fixture, "2"));
    let record = named(&[("churn", "latest", first), ("offers", "latest", second)]);
    fixture.store.record_seen(&record).expect("recorded");
    let path = fixture.store.inner.layout.tree(&first).join(SEEN);
    let mut content = fs::read(&path).unwrap();
    content[20] ^= 1;
    fs::write(&path, content).unwrap();
    let left = named(&[("offers", "latest", second)]);
    assert_eq!(tags(&fixture.store.inner.layout).expect("read"), left.tags);
}
