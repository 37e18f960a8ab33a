//! The memory of one HTTP/2 connection that no request counts: riskgate's own responses that wait
//! for the client, and a header whose end has not arrived.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::downstream::client_io::{FrameMeter, OpenHeader};
use crate::gate::{ConnectionFacts, Gate, HEADER_FIELD_BYTES, HeldBytesGuard, UnsentBytes};

/// After this many checks in a row that find too little memory left for the connection, riskgate
/// closes the connection. One check is not enough: other threads may have added responses since the
/// h2 crate last sent what it could.
const MAX_CHECKS_IN_A_ROW: usize = 4;
/// The size of the smallest header field in the list of header fields (RFC 9113 section 6.5.2): a
/// name of one byte, no value, and 32 bytes.
const MIN_LISTED_FIELD_BYTES: usize = 33;

/// Counts the memory of a connection against `listen.max_held_bytes`, and the time of a header. A
/// server's response counts in `downstream/forwarded_response.rs` or `proxy/gateway.rs`.
pub(super) struct ConnectionMemory<'c> {
    gate: &'c Gate,
    connection: &'c ConnectionFacts,
    unsent: &'c Arc<UnsentBytes>,
    frame_meter: &'c FrameMeter,
    limits: HeaderLimits,
    held: Option<HeldBytesGuard>,
    failed_checks: usize,
    /// When the header that has not ended is late; `None` without such a header.
    header_late_at: Option<Instant>,
    /// The timer until then; `None` once it has fired.
    header_timer: Option<Pin<Box<Sleep>>>,
}

/// Why riskgate ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The client has sent too many frames, or riskgate may not hold what waits for it.
    LimitExceeded,
    /// A header has not ended in time.
    HeaderLate,
}

/// What a client may send as one header.
#[derive(Clone, Copy)]
pub(super) struct HeaderLimits {
    /// The most bytes that the h2 crate accepts as a list of header fields.
    pub list_bytes: usize,
    /// The time in which a header must arrive.
    pub timeout: Duration,
}

impl HeaderLimits {
    /// Returns the most memory that a header may take once `arrived_bytes` of it have arrived. One
    /// byte may stand for a whole field (RFC 7541 section 6.1).
    fn memory_bytes(self, arrived_bytes: usize) -> usize {
        arrived_bytes.min(self.list_bytes / MIN_LISTED_FIELD_BYTES) * HEADER_FIELD_BYTES
    }
}

impl<'c> ConnectionMemory<'c> {
    /// Begins to count the memory of this connection.
    pub fn new(
        gate: &'c Gate,
        connection: &'c ConnectionFacts,
        unsent: &'c Arc<UnsentBytes>,
        frame_meter: &'c FrameMeter,
        limits: HeaderLimits,
    ) -> ConnectionMemory<'c> {
        let (held, failed_checks, header_late_at, header_timer) = (None, 0, None, None);
        ConnectionMemory {
            gate,
            connection,
            unsent,
            frame_meter,
            limits,
            held,
            failed_checks,
            header_late_at,
            header_timer,
        }
    }

    /// Counts what waits now, after a poll of the h2 crate's connection in the same task. Ready if
    /// riskgate has to end the connection. Each header is reported as late once.
    pub fn poll_end_reason(&mut self, task: &mut Context<'_>) -> Poll<EndReason> {
        let frames = self.frame_meter.read_state();
        if frames.is_exceeded {
            return Poll::Ready(EndReason::LimitExceeded);
        }
        if self.poll_header_late(frames.open_header, task).is_ready() {
            return Poll::Ready(EndReason::HeaderLate);
        }
        if self.can_hold_waiting(frames.open_header) {
            self.failed_checks = 0;
            return Poll::Pending;
        }
        self.failed_checks += 1;
        if self.failed_checks >= MAX_CHECKS_IN_A_ROW {
            return Poll::Ready(EndReason::LimitExceeded);
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready when the time for the header passes.
    fn poll_header_late(&mut self, header: Option<OpenHeader>, task: &mut Context<'_>) -> Poll<()> {
        let late_at = header.map(|header| header.begun_at + self.limits.timeout);
        if late_at != self.header_late_at {
            self.header_late_at = late_at;
            self.header_timer = late_at.map(|late_at| Box::pin(sleep_until(late_at)));
        }
        let Some(timer) = &mut self.header_timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(task));
        self.header_timer = None;
        Poll::Ready(())
    }

    fn can_hold_waiting(&mut self, header: Option<OpenHeader>) -> bool {
        let of_header = header.map_or(0, |header| self.limits.memory_bytes(header.arrived_bytes));
        let bytes = self.unsent.reply_bytes_to_count() + of_header;
        if bytes == 0 {
            self.held = None;
            return true;
        }
        let (gate, connection) = (self.gate, self.connection);
        let held = self.held.get_or_insert_with(|| gate.begin_held_bytes_of(connection));
        held.shrink_to(bytes);
        held.grow_to(bytes)
    }
}
