//! Jobs over lines of OpenAI's batches, against scripted servers of OpenAI's API.

mod limits;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use arrow_array::{Array as _, cast::AsArray as _};
use outrigger_batch::{Error, Format, Host, Job, Model, Period, Protocol, Size, Watch, run};
use outrigger_tables::{Limits, Root, Table};
use outrigger_testkit::oip::{Answer, Protocol as Http, Seen, Server};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::harness::{Place, dead, score, text_of};

const CHAT: &str = "/v1/chat/completions";

/// A line that asks for its number.
fn line(number: usize) -> Value {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": number.to_string()}],
        "max_tokens": 8});
    json!({"custom_id": format!("line-{number}"), "method": "POST", "url": CHAT, "body": body})
}

fn lines(numbers: impl Iterator<Item = usize>) -> String {
    numbers.map(|number| format!("{}\n", line(number))).collect()
}

/// The number that a request asks for.
fn number(seen: &Seen) -> usize {
    let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
    let content = body["messages"][0]["content"].as_str().expect("a text");
    content.parse().expect("a number")
}

/// The answer to a line: its number.
fn echo(seen: &Seen) -> Answer {
    if seen.call == "GET /v1/models" {
        return Answer::json(200, r#"{"object": "list", "data": []}"#);
    }
    let message = json!({"role": "assistant", "content": number(seen).to_string()});
    let body = json!({"object": "chat.completion", "choices": [{"index": 0, "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}});
    // As some servers write it: on several lines.
    Answer::json(200, serde_json::to_string_pretty(&body).expect("JSON"))
}

async fn server(script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Server {
    Server::start(Http::Http1, script).await
}

/// A job over these files, in small chunks.
fn job(place: &Place, files: &[&str], hosts: &[&Server]) -> Job {
    let hosts = hosts.iter().map(|host| Host::new(&format!("http://{}", host.address()))).collect();
    let files = files.iter().map(ToString::to_string).collect();
    Job {
        protocol: Protocol::OpenAi,
        model: Model::default(),
        chunk_rows: Some(7),
        ..Job::new(files, place.output(), "", hosts)
    }
}

/// The lines of the output, in the order of its manifest.
fn written(place: &Place) -> Vec<Value> {
    let text = text_of(&place.output());
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The numbers of answers, which belong to their lines.
fn numbers(place: &Place) -> Vec<usize> {
    let number = |line: &Value| {
        let content = &line["response"]["body"]["choices"][0]["message"]["content"];
        let number: usize = content.as_str().expect("a text").parse().expect("a number");
        assert_eq!(line["custom_id"], format!("line-{number}"));
        number
    };
    written(place).iter().map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_has_its_answer_in_order() {
    let (place, one, two) = (Place::new(), server(echo).await, server(echo).await);
    let file = place.text("lines.jsonl", &lines(0..40));
    let manifest = score(job(&place, &[&file], &[&one, &two])).await.expect("answered");
    assert_eq!((manifest.rows, manifest.scored, manifest.dead), (40, 40, 0));
    assert_eq!(manifest.chunks.len(), 6);
    assert_eq!(numbers(&place), (0..40).collect::<Vec<_>>());
    let first = &written(&place)[0];
    let keys: Vec<_> = first.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert!(first["id"].as_str().expect("a name").starts_with("batch_req_"));
    assert_eq!((&first["error"], &first["response"]["status_code"]), (&Value::Null, &json!(200)));
    assert_eq!(first["response"]["request_id"], "");
    assert_eq!(first["response"]["body"]["usage"]["total_tokens"], 15);
    // The body is sent as it stands in the line.
    let seen = one.seen().into_iter().find(|seen| seen.call.starts_with("POST")).expect("one");
    let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
    assert_eq!(body, line(number(&seen))["body"]);
    assert_eq!(seen.headers["content-type"], "application/json");
    // The job is finished: it asks nobody again.
    let asked = one.seen().len() + two.seen().len();
    assert_eq!(score(job(&place, &[&file], &[&one])).await, Ok(manifest));
    assert_eq!(one.seen().len() + two.seen().len(), asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_none_are_dead_and_never_sent() {
    let (place, host) = (Place::new(), server(echo).await);
    let change = |key: &str, value: Value| {
        let mut line = line(1);
        line[key] = value;
        format!("{line}\n")
    };
    let mut without = line(1);
    without.as_object_mut().expect("an object").remove("custom_id");
    let mut stream = line(1)["body"].clone();
    stream["stream"] = json!(true);
    let bad = [
        (format!("{without}\n"), "custom_id"),
        (change("custom_id", json!(7)), "custom_id"),
        (change("method", json!("GET")), "method"),
        (change("url", json!("/v1/files")), "url"),
        (change("body", json!([1])), "object"),
        (change("body", Value::Null), "body"),
        (change("body", stream), "stream"),
        ("{\"custom_id\": \"line-1\", \n".to_owned(), ""),
        ("no JSON\n".to_owned(), ""),
    ];
    let text: String =
        lines(0..3) + &bad.iter().map(|(line, _)| line.as_str()).collect::<String>() + &lines(3..5);
    let file = place.text("lines.jsonl", &text);
    let manifest = score(job(&place, &[&file], &[&host])).await.expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (5, bad.len() as u64));
    assert_eq!(numbers(&place), [0, 1, 2, 3, 4]);
    let letters = dead(&place.output());
    for ((row, (line, fault)), letter) in (3..).zip(&bad).zip(&letters) {
        assert_eq!((&letter["row"], &letter["reason"]), (&json!(row), &json!("invalid_input")));
        assert!(letter["error"].as_str().expect("a text").contains(fault), "{line} {letter}");
        assert_eq!(letter["attempts"], 0);
    }
    assert_eq!(letters[3]["custom_id"], "line-1");
    let sent: Vec<_> =
        host.seen().iter().filter(|seen| seen.call.starts_with("POST")).map(number).collect();
    assert!(sent.iter().all(|number| *number < 5), "{sent:?}");
    // The first line is sent before the others, for the plan.
    assert_eq!(sent.len(), 6, "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_do_not_fit_are_refused_before_anything_is_written() {
    let (place, host) = (Place::new(), server(echo).await);
    let file = place.text("lines.jsonl", &lines(0..3));
    let none = place.text("none.jsonl", "{\"custom_id\": \"a\", \"method\": \"POST\"}\n");
    let refused = |job: Job, fault: &'static str| async move {
        match score(job).await {
            Err(Error::Usage(message)) if message.contains(fault) => {}
            other => panic!("{fault}: {other:?}"),
        }
    };
    let with = || job(&place, &[&file], &[&host]);
    refused(Job { model: Model::named("m"), ..with() }, "model").await;
    refused(Job { tokens_per_minute: Some(0), ..with() }, "tokens_per_minute").await;
    refused(job(&place, &[&none], &[&host]), "no row has a key").await;
    let mut unset = with();
    unset.hosts.0[0].0.token_env = Some("OUTRIGGER_TEST_UNSET".to_owned());
    refused(unset, "OUTRIGGER_TEST_UNSET").await;
    assert_eq!(host.count(CHAT), 0);
    // Other credentials than the server's are found by the first line.
    let closed = server(|_| Answer::json(401, r#"{"error": {"message": "no key"}}"#)).await;
    let error = score(job(&place, &[&file], &[&closed])).await.expect_err("refused");
    assert!(error.to_string().contains("no key"), "{error}");
    assert!(!place.output().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_file_is_sent() {
    let place = Place::new();
    let token = place.text("token", "secret\n");
    let host = server(|seen| match seen.headers.get("authorization") {
        Some(it) if it == "Bearer secret" => echo(seen),
        _ => Answer::json(401, "{}"),
    })
    .await;
    let file = place.text("lines.jsonl", &lines(0..3));
    let mut job = job(&place, &[&file], &[&host]);
    job.hosts.0[0].0.token_file = Some(token.into());
    let manifest = score(job).await.expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (3, 0));
    assert!(!text_of(&place.output()).contains("secret"));
    let plan = std::fs::read_to_string(place.output().join("plan.json")).expect("a plan");
    assert!(!plan.contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_failures_of_hosts_lose_no_line() {
    let place = Place::new();
    let calls = AtomicUsize::new(0);
    let refusing = server(move |seen| match calls.fetch_add(1, Relaxed) {
        call if call % 3 == 1 => {
            Answer::json(429, r#"{"error": {"message": "slow down"}}"#).with("retry-after", "0")
        }
        call if call % 7 == 2 => Answer::json(500, r#"{"error": "at fault"}"#),
        call if call % 7 == 3 => Answer::Close,
        call if call % 7 == 4 => Answer::of(200, Some("text/html"), "<html>hello</html>"),
        call if call % 7 == 5 => Answer::json(200, r#"{"error": {"message": "late"}}"#),
        _ => echo(seen),
    })
    .await;
    let good = server(echo).await;
    let file = place.text("lines.jsonl", &lines(0..60));
    let mut job = job(&place, &[&file], &[&good, &refusing]);
    job.concurrency = 4;
    let manifest = score(job).await.expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (60, 0), "{:?}", dead(&place.output()));
    assert_eq!(numbers(&place), (0..60).collect::<Vec<_>>());
    assert!(refusing.count(CHAT) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_two_hosts_refuse_is_dead_and_is_sent_to_no_third() {
    let place = Place::new();
    let script = |seen: &Seen| match seen.call.starts_with("POST").then(|| number(seen)) {
        Some(5) => Answer::json(404, r#"{"error": {"message": "the model does not exist"}}"#),
        Some(9) => Answer::json(400, r#"{"error": {"message": "the context is too short"}}"#),
        Some(11) => Answer::json(501, r#"{"error": {"message": "no such feature"}}"#),
        Some(13) => Answer::of(200, Some("text/plain"), "hello"),
        _ => echo(seen),
    };
    let hosts = [server(script).await, server(script).await, server(script).await];
    let file = place.text("lines.jsonl", &lines(0..30));
    let manifest =
        score(job(&place, &[&file], &hosts.iter().collect::<Vec<_>>())).await.expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (26, 4));
    let expected: Vec<_> = (0..30).filter(|it| ![5, 9, 11, 13].contains(it)).collect();
    assert_eq!(numbers(&place), expected);
    let letters = dead(&place.output());
    let reasons: Vec<_> =
        letters.iter().map(|it| (it["row"].as_u64(), it["reason"].as_str())).collect();
    assert_eq!(
        reasons,
        [
            (Some(5), Some("invalid_input")),
            (Some(9), Some("invalid_input")),
            (Some(11), Some("invalid_input")),
            (Some(13), Some("bad_reply")),
        ]
    );
    assert_eq!(letters[1]["custom_id"], "line-9");
    assert!(letters[1]["error"].as_str().expect("a text").contains("the context is too short"));
    let mut asked: BTreeMap<usize, usize> = BTreeMap::new();
    for seen in hosts.iter().flat_map(Server::seen) {
        if seen.call.starts_with("POST") {
            *asked.entry(number(&seen)).or_default() += 1;
        }
    }
    for row in [5, 9, 11, 13] {
        assert_eq!(asked[&row], 2, "{asked:?}");
        let letter = letters.iter().find(|it| it["row"] == row).expect("a letter");
        assert_eq!(letter["hosts"].as_array().map(Vec::len), Some(2));
    }
    // Dead letters are fed back to hosts that have no fault, as the lines that they are.
    let well = server(echo).await;
    let second = Place::new();
    let hosts = vec![Host::new(&well.address())];
    let retry =
        Job { retry: Some(place.output()), ..Job::new(Vec::new(), second.output(), "", hosts) };
    let manifest = score(retry).await.expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (4, 0));
    assert_eq!(numbers(&second), [5, 9, 11, 13]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_or_large_answer_is_dead_and_nothing_else() {
    let place = Place::new();
    let script = |seen: &Seen| match seen.call.starts_with("POST").then(|| number(seen)) {
        Some(4) => Answer::Never,
        Some(8) => {
            let text = "x".repeat(17 << 20);
            Answer::json(200, format!(r#"{{"choices": [{{"text": "{text}"}}]}}"#))
        }
        _ => echo(seen),
    };
    let [one, two] = [server(script).await, server(script).await];
    let file = place.text("lines.jsonl", &lines(0..20));
    let mut job = job(&place, &[&file], &[&one, &two]);
    job.timeout = Period(Duration::from_secs(2));
    job.memory = Size(128 << 20);
    let manifest = score(job).await.expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (18, 2));
    let reasons: Vec<_> = dead(&place.output())
        .iter()
        .map(|it| (it["row"].as_u64(), it["reason"].as_str().map(str::to_owned)))
        .collect();
    let expected =
        [(4, "timeout"), (8, "bad_reply")].map(|(row, it)| (Some(row), Some(it.to_owned())));
    assert_eq!(reasons, expected);
}

/// A server that closes the connection in the middle of every answer to a line.
async fn breaking() -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 16 << 10];
            // One read has the whole request, which is short.
            let _ = stream.read(&mut request).await;
            let start = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"choices\": [";
            let _ = stream.write_all(start).await;
        }
    });
    (address, serving)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_in_its_middle_is_that_of_another_host() {
    let (place, good) = (Place::new(), server(echo).await);
    let (address, serving) = breaking().await;
    let file = place.text("lines.jsonl", &lines(0..30));
    let mut job = job(&place, &[&file], &[&good]);
    job.hosts.0.push(Host::new(&address));
    let manifest = score(job).await.expect("answered");
    serving.abort();
    assert_eq!((manifest.scored, manifest.dead), (30, 0), "{:?}", dead(&place.output()));
    assert_eq!(numbers(&place), (0..30).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_run_again_gives_the_same_lines() {
    let place = Place::new();
    let host = server(echo).await;
    let file = place.text("lines.jsonl", &lines(0..40));
    let whole = Place::new();
    let expected = Job { output: whole.output(), ..job(&whole, &[&file], &[&host]) };
    score(expected).await.expect("answered");
    // The job is interrupted in the middle of its commits.
    let commits = AtomicUsize::new(0);
    let watch = Watch::default();
    let store = place.store().observed({
        let watch = watch.clone();
        move |step: &str| {
            if step.starts_with("commit/") && commits.fetch_add(1, Relaxed) >= 4 {
                watch.interrupt();
            }
        }
    });
    let first = run(job(&place, &[&file], &[&host]), store, watch).await;
    assert_eq!(first, Err(Error::Interrupted));
    let again = score(job(&place, &[&file], &[&host])).await.expect("answered");
    assert_eq!((again.scored, again.dead), (40, 0));
    assert_eq!(text_of(&place.output()), text_of(&whole.output()));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_may_be_csv_and_answers_parquet() {
    let (place, host) = (Place::new(), server(echo).await);
    let of = |number: usize| {
        let body = line(number)["body"].to_string().replace('"', "\"\"");
        format!("line-{number},POST,{CHAT},\"{body}\"\n")
    };
    let csv: String = (0..7).map(of).collect();
    let file = place.text("lines.csv", &format!("custom_id,method,url,body\n{csv}"));
    let mut job = job(&place, &[&file], &[&host]);
    job.output_format = Some(Format::Parquet);
    let manifest = score(job).await.expect("answered");
    assert_eq!((manifest.scored, manifest.dead), (7, 0), "{:?}", dead(&place.output()));
    let path = place.output().join(&manifest.files().next().expect("a file").name);
    let table = Table::open(&Root::Any, &path, Limits::default()).expect("a table");
    let columns = ["custom_id", "id", "response", "error"];
    let mut batches = table.read(std::slice::from_ref(&(0..7)), &columns).expect("its rows");
    let batch = batches.next(7).expect("readable").expect("rows");
    let texts = |name| batch.column_by_name(name).expect("a column").as_string::<i32>().clone();
    assert_eq!((texts("error").null_count(), texts("custom_id").value(3)), (7, "line-3"));
    let response: Value = serde_json::from_str(texts("response").value(3)).expect("JSON");
    assert_eq!(response["body"]["choices"][0]["message"]["content"], "3");
}
