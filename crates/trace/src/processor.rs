//! The queue between the threads that end spans and the thread that exports them, with a count of
//! each span's outcome.

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use opentelemetry::Context;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor},
};

use crate::metrics::{self, Outcome};

/// The queue's capacity; further spans are dropped.
pub(crate) const QUEUE: usize = 4096;
/// The most spans of one message, and how long the first span waits for others.
const BATCH: usize = 512;
const PERIOD: Duration = Duration::from_secs(1);

/// OpenTelemetry's queue, with a counter of waiting spans in front of it. The SDK does not report
/// the spans that it drops, so the counter keeps the queue from ever overflowing and counts drops
/// here.
#[derive(Debug)]
pub(crate) struct Bounded {
    batches: BatchSpanProcessor,
    waiting: Arc<AtomicUsize>,
}

/// An exporter that counts the spans taken from the queue, and their outcomes.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    waiting: Arc<AtomicUsize>,
    /// True if the last message arrived, so that only changes are logged.
    reached: AtomicBool,
}

impl Bounded {
    /// Starts the exporting thread.
    pub(crate) fn new(exporter: impl SpanExporter + 'static) -> Self {
        let waiting = Arc::<AtomicUsize>::default();
        let reached = AtomicBool::new(true);
        let counted = Counted { exporter, waiting: Arc::clone(&waiting), reached };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(PERIOD)
            .build();
        let batches = BatchSpanProcessor::builder(counted).with_batch_config(config).build();
        Self { batches, waiting }
    }
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.waiting.fetch_add(1, Relaxed) < QUEUE {
            return self.batches.on_end(span);
        }
        self.waiting.fetch_sub(1, Relaxed);
        metrics::count(Outcome::Dropped, 1);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.waiting.fetch_sub(spans, Relaxed);
        let result = self.exporter.export(batch).await;
        let outcome = if result.is_ok() { Outcome::Exported } else { Outcome::Failed };
        metrics::count(outcome, spans as u64);
        match (&result, self.reached.swap(result.is_ok(), Relaxed)) {
            (Err(error), true) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(error, "spans cannot be exported");
            }
            (Ok(()), false) => tracing::info!("the trace collector accepts spans again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
