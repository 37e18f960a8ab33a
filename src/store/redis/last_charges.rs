//! What a connection remembers of the rates that it charged last.

use std::time::Instant;

/// The last charges of shared rates on a connection.
#[derive(Default)]
pub(super) struct LastCharges {
    /// The number of statements sent.
    pub statements: u64,
    /// The server's time in microseconds, and when this process got to know it.
    server_time: Option<(u64, Instant)>,
}

impl LastCharges {
    /// Takes note that the server shows this time now, in microseconds, or has just shown it. So
    /// charges never seem to be sent later than they are.
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
