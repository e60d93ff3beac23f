use std::fmt;

use axum::Router;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::Field,
    span::{Attributes, Id, Record},
    subscriber::set_default,
};

use super::{
    super::{
        crowds::until,
        frames::HEADER,
        messages::{Messages, POST, converse, frame},
        tests::Served,
    },
    *,
};

/// The warnings that are logged.
#[derive(Default, Clone)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            text += &format!("{field}={value:?} ");
        });
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn errors_of_the_protocol_are_counted_by_cause_and_logged_once_a_minute() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let rendered = recorder.handle();
    let warnings = Warnings::default();
    let _recorder = ::metrics::set_default_local_recorder(&recorder);
    let _subscriber = set_default(warnings.clone());
    let overflow = frame(8, 0, 0, &(u32::MAX >> 1).to_be_bytes());
    let empty = frame(0, 0, 1, &[]);
    let protocol_error = u32::from(Reason::PROTOCOL_ERROR).to_be_bytes();
    let cases: [(&str, Vec<u8>); 5] = [
        ("protocol", frame(0, 0, 7, &[0; 40])),
        ("frame_size", [&[0xff; 3][..], &[0; HEADER - 3]].concat()),
        ("flow_control", overflow),
        ("calm", [frame(1, 4, 1, POST), empty.repeat(200)].concat()),
        ("peer", frame(7, 0, 0, &[&[0; 4][..], &protocol_error].concat())),
    ];
    let listeners = [Served::by(Router::new()), Served::by(Messages::beside(Router::new()))];
    for (cause, sent) in &cases {
        for served in &listeners {
            converse(served, sent, &[]).await.expect("it ends the connection");
        }
        let line = format!("{{listener=\"http\",cause=\"{cause}\"}} 2");
        until(|| rendered.render().contains(&line)).await;
    }
    for served in &listeners {
        let mut caller = served.connect().await;
        caller.write_all(b"\x16\x03\x01 is a handshake of TLS\r\n\r\n").await.unwrap();
        caller.read_to_end(&mut Vec::new()).await.expect("it ends the connection");
    }
    until(|| rendered.render().contains("{listener=\"http\",cause=\"http1\"} 2")).await;
    let warnings = warnings.0.lock().unwrap();
    assert_eq!(warnings.len(), listeners.len(), "{warnings:?}");
    for part in ["cause=\"protocol\"", "peer=127.0.0.1:", "others=0", "listener=\"http\""] {
        assert!(warnings[0].contains(part), "{part} in {}", warnings[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_warning_counts_the_connections_since_the_last_one() {
    let endings = Endings::of("grpc");
    let warns: Vec<_> = (0..3).map(|_| endings.warns()).collect();
    assert_eq!(warns, [Some(0), None, None]);
    tokio::time::advance(WARN_EVERY).await;
    assert_eq!(endings.warns(), Some(2));
}
