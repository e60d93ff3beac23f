//! Jobs over CSV and JSON Lines, and with JSON Lines as their output.

use std::{fs, io::Write as _};

use outrigger_batch::{ColumnType, Error, Format, Host, Job, Manifest, Output, Store};
use outrigger_oip::DataType;
use outrigger_testkit::oip::{Answer, identity};
use serde_json::{Value, json};

use crate::harness::{
    Place, dead, expected, host, ids, lines, model, reasons, score, scored, text_of,
};

/// The rows of these ids as CSV.
fn csv(ids: impl Iterator<Item = i64>) -> String {
    let rows = ids.map(|id| format!("\"{id}\",\"[{id}, {}]\"\n", 2 * id));
    "id,x\n".to_owned() + &rows.collect::<String>()
}

/// A job whose ids are integers.
fn job(place: &Place, files: &[&str], host: &str) -> Job {
    let mut job = place.job(files, &[host]);
    let id = ColumnType { datatype: DataType::Int64, depth: 0 };
    job.columns.insert("id".to_owned(), id);
    job
}

/// The rows of the output's JSON Lines, in the order of its manifest.
fn written(place: &Place) -> Vec<Value> {
    let text = text_of(&place.output());
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_scored_as_parquet_is() {
    let host = host().await;
    for (name, text) in [("a.jsonl", lines(0..25)), ("a.csv", csv(0..25))] {
        let place = Place::new();
        let file = place.text(name, &text);
        let manifest = score(job(&place, &[&file], &host.address())).await.expect("scored");
        assert_eq!((manifest.rows, manifest.scored), (25, 25), "{name}");
        assert_eq!(manifest.chunks.len(), 4, "{name}");
        assert_eq!(scored(&place.output()), expected(0..25), "{name}");
        // The plan has all that the job needs, so the files are not read again.
        let again = score(job(&place, &[&file], "localhost:1")).await.expect("finished");
        assert_eq!(again, manifest);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_together_decide_about_types_of_keys() {
    let (place, host) = (Place::new(), host().await);
    let first = r#"{"x": [1, 2], "id": 1, "n": 1, "tags": ["a"], "other": {"k": 1}}
{"x": [3, 4], "id": 2, "n": null, "tags": []}
"#;
    let second = r#"{"id": 3, "x": [5, 6], "n": 2.5, "other": "text"}
"#;
    let (a, b) = (place.text("a.jsonl", first), place.text("b.jsonl", second));
    let mut job = place.job(&[&a, &b], &[&host.address()]);
    job.output_format = Some(Format::Jsonl);
    score(job).await.expect("scored");
    let rows = [
        json!({"id": 1, "n": 1.0, "tags": ["a"], "other": {"k": 1}, "OUT_x": [1.0, 2.0]}),
        json!({"id": 2, "n": null, "tags": [], "other": null, "OUT_x": [3.0, 4.0]}),
        json!({"id": 3, "n": 2.5, "tags": null, "other": "text", "OUT_x": [5.0, 6.0]}),
    ];
    assert_eq!(written(&place), rows);
    let expected = r#"{"id":1,"n":1.0,"tags":["a"],"other":{"k": 1},"OUT_x":[1.0,2.0]}"#;
    assert_eq!(text_of(&place.output()).lines().next(), Some(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_are_texts_where_nothing_else_says_what_they_are() {
    let (place, host) = (Place::new(), host().await);
    let text = "id,note,a,b\n007,\"two\nlines\",1,2\n008,,3, 4\n";
    let file = place.text("a.csv", text);
    let mut job = place.job(&[&file], &[&host.address()]);
    let x = job.inputs.get_mut("x").expect("the input");
    x.columns = vec!["a".to_owned(), "b".to_owned()];
    job.output_format = Some(Format::Jsonl);
    score(job).await.expect("scored");
    let rows = [
        json!({"id": "007", "note": "two\nlines", "OUT_x": [1.0, 2.0]}),
        json!({"id": "008", "note": null, "OUT_x": [3.0, 4.0]}),
    ];
    assert_eq!(written(&place), rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_the_same_bytes_whatever_becomes_of_the_job() {
    let host = host().await;
    let mut outputs = Vec::new();
    for batch_size in [1, 5, 256] {
        let place = Place::new();
        let file = place.rows("a.parquet", 0..40);
        let mut job = place.job(&[&file], &[&host.address()]);
        (job.batch_size, job.output_format) = (batch_size, Some(Format::Jsonl));
        score(job).await.expect("scored");
        outputs.push(text_of(&place.output()));
    }
    assert_eq!(outputs[0], outputs[1]);
    assert_eq!(outputs[0], outputs[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_rows_are_dead_and_dead_rows_are_fed_back() {
    let script = |seen: &_| match ids(seen).contains(&20) {
        true => Answer::Status(13, "the model failed".to_owned()),
        false => identity::grpc(seen),
    };
    let malformed = r#"{"id": 10, "x": [10, 20}
{"id": 11, "x": [11]}
{"id": 12, "x": ["a", 2]}
"#;
    let json = lines(0..10) + malformed + &lines(13..25);
    let cells =
        csv(0..10) + "10\n11,\"[11]\"\n12,\"[a, 2]\"\n" + &csv(13..25).replace("id,x\n", "");
    for (name, text) in [("a.jsonl", json), ("a.csv", cells)] {
        let (place, host) = (Place::new(), model(script).await);
        let file = place.text(name, &text);
        score(job(&place, &[&file], &host.address())).await.expect("scored");
        let alive = (0..25).filter(|id| ![10, 11, 12, 20].contains(id));
        assert_eq!(scored(&place.output()), expected(alive), "{name}");
        let invalid = "invalid_input".to_owned();
        let rows = [10, 11, 12].map(|row| (row, invalid.clone()));
        let rows = [rows.to_vec(), vec![(20, "model_error".to_owned())]].concat();
        assert_eq!(reasons(&place.output()), rows, "{name}");
        let letter = &dead(&place.output())[1];
        let error = letter["error"].as_str().expect("an error");
        assert!(error.contains("1 values do not fill a row of [2]"), "{error}");
        host.script(identity::server);
        let again = Job {
            retry: Some(place.output()),
            ..Job::new(Vec::new(), place.path("again"), "", vec![Host::new(&host.address())])
        };
        let manifest = score(again).await.expect("scored");
        assert_eq!((manifest.scored, manifest.dead), (1, 3), "{name}");
        assert_eq!(scored(&place.path("again")), expected([20].into_iter()), "{name}");
        assert_eq!(reasons(&place.path("again")).len(), 3, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_csv_may_have_other_columns_in_another_order() {
    let place = Place::new();
    let host = host().await;
    let a = place.text("a.csv", &csv(0..2));
    let b = place.text("b.csv", "more,x,id\n7,\"[2, 4]\",2\n");
    let manifest = score(job(&place, &[&a, &b], &host.address())).await.expect("scored");
    assert_eq!(manifest.scored, 3);
    assert_eq!(scored(&place.output()), expected(0..3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_without_rows_has_an_empty_output() {
    let host = host().await;
    for (name, text) in [("a.csv", "id,x\n"), ("a.jsonl", "")] {
        let place = Place::new();
        let file = place.text(name, text);
        let mut job = job(&place, &[&file], &host.address());
        let output =
            Output { datatype: Some(DataType::Fp32), shape: Some(vec![2]), ..Output::of("OUT_x") };
        job.outputs.insert("OUT_x".to_owned(), output);
        let manifest = score(job.clone()).await.expect("finished");
        assert_eq!((manifest.rows, manifest.scored, manifest.chunks.len()), (0, 0, 0), "{name}");
        assert_eq!(score(job).await.expect("finished"), manifest);
    }
    assert_eq!(host.count("/ModelInfer"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_text_may_be_booleans_and_whole_floats() {
    let place = Place::new();
    let host = host().await;
    let file = place.text("a.csv", "id,a,b\n1.0,true,False\n2,1,0\n");
    let mut job = job(&place, &[&file], &host.address());
    let x = job.inputs.get_mut("x").expect("the input");
    x.columns = vec!["a".to_owned(), "b".to_owned()];
    job.output_format = Some(Format::Jsonl);
    score(job).await.expect("scored");
    let rows = [1, 2].map(|id| json!({"id": id, "OUT_x": [1.0, 0.0]}));
    assert_eq!(written(&place), rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_at_fault_are_found_before_the_first_row() {
    let host = host().await;
    for (files, fault) in [
        (&[("a.jsonl", &*lines(0..2)), ("b.csv", &*csv(2..3))][..], "a job has one format"),
        (&[("a.csv.gz", "")], "compressed as a whole"),
        (&[("a.csv", "")], "the file is empty"),
        (&[("a.csv", "id,x\n")], "have no rows, and the hosts do not describe the outputs"),
        (&[("a.csv", "id,x,id\n")], "\"id\" stands in the header twice"),
        (&[("a.csv", "id,\u{fffd}\n1,2\n")], "no column \"x\""),
        (&[("a.csv", &*csv(0..2)), ("b.csv", "id\n1\n")], "b.csv has no column \"x\""),
        (&[("a.csv", "id,x\n1,a\n2,b\n")], "no value of the column \"x\" is a float32"),
        (&[("a.jsonl", "{\"id\": 1}\n")], "no row has a key \"x\""),
        (
            &[("a.jsonl", &*lines(0..3)), ("b.jsonl", "{\"x\": \"text\", \"id\": 3}\n")],
            "b.jsonl: no value of the column \"x\" is a float32",
        ),
        (&[("a.parquet", "PAR1 and no more")], "a.parquet"),
    ] {
        let place = Place::new();
        let files: Vec<_> = files.iter().map(|(name, text)| place.text(name, text)).collect();
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        let refused = score(place.job(&files, &[&host.address()])).await;
        assert!(
            matches!(&refused, Err(Error::Usage(message)) if message.contains(fault)),
            "{fault}: {refused:?}"
        );
        assert!(!place.output().exists(), "{fault}");
    }
    assert_eq!(host.count("/ModelInfer"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_at_fault_are_found_before_the_first_row() {
    let (place, host) = (Place::new(), host().await);
    let file = place.text("a.data", &lines(0..3));
    let parquet = place.rows("a.parquet", 0..3);
    let jsonl = || Job { format: Some(Format::Jsonl), ..job(&place, &[&file], &host.address()) };
    let unused = Job { keys: Some(Vec::new()), ..jsonl() };
    let mut unknown = jsonl();
    unknown.columns.insert("other".to_owned(), unknown.columns["id"]);
    let mut typed = jsonl();
    typed.columns.insert("x".to_owned(), ColumnType { datatype: DataType::Bytes, depth: 1 });
    for (job, fault) in [
        (job(&place, &[&file], &host.address()), "does not end with one of"),
        (Job { keys: Some(vec!["key".to_owned()]), ..jsonl() }, "no column \"key\""),
        (Job { output_format: Some(Format::Csv), ..jsonl() }, "must be parquet or jsonl"),
        (unknown, "no row has a key \"other\""),
        (unused, "\"id\" is neither a key nor"),
        (typed, "no value of the column \"x\" is"),
        (job(&place, &[&parquet], &host.address()), "Parquet states the types"),
    ] {
        let refused = score(job).await;
        assert!(
            matches!(&refused, Err(Error::Usage(message)) if message.contains(fault)),
            "{fault}: {refused:?}"
        );
    }
    assert!(!place.output().exists());
    score(jsonl()).await.expect("the format is stated");
    assert_eq!(scored(&place.output()), expected(0..3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_stops_the_job_which_keeps_what_is_committed() {
    for name in ["a.parquet", "a.jsonl"] {
        let place = Place::new();
        let write = |ids| match name {
            "a.jsonl" => place.text(name, &lines(ids)),
            _ => place.rows(name, ids),
        };
        let (file, path) = (write(0..280), place.path(name));
        place.rows("other.parquet", 0..281);
        // The file changes when three chunks are committed. Most of the others are not begun then.
        let script = {
            let (store, path, other) = (place.store(), path.clone(), place.path("other.parquet"));
            move |seen: &_| {
                if store.list("commit").is_ok_and(|commits| commits.len() >= 3) {
                    match path.extension().is_some_and(|ending| ending == "jsonl") {
                        true => {
                            let input = fs::File::options().append(true).open(&path);
                            input.and_then(|mut file| file.write_all(b"\n")).expect("written");
                        }
                        // The other file is not there any more after the first time.
                        false => _ = fs::rename(&other, &path),
                    }
                }
                identity::grpc(seen)
            }
        };
        let host = model(script).await;
        let original = fs::read(&path).expect("the input");
        let time = fs::metadata(&path).and_then(|stat| stat.modified()).expect("a time");
        let job = || place.job(&[&file], &[&host.address()]);
        let refused = score(job()).await.expect_err("the input has changed");
        assert!(
            matches!(&refused, Error::Failed(message) if message.contains("has changed since")),
            "{refused}"
        );
        assert_eq!(Manifest::read(&place.store()), Ok(None));
        let commits = place.store().list("commit").expect("commits");
        assert!(commits.len() >= 3, "{commits:?}");
        let refused = score(job()).await.expect_err("the input is another one");
        assert!(
            matches!(&refused, Error::Usage(message) if message.contains("another input")),
            "{refused}"
        );
        // The file is as it was, and the job goes on.
        host.script(identity::server);
        fs::write(&path, original).expect("written");
        let restored = fs::File::options().write(true).open(&path).expect("the input");
        restored.set_modified(time).expect("the time is set");
        score(job()).await.expect("scored");
        assert_eq!(scored(&place.output()), expected(0..280));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_jobs_with_one_output_one_is_refused() {
    let (place, host) = (Place::new(), host().await);
    let (a, b) = (place.text("a.jsonl", &lines(0..30)), place.text("b.jsonl", &lines(30..60)));
    let run = |file: &str| tokio::spawn(score(place.job(&[file], &[&host.address()])));
    let (first, second) = (run(&a), run(&b));
    let ended = [first.await.expect("no panic"), second.await.expect("no panic")];
    let refused: Vec<_> = ended.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(
        matches!(&refused[..], [Error::Usage(message)] if message.contains("another input")),
        "{ended:?}"
    );
    let rows = if ended[0].is_ok() { 0..30 } else { 30..60 };
    assert_eq!(scored(&place.output()), expected(rows));
    let store = Store::local(place.output());
    let manifest = Manifest::read(&store).expect("readable").expect("a manifest");
    assert_eq!(store.list("data").expect("files").len(), manifest.chunks.len());
}
