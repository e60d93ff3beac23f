use std::sync::{
    Mutex,
    mpsc::{Receiver, channel},
};

use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

use super::*;

/// An exporter that counts the spans it gets. It holds the first batch until the test lets it go
/// on.
#[derive(Debug)]
struct Blocked {
    may: Mutex<Option<Receiver<()>>>,
    got: Arc<AtomicUsize>,
}

impl SpanExporter for Blocked {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        if let Some(may) = self.may.lock().unwrap().take() {
            may.recv().unwrap();
        }
        self.got.fetch_add(batch.len(), Relaxed);
        Ok(())
    }
}

#[test]
fn dropped_spans_are_counted_and_nothing_waits() {
    const ENDED: usize = 3 * QUEUE;
    let (go, may) = channel();
    let got = Arc::<AtomicUsize>::default();
    let blocked = Blocked { may: Mutex::new(Some(may)), got: Arc::clone(&got) };
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_span_processor(Bounded::new(blocked))
        .build();
    let tracer = provider.tracer("test");
    // The recorder is local to this thread, so it sees only drops counted by the thread that ends
    // spans.
    let recorder = PrometheusBuilder::new().build_recorder();
    ::metrics::with_local_recorder(&recorder, || {
        (0..ENDED).for_each(|_| tracer.start("pull").end());
    });
    go.send(()).unwrap();
    provider.shutdown().unwrap();
    let text = recorder.handle().render();
    let dropped = text
        .lines()
        .find_map(|line| line.strip_prefix("outrigger_trace_spans_total{outcome=\"dropped\"} "));
    let dropped: usize = dropped.expect("some are dropped").parse().unwrap();
    assert!(dropped >= ENDED - QUEUE - BATCH, "{dropped}");
    assert_eq!(got.load(Relaxed) + dropped, ENDED);
}
