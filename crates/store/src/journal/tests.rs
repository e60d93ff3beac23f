use std::fs;

use outrigger_core::{Digest, EngineId, ModelKey, ModelName, Tag};

use super::*;
use crate::{
    Desired, Promoted,
    testing::{Fixture, servable},
};

fn record() -> Record {
    let digest = Digest::of(b"image");
    let name: ModelName = "offers/spring".parse().expect("valid");
    let tag: Tag = "latest".parse().expect("valid");
    let key = ModelKey { name: name.clone(), digest };
    let canary: Tag = "latest_canary".parse().expect("valid");
    let promoted = Promoted { named: Digest::of(b"another"), promoted: digest };
    Record {
        tags: [(name.clone(), [(tag.clone(), digest)].into())].into(),
        desired: vec![Desired {
            key,
            servable: servable("offers/spring", 12),
            engine: EngineId::default(),
        }],
        rejected: [(name.clone(), [(canary, digest)].into())].into(),
        promoted: [(name, [(tag, promoted)].into())].into(),
    }
}

#[test]
fn the_record_survives_a_restart() {
    let fixture = Fixture::new();
    let journal = fixture.store.journal();
    assert_eq!(journal.load().expect("none yet").unwrap_or_default(), Record::default());
    journal.save(&record()).expect("saved");
    journal.save(&record()).expect("saved again");
    assert_eq!(fixture.names("journal"), ["record.json", "record.previous.json"]);
    drop(journal);
    assert_eq!(
        fixture.reopen().store.journal().load().expect("saved").unwrap_or_default(),
        record()
    );
}

#[test]
fn a_record_without_canary_fields_is_read() {
    let fixture = Fixture::new();
    fs::write(fixture.path("journal/record.json"), br#"{"tags": {}, "desired": []}"#).unwrap();
    assert_eq!(
        fixture.store.journal().load().expect("read").unwrap_or_default(),
        Record::default()
    );
    let names = fixture.names("journal");
    assert_eq!(names, ["record.json", "record.previous.json"], "and not set aside");
}

#[test]
fn canary_state_has_its_own_file_and_survives_a_restart() {
    let fixture = Fixture::new();
    let journal = fixture.store.journal();
    assert_eq!(journal.load_canaries::<Vec<u32>>().expect("none yet"), Vec::<u32>::new());
    journal.save_canaries(&[1, 2]).expect("saved");
    drop(journal);
    let fixture = fixture.reopen();
    assert_eq!(fixture.store.journal().load_canaries::<Vec<u32>>().expect("saved"), [1, 2]);
    // A file of another type is not fatal either.
    let none = fixture.store.journal().load_canaries::<Vec<String>>().expect("not fatal");
    let aside = ["canaries.damaged", "canaries.previous.damaged"].map(str::to_owned);
    assert_eq!((none, fixture.names("journal")), (vec![], aside.to_vec()));
}

#[test]
fn a_damaged_file_is_set_aside() {
    for damage in [&b"{\"tags\": "[..], b"", b"\0\0\0\0", b"{\"other\": 1}", b"[]"] {
        let fixture = Fixture::new();
        fs::write(fixture.path("journal/record.json"), damage).unwrap();
        fs::write(fixture.path("journal/versions.json"), damage).unwrap();
        let fixture = fixture.reopen();
        let journal = fixture.store.journal();
        assert_eq!(journal.load().expect("not fatal").unwrap_or_default(), Record::default());
        assert_eq!(fixture.names("journal"), ["record.damaged", "versions.damaged"]);
        assert_eq!(fs::read(fixture.path("journal/record.damaged")).unwrap(), damage);
        journal.save(&record()).expect("goes on");
        assert_eq!(journal.load().expect("saved").unwrap_or_default(), record());
    }
}

#[test]
fn versions_grow_even_when_state_is_lost() {
    let mut fixture = Fixture::new();
    let mut last = fixture.store.journal().next_version().expect("the first");
    let next_is_larger = |fixture: &Fixture, last: &mut Version| {
        let next = fixture.store.journal().next_version().expect("another");
        assert!(next > *last, "{next} after {last}");
        *last = next;
    };
    for _ in 0..5 {
        next_is_larger(&fixture, &mut last);
    }
    fixture = fixture.reopen();
    next_is_larger(&fixture, &mut last);
    fs::remove_dir_all(fixture.path("journal")).unwrap();
    fixture = fixture.reopen();
    next_is_larger(&fixture, &mut last);
    // All state is lost: a new volume under the same engine.
    next_is_larger(&Fixture::new(), &mut last);
}

#[test]
fn a_version_is_on_disk_before_it_is_returned() {
    let fixture = Fixture::new();
    let journal = fixture.store.journal();
    let given = journal.next_version().expect("a version");
    let content = fs::read(fixture.path("journal/versions.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Versions>(&content).unwrap().last, given.0);
    let previous = fs::read(fixture.path("journal/versions.previous.json")).unwrap();
    assert_eq!(previous, content);
    fs::remove_dir_all(fixture.path("journal")).unwrap();
    journal.next_version().expect_err("it cannot be noted");
}

#[test]
fn published_and_desired_versions_are_never_assigned_again() {
    // Far in the future, so that the version cannot come from the clock.
    let far = i64::MAX / 2;
    let published = Fixture::new();
    published.serving().publish_file(&servable("churn", far), "model", b"pb").expect("published");
    let desired = Fixture::new();
    let mut record = record();
    record.desired[0].servable.version = Version(far);
    desired.store.journal().save(&record).expect("saved");
    for fixture in [published, desired] {
        let next = fixture.reopen().store.journal().next_version().expect("one more");
        assert_eq!(next, Version(far + 1));
    }
}

#[test]
fn the_clock_may_stand_still_or_go_back() {
    assert_eq!(following(0, 1_000), Some(1_000));
    assert_eq!(following(1_000, 1_000), Some(1_001));
    assert_eq!(following(5_000, 1_000), Some(5_001));
    assert_eq!(following(i64::MAX, 1_000), None);
}

#[test]
fn a_record_that_cannot_be_written_leaves_the_old_one() {
    let fixture = Fixture::new();
    let journal = fixture.store.journal();
    journal.save(&record()).expect("saved");
    // A directory at the path cannot be replaced by a file.
    fs::remove_file(fixture.path("journal/record.json")).unwrap();
    fs::create_dir(fixture.path("journal/record.json")).unwrap();
    journal.save(&Record::default()).expect_err("cannot be replaced");
    assert_eq!(fixture.names("journal"), ["record.json", "record.previous.json"]);
    fs::remove_dir(fixture.path("journal/record.json")).unwrap();
    assert_eq!(
        journal.load().expect("read").unwrap_or_default(),
        record(),
        "from the previous copy"
    );
}

/// The file with each kind of damage: cut at every offset, and one bit flipped in every byte.
fn damaged(file: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let cut = (0..file.len()).map(|end| file[..end].to_vec());
    let flipped = (0..file.len()).map(|at| {
        let mut file = file.to_vec();
        file[at] ^= 1 << (at % 8);
        file
    });
    cut.chain(flipped)
}

/// Damages the current copy of `file` in every way, and checks that `read` still returns what was
/// written.
fn survives<T: PartialEq + std::fmt::Debug>(
    fixture: &Fixture,
    file: &str,
    read: impl Fn(&Journal) -> T,
) {
    let path = fixture.path("journal").join(file);
    let (journal, intact) = (fixture.store.journal(), fs::read(&path).unwrap());
    let expected = read(&journal);
    for (case, damage) in damaged(&intact).enumerate() {
        fs::write(&path, &damage).unwrap();
        assert_eq!(read(&journal), expected, "{file}, case {case}: {damage:?}");
        let mended = fs::read(&path).unwrap();
        assert_eq!(seal::unseal(&mended), seal::unseal(&intact), "{file}, case {case}");
    }
}

#[test]
fn damage_to_the_current_copy_of_any_file_loses_nothing() {
    // Each case syncs several files.
    let fixture = Fixture::in_memory();
    let journal = fixture.store.journal();
    let small = Record { tags: record().tags, ..Record::default() };
    journal.save(&small).expect("saved");
    journal.save_canaries(&["a trial"]).expect("saved");
    journal.save_crashes(&["a suspect"]).expect("saved");
    let version = journal.next_version().expect("a version");
    survives(&fixture, RECORD, |journal| journal.load().expect("read").unwrap_or_default());
    survives(&fixture, CANARIES, |it| it.load_canaries::<Vec<String>>().expect("read"));
    survives(&fixture, CRASHES, |it| it.load_crashes::<Vec<String>>().expect("read"));
    let last = |it: &Journal| it.read::<Versions>(VERSIONS).expect("read").map(|it| it.last);
    survives(&fixture, VERSIONS, last);
    assert_eq!(last(&journal), Some(version.0));
    assert_eq!(journal.load().expect("read").unwrap_or_default(), small);
}

#[test]
fn every_flipped_bit_is_found() {
    let content = serde_json::to_vec(&record()).expect("JSON");
    let sealed = seal::seal(content.clone());
    for bit in 0..sealed.len() * 8 {
        let mut file = sealed.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        let read = seal::unseal(&file).map(serde_json::from_slice::<Record>);
        assert!(matches!(read, None | Some(Err(_))), "bit {bit}");
    }
}

#[test]
fn a_write_that_ends_after_the_first_copy_leaves_both_states_readable() {
    let fixture = Fixture::new();
    let journal = fixture.store.journal();
    journal.save(&record()).expect("saved");
    let before = fs::read(fixture.path("journal/record.previous.json")).unwrap();
    journal.save(&Record::default()).expect("saved");
    fs::write(fixture.path("journal/record.previous.json"), before).unwrap();
    assert_eq!(
        journal.load().expect("read").unwrap_or_default(),
        Record::default(),
        "the later state"
    );
    fs::write(fixture.path("journal/record.json"), "{").unwrap();
    assert_eq!(
        journal.load().expect("read").unwrap_or_default(),
        Record::default(),
        "both copies have it now"
    );
}

#[test]
fn a_missing_current_copy_is_taken_from_the_previous_one() {
    let fixture = Fixture::new();
    fixture.store.journal().save(&record()).expect("saved");
    fs::remove_file(fixture.path("journal/record.json")).unwrap();
    let fixture = fixture.reopen();
    assert_eq!(fixture.store.journal().load().expect("read").unwrap_or_default(), record());
    assert_eq!(fixture.names("journal"), ["record.json", "record.previous.json"]);
}

#[test]
fn what_an_earlier_version_wrote_after_this_one_is_read() {
    let fixture = Fixture::new();
    let journal = fixture.store.journal();
    journal.save(&Record::default()).expect("saved");
    let plain = serde_json::to_vec_pretty(&record()).expect("JSON");
    fs::write(fixture.path("journal/record.json"), plain).unwrap();
    assert_eq!(journal.load().expect("read").unwrap_or_default(), record());
    fs::remove_file(fixture.path("journal/record.json")).unwrap();
    assert_eq!(
        journal.load().expect("read").unwrap_or_default(),
        record(),
        "the previous copy has it as well"
    );
}
