//! What a connection remembers from one charge of shared rates to the next.

use std::time::Instant;

/// How many statements a connection sent to charge shared rates, and the server's time at the last.
#[derive(Default)]
pub(super) struct RateChargeState {
    /// The number of statements sent.
    pub statements_sent: u64,
    /// The server's time in microseconds, and when this process got to know it.
    server_time: Option<(u64, Instant)>,
}

impl RateChargeState {
    /// Remembers the time that the server showed in its latest reply, in microseconds, as its time
    /// of this moment. The server's clock has gone on since its reply. So a charge may seem to be
    /// sent earlier than it was, and never later.
    pub(super) fn set_server_time(&mut self, microseconds: u64) {
        self.server_time = Some((microseconds, Instant::now()));
    }

    /// The server's time at this moment, in microseconds; 0 if it is not known.
    pub(super) fn server_time_at(&self, moment: Instant) -> u64 {
        let between = |earlier: Instant, later: Instant| {
            let passed = later.saturating_duration_since(earlier).as_micros();
            u64::try_from(passed).unwrap_or(u64::MAX)
        };
        self.server_time.map_or(0, |(time, read_at)| {
            time.saturating_add(between(read_at, moment)).saturating_sub(between(moment, read_at))
        })
    }
}
