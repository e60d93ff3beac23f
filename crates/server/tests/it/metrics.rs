//! Checks that `/metrics` exposes the metrics that docs/metrics.md lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use outrigger_core::MetricKind;
use outrigger_proto::outrigger::v1::PredictRequest;

use outrigger_testkit::engine::Loading;
use tonic::{Code, Request};

use crate::stack::{MODEL, Stack, by_name, request};

/// The name and type of each metric in an exposition.
fn exposed(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let pair = |line: &str| {
        let (name, kind) = line.split_once(' ').expect("a type line");
        (name.to_owned(), kind.to_owned())
    };
    types.map(pair).collect()
}

#[tokio::test]
async fn everything_exposed_is_documented_with_its_kind_and_labels() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0), (2.0, 2.0)])).await.unwrap();
    let mut defaulted = request(&[(1.0, 1.0)]);
    defaulted.user = None;
    client.predict(defaulted).await.unwrap();
    for name in ["made-up-1", "made-up-2"] {
        let unknown = PredictRequest { model: Some(by_name(name)), ..request(&[]) };
        client.predict(unknown).await.unwrap_err();
    }
    let (status, text) = stack.health("/metrics").await;
    assert_eq!(status, 200);
    let documented: BTreeMap<_, _> =
        outrigger_server::metrics::all().into_iter().map(|metric| (metric.name, metric)).collect();
    for (name, kind) in &exposed(&text) {
        let metric =
            documented.get(name.as_str()).unwrap_or_else(|| panic!("{name} is in no list"));
        let expected = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        assert_eq!(kind, expected, "{name}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        labels_are_declared(line, &documented);
    }
    assert!(!text.contains("made-up"), "names that callers make up are no labels");
    for expected in [
        format!(
            "outrigger_request_features_total{{model=\"{MODEL}\",arm=\"live\",kind=\"missing\"}}"
        ),
        format!(
            "outrigger_request_stage_duration_seconds_bucket{{stage=\"engine\",model=\"{MODEL}\",arm=\"live\""
        ),
        format!("outrigger_request_treatments_count{{model=\"{MODEL}\",arm=\"live\"}}"),
        "reason=\"MODEL_NOT_FOUND\"".to_owned(),
        format!("outrigger_request_score_bucket{{model=\"{MODEL}\",arm=\"live\",le=\"5\"}}"),
        format!("outrigger_model_memory_bytes{{model=\"{MODEL}\",digest=\"sha256:"),
        "outrigger_model_cache_total{kind=\"tree\",result=\"miss\"}".to_owned(),
        "process_resident_memory_bytes".to_owned(),
        "outrigger_ready 1".to_owned(),
        // The counter is registered before any restart, so that rate() sees the first one.
        "\noutrigger_engine_restarts_total{engine=\"default\"} ".to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected} is missing in\n{text}");
    }
}

#[tokio::test]
async fn a_load_that_the_engine_gives_up_is_counted() {
    let stack = Stack::start().await;
    stack.engine.on_load(|load| match load.path.is_symlink() {
        true => Loading::Fails(Code::ResourceExhausted, "no room".to_owned()),
        // The other load is the placeholder's.
        false => Loading::Normal,
    });
    let mut asked = Request::new(request(&[(1.0, 1.0)]));
    asked.set_timeout(Duration::from_secs(5));
    stack.predictions().predict(asked).await.unwrap_err();
    let (_, text) = stack.health("/metrics").await;
    let counted = "outrigger_model_failures_total{reason=\"MEMORY_FULL\"}";
    assert!(text.contains(counted), "{text}");
}

fn labels_are_declared(line: &str, documented: &BTreeMap<&str, outrigger_core::Metric>) {
    let end = line.find(['{', ' ']).expect("a value");
    let series = &line[..end];
    let suffixes = ["_bucket", "_sum", "_count", ""];
    let metric = suffixes
        .iter()
        .filter_map(|suffix| documented.get(series.strip_suffix(suffix)?))
        .next()
        .unwrap_or_else(|| panic!("{series} is in no list"));
    let Some(labels) = line[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
        assert!(metric.labels.is_empty(), "{line}");
        return;
    };
    let names = labels.0.split("\",").filter_map(|label| label.split_once('=')).map(|pair| pair.0);
    let names: BTreeSet<_> = names.filter(|name| *name != "le").collect();
    assert_eq!(names, metric.labels.iter().copied().collect(), "{line}");
}

#[tokio::test]
async fn the_metrics_of_the_request_path_are_all_exposed_after_traffic() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    let mut mixed = request(&[(1.0, 1.0)]);
    mixed.user = None;
    client.predict(mixed).await.unwrap();
    let (_, text) = stack.health("/metrics").await;
    let exposed = exposed(&text);
    let rare = [
        // These metrics appear only with TLS.
        "outrigger_tls_handshake_failures_total",
        "outrigger_tls_certificate_expiry_timestamp_seconds",
        "outrigger_secret_reloads_total",
    ];
    for metric in outrigger_server::metrics::METRICS {
        let expected = !rare.contains(&metric.name);
        assert!(!expected || exposed.contains_key(metric.name), "{} is not exposed", metric.name);
    }
}

#[tokio::test]
async fn readers_that_do_not_read_delay_no_probe() {
    use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};
    let stack = Stack::start().await;
    let mut unread = Vec::new();
    for _ in 0..64 {
        let mut reader = TcpStream::connect(stack.addresses.health).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
        reader.write_all(request.as_bytes()).await.unwrap();
        unread.push(reader);
    }
    for _ in 0..100 {
        let probe = timeout(Duration::from_secs(5), stack.health("/healthz"));
        assert_eq!(probe.await.expect("an answer in time").0, 200);
    }
}
