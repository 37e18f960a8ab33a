//! The memory for riskgate's own responses that wait for the client of one HTTP/2 connection.

use std::sync::Arc;

use crate::gate::{ConnectionFacts, Gate, HeldBytesGuard, UnsentBytes};

/// Counts riskgate's own responses that wait for the client against `listen.max_held_bytes`.
/// A server's response counts in `downstream/forwarded_response.rs`.
pub(super) struct ReplyMemory<'c> {
    gate: &'c Gate,
    connection: &'c ConnectionFacts,
    unsent: &'c Arc<UnsentBytes>,
    held: Option<HeldBytesGuard>,
}

impl<'c> ReplyMemory<'c> {
    /// Begins to count the responses on this connection.
    pub fn new(
        gate: &'c Gate,
        connection: &'c ConnectionFacts,
        unsent: &'c Arc<UnsentBytes>,
    ) -> ReplyMemory<'c> {
        ReplyMemory { gate, connection, unsent, held: None }
    }

    /// Counts the responses that wait now. Returns false if riskgate may not hold them. After a
    /// poll of the h2 crate's connection, only responses wait that the client does not take.
    pub fn can_hold_unsent(&mut self) -> bool {
        let unsent_bytes = self.unsent.reply_bytes_to_count();
        if unsent_bytes == 0 {
            self.held = None;
            return true;
        }
        let (gate, connection) = (self.gate, self.connection);
        let held = self.held.get_or_insert_with(|| gate.begin_held_bytes_of(connection));
        held.grow_to(unsent_bytes)
    }
}
