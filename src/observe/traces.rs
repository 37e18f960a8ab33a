//! Traces of requests, in OpenTelemetry's model: which requests are traced, and the spans that wait
//! for the exporter.
//!
//! Like the access log, spans contain no key and no local part of an e-mail address. If the queue
//! is full, spans are dropped and counted. No request ever waits for the exporter.

mod options;
mod otlp;
mod request_trace;
mod span;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::support::lock::lock;

pub use options::{TraceOptions, TraceProtocol};
pub use otlp::encode_spans;
pub use request_trace::{RequestTrace, TRACEPARENT_LENGTH};
pub use span::{Attribute, AttributeValue, Span, SpanKind};

/// The most spans in the queue.
const MAX_QUEUED_SPANS: usize = 8_192;
/// The most spans in one message to the collector. The exporter wakes as soon as this number of
/// spans is queued.
pub const MAX_SPANS_IN_MESSAGE: usize = 512;

/// Decides which requests are traced, and holds their spans until they are exported.
pub struct Tracer {
    /// [`RequestTrace::begin`] chooses one trace in this many; `None` if traces are off.
    sample_one_in: Option<u64>,
    queue: Mutex<Queue>,
    /// Notified when a message is full, when the tracer closes, and when the exporter is done.
    queue_changed: Condvar,
    dropped_spans: AtomicU64,
    exported_spans: AtomicU64,
}

#[derive(Default)]
struct Queue {
    spans: Vec<Span>,
    is_closed: bool,
    /// Whether the exporter has sent its last spans.
    is_exporter_done: bool,
}

impl Tracer {
    /// Creates a tracer. `sample_one_in` is `None` if traces are off.
    pub fn new(sample_one_in: Option<u64>) -> Tracer {
        Tracer {
            sample_one_in,
            queue: Mutex::default(),
            queue_changed: Condvar::new(),
            dropped_spans: AtomicU64::new(0),
            exported_spans: AtomicU64::new(0),
        }
    }

    /// Returns true if traces are on.
    pub fn is_on(&self) -> bool {
        self.sample_one_in.is_some()
    }

    /// Begins the trace of a request, as [`RequestTrace::begin`] does. Returns `None` if traces are
    /// off. `is_caller_trusted` says that a trusted proxy sent the request.
    pub fn begin(
        &self,
        traceparent: Option<&[u8]>,
        is_caller_trusted: bool,
    ) -> Option<RequestTrace> {
        self.sample_one_in.map(|one_in| RequestTrace::begin(traceparent, is_caller_trusted, one_in))
    }

    /// Adds spans to the queue. Drops spans while the queue is full or closed.
    pub fn queue_spans(&self, spans: impl IntoIterator<Item = Span>) {
        let mut queue = lock(&self.queue);
        for span in spans {
            match queue.is_closed || queue.spans.len() >= MAX_QUEUED_SPANS {
                true => self.count_dropped(1),
                false => queue.spans.push(span),
            }
        }
        if queue.spans.len() >= MAX_SPANS_IN_MESSAGE {
            self.queue_changed.notify_one();
        }
    }

    /// Waits until [`MAX_SPANS_IN_MESSAGE`] spans are queued, at most for this time, and takes all
    /// queued spans. Returns the spans, and whether the tracer is closed.
    pub fn wait_and_take_spans(&self, max_wait: Duration) -> (Vec<Span>, bool) {
        let is_waiting =
            |queue: &mut Queue| !queue.is_closed && queue.spans.len() < MAX_SPANS_IN_MESSAGE;
        let waited = self.queue_changed.wait_timeout_while(lock(&self.queue), max_wait, is_waiting);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut queue.spans), queue.is_closed)
    }

    /// Counts spans that the collector took.
    pub fn count_exported(&self, spans: usize) {
        self.exported_spans.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Counts spans that are lost.
    pub fn count_dropped(&self, spans: usize) {
        self.dropped_spans.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Returns the numbers of exported and of dropped spans.
    pub fn span_counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.exported_spans), load(&self.dropped_spans))
    }

    /// Drops all spans from now on. Waits until the exporter has tried to send the queued spans, at
    /// most for this time.
    pub fn close(&self, max_wait: Duration) {
        let mut queue = lock(&self.queue);
        queue.is_closed = true;
        self.queue_changed.notify_all();
        if self.is_on() {
            let is_sending = |queue: &mut Queue| !queue.is_exporter_done;
            drop(self.queue_changed.wait_timeout_while(queue, max_wait, is_sending));
        }
    }

    /// Tells [`Tracer::close`] that the exporter has sent its last spans.
    pub fn report_exporter_done(&self) {
        lock(&self.queue).is_exporter_done = true;
        self.queue_changed.notify_all();
    }
}
