//! The memory for riskgate's own responses that wait for the client of one HTTP/2 connection.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::gate::{ConnectionFacts, Gate, HeldBytesGuard, UnsentBytes};

/// How many times in a row riskgate may not hold the responses that wait, before the client counts
/// as one that does not take them. Other threads may have added responses since the h2 crate last
/// sent what it could.
const MAX_CHECKS_IN_A_ROW: usize = 4;

/// Counts riskgate's own responses that wait for the client against `listen.max_held_bytes`.
/// A server's response counts in `downstream/forwarded_response.rs`.
pub(super) struct ReplyMemory<'c> {
    gate: &'c Gate,
    connection: &'c ConnectionFacts,
    unsent: &'c Arc<UnsentBytes>,
    held: Option<HeldBytesGuard>,
    failed_checks: usize,
}

impl<'c> ReplyMemory<'c> {
    /// Begins to count the responses on this connection.
    pub fn new(
        gate: &'c Gate,
        connection: &'c ConnectionFacts,
        unsent: &'c Arc<UnsentBytes>,
    ) -> ReplyMemory<'c> {
        ReplyMemory { gate, connection, unsent, held: None, failed_checks: 0 }
    }

    /// Counts the responses that wait now, after a poll of the h2 crate's connection in the same
    /// task. Ready if riskgate may not hold them, and the client does not take them.
    pub fn poll_exceeded(&mut self, task: &mut Context<'_>) -> Poll<()> {
        if self.can_hold_unsent() {
            self.failed_checks = 0;
            return Poll::Pending;
        }
        self.failed_checks += 1;
        if self.failed_checks >= MAX_CHECKS_IN_A_ROW {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }

    fn can_hold_unsent(&mut self) -> bool {
        let unsent_bytes = self.unsent.reply_bytes_to_count();
        if unsent_bytes == 0 {
            self.held = None;
            return true;
        }
        let (gate, connection) = (self.gate, self.connection);
        let held = self.held.get_or_insert_with(|| gate.begin_held_bytes_of(connection));
        held.shrink_to(unsent_bytes);
        held.grow_to(unsent_bytes)
    }
}
