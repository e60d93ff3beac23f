//! Outputs in a store of objects.

use std::{collections::BTreeMap, io::Write as _};

use outrigger_batch::{
    Control, DiffSettings, Error, Format, Job, Patience, State, Status, Store, compact, diff,
};

use crate::{
    harness::{
        Place, dead, expected, host, lines, reasons, score_in, scored, text_of, write_control,
    },
    scripted::{Fate, Scripted},
};

fn scripted() -> (Scripted, Store, Patience) {
    let (objects, patience) = (Scripted::new(), Patience::in_virtual_time());
    let store = objects.store("jobs/a", &patience);
    (objects, store, patience)
}

/// A script with fates for the first requests of each method.
fn first(fates: &[(&str, Fate)]) -> impl FnMut(&str, &str) -> Fate + Send + 'static {
    let fates = fates.iter().map(|(method, fate)| ((*method).to_owned(), *fate));
    let mut fates: BTreeMap<String, Fate> = fates.collect();
    move |method, _| fates.remove(method).unwrap_or(Fate::Answered)
}

/// The result of blocking calls while the virtual time goes on.
fn in_time<T: Send>(patience: &Patience, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let work = scope.spawn(work);
        while !work.is_finished() {
            patience.advance(std::time::Duration::from_millis(100));
            std::thread::yield_now();
        }
        work.join().expect("no panic")
    })
}

#[test]
fn objects_have_names_below_the_prefix() {
    let (objects, store, _) = scripted();
    assert_eq!(store.read("plan.json").expect("read"), None);
    assert!(store.create("commit/0.json", b"first").expect("created"));
    assert!(!store.create("commit/0.json", b"second").expect("refused"));
    store.replace("commit/1.json", b"a").expect("written");
    store.replace("commit/1.json", b"b").expect("written");
    assert_eq!(store.list("commit").expect("listed"), ["0.json", "1.json"]);
    let names = ["commit/1.json", "none", "commit/0.json"].map(str::to_owned);
    let found = store.read_all(&names).expect("read");
    assert_eq!(found, [Some(b"b".to_vec()), None, Some(b"first".to_vec())]);
    store.remove("commit/1.json").expect("removed");
    store.remove("commit/1.json").expect("nothing to remove");
    assert_eq!(objects.keys().0, ["jobs/a/commit/0.json"]);
    assert_eq!(store.root().to_string_lossy(), "s3://scripted/jobs/a");
    let all = objects.store("", &Patience::in_virtual_time());
    assert_eq!(all.list("jobs/a/commit").expect("listed"), ["0.json"]);
}

#[test]
fn a_large_object_is_written_in_parts() {
    let (objects, store, _) = scripted();
    let content: Vec<u8> = (0..20 << 20).map(|at| (at % 251) as u8).collect();
    let mut object = store.begin("data/0").expect("begun");
    for part in content.chunks(1 << 20) {
        object.write_all(part).expect("written");
    }
    assert_eq!((objects.keys().0.len(), objects.keys().1.len()), (0, 1));
    assert!(object.finish().expect("finished"));
    assert_eq!(store.read("data/0").expect("read"), Some(content.clone()));
    let mut object = store.begin("data/1").expect("begun");
    object.write_all(&content).expect("written");
    drop(object);
    let (keys, uploads) = objects.keys();
    assert_eq!((keys, uploads.len()), (vec!["jobs/a/data/0".to_owned()], 0));
}

#[test]
fn a_large_object_that_is_created_is_never_replaced() {
    let (objects, store, patience) = scripted();
    let [ours, theirs] = [1, 2].map(|byte| vec![byte; 20 << 20]);
    objects.script(|method, key| {
        assert!(method != "begin", "{key} is written in parts, which have no condition");
        Fate::Answered
    });
    assert!(store.create("plan.json", &ours).expect("created"));
    let other = objects.store("jobs/a", &patience);
    assert!(!other.create("plan.json", &theirs).expect("refused"));
    assert!(store.create("plan.json", &ours).expect("it has this content"));
    assert!(store.read("plan.json").expect("read") == Some(ours));
}

#[test]
fn an_answer_that_is_lost_changes_nothing() {
    let (objects, store, patience) = scripted();
    objects.script(first(&[("put", Fate::Lost), ("get", Fate::Away)]));
    let created = in_time(&patience, || store.create("a", b"ours"));
    assert!(created.expect("created"), "the object in the way is our own");
    objects.script(first(&[("put", Fate::Lost)]));
    let created = in_time(&patience, || store.create("a", b"theirs"));
    assert!(!created.expect("there is one"));
    let fates = ["begin", "part", "finish", "remove"].map(|method| (method, Fate::Lost));
    objects.script(first(&fates));
    let content = vec![7; 9 << 20];
    let created = in_time(&patience, || {
        let mut object = store.begin("b")?;
        object.write_all(&content)?;
        let is_new = object.finish()?;
        store.remove("a").map(|()| is_new)
    });
    assert!(created.expect("created"));
    assert_eq!(store.read("b").expect("read"), Some(content));
    // The name of the first upload was lost with its answer.
    assert_eq!(objects.keys().1.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_on_one_output_double_nothing() {
    let (objects, store, patience) = scripted();
    let (place, host) = (Place::new(), host().await);
    let ids = || (0..200).map(|id| if id == 77 { -1 } else { id });
    let file = place.rows("a.parquet", ids());
    let job = || place.job(&[&file], &[&host.address()]);
    let workers = [0, 1].map(|_| tokio::spawn(score_in(store.clone(), job())));
    let mut manifests = Vec::new();
    for worker in workers {
        manifests.push(worker.await.expect("no panic").expect("scored"));
    }
    assert_eq!(manifests[0], manifests[1]);
    objects.save("jobs/a", &place.output());
    assert_eq!(scored(&place.output()), expected(ids().filter(|id| *id >= 0)));
    assert_eq!(reasons(&place.output()), [(77, "invalid_input".to_owned())]);
    assert_eq!(dead(&place.output()).len(), 1);
    let files = |manifest: &outrigger_batch::Manifest| {
        let files = manifest.chunks.iter().flat_map(|chunk| [&chunk.data, &chunk.dead_letters]);
        files.flatten().count()
    };
    let (keys, uploads) = objects.keys();
    let kept = |part: &str| keys.iter().filter(|key| key.contains(part)).count();
    assert_eq!(kept("/data/") + kept("/dead/"), files(&manifests[0]), "losers are removed");
    assert_eq!((kept("/lease/"), kept("/worker/"), uploads.len()), (0, 0, 0));
    let status = Status::read(&store).expect("a job");
    assert_eq!((status.state, status.scored, status.dead), (State::Finished, 199, 1));
    assert_eq!(status.output.to_string_lossy(), "s3://scripted/jobs/a");
    let again = score_in(objects.store("jobs/a", &patience), job()).await.expect("finished");
    assert_eq!(again, manifests[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_in_a_store_are_written_compared_and_compacted() {
    let (objects, store, patience) = scripted();
    let (place, host) = (Place::new(), host().await);
    let file = place.text("a.jsonl", &lines(0..200));
    let job = Job { output_format: Some(Format::Jsonl), ..place.job(&[&file], &[&host.address()]) };
    let manifest = score_in(store.clone(), job).await.expect("scored");
    assert_eq!((manifest.scored, manifest.chunks.len()), (200, 29));
    objects.save("jobs/a", &place.output());
    assert_eq!(scored(&place.output()), expected(0..200));
    let compacted = objects.store("jobs/b", &patience);
    let found = compact(&store, &compacted, 1 << 20).expect("compacted");
    assert_eq!((found.files.len(), found.files[0].rows), (1, 200));
    let whole = compacted.read(&found.files[0].file.name).expect("read").expect("a file");
    assert_eq!(String::from_utf8(whole).expect("text"), text_of(&place.output()));
    let settings = DiffSettings { keys: vec![], scores: vec![], memory: 1 << 20, listed: 3 };
    let compared = diff(&store, &compacted, &settings).expect("compared");
    assert!(compared.rows == 200 && !compared.exceeds(0.0), "{compared:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_ignores_conditions_is_refused() {
    let (objects, store, _) = scripted();
    objects.ignore_conditions();
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..20);
    let job = place.job(&[&file], &[&host.address()]);
    let error = score_in(store, job).await.expect_err("two workers could commit the same rows");
    assert!(error.to_string().contains("ignores the condition"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_an_error_before_the_first_row() {
    let (objects, store, _) = scripted();
    objects.script(|_, _| Fate::Refused);
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..20);
    let job = place.job(&[&file], &[&host.address()]);
    let error = score_in(store, job).await.expect_err("no credentials");
    let text = error.to_string();
    assert!(text.contains("s3://scripted/jobs/a: the store refuses the credentials"), "{text}");
    assert_eq!(host.count("/ModelInfer"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_credentials_expire_goes_on_with_new_ones() {
    let (objects, store, _) = scripted();
    let mut commits = 0;
    objects.script(move |method, key| {
        commits += u32::from(method == "put" && key.contains("/commit/"));
        // Leases can still be given back.
        if commits > 4 && method == "put" { Fate::Refused } else { Fate::Answered }
    });
    let (place, host) = (Place::new(), host().await);
    let file = place.rows("a.parquet", 0..100);
    let job = || place.job(&[&file], &[&host.address()]);
    let error = score_in(store.clone(), job()).await.expect_err("they expire");
    assert!(matches!(&error, Error::Failed(it) if it.contains("ExpiredToken")), "{error}");
    objects.script(|_, _| Fate::Answered);
    assert_eq!(Status::read(&store).expect("a job").committed, 4);
    score_in(objects.store("jobs/a", &Patience::default()), job()).await.expect("new ones");
    objects.save("jobs/a", &place.output());
    assert_eq!(scored(&place.output()), expected(0..100));
}

#[test]
fn changes_of_settings_at_the_same_time_are_all_kept() {
    let (objects, store, _) = scripted();
    store.create("plan.json", b"{}").expect("created");
    for first in ["batch_size=1", "batch_size=2"] {
        let mut other = Some(first);
        let changed = Control::change(&store, |control| {
            // Another process changes the object after this one has read it.
            if let Some(other) = other.take() {
                Control::change(&store, |control| control.set(other))?;
            }
            control.set("concurrency=3")
        });
        let changed = changed.expect("changed");
        assert_eq!(
            changed.batch_size.map(|rows| format!("batch_size={rows}")).as_deref(),
            Some(first)
        );
        assert_eq!(changed.concurrency, Some(3));
        assert_eq!(Control::read(&store), Ok(changed));
    }
    assert!(objects.keys().0.iter().all(|key| !key.contains("lock")));
}

#[test]
fn settings_change_through_the_store() {
    let (_, store, _) = scripted();
    let mut control = Control::read(&store).expect("none yet");
    control.set("batch_size=8").expect("valid");
    write_control(&control, &store);
    write_control(&control, &store);
    assert_eq!(Control::read(&store).expect("read"), control);
}
