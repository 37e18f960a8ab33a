//! The deadline of an exchange with an upstream server.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use crate::support::time_limit::TimeLimit;

/// The deadline of one exchange. Its time does not run while the client sends its request.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeDeadline {
    limit: TimeLimit,
    /// When the time began to run; `None` while the client sends.
    since: Option<Instant>,
    is_for_body_part: bool,
}

/// When an exchange ends, as its guard sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeEndTime {
    /// At this time; never if `None`.
    At(Option<Instant>),
    /// At this time, unless the server has sent bytes that nobody has read yet. Such bytes wait for
    /// the client, so the server is not late.
    AtIfServerIsSilent(Instant),
    /// Once the server has taken nothing of the client's body for this long, although bytes have
    /// arrived; never if `None`.
    IfServerTakesNothingFor(Option<Duration>),
}

/// The error if the deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlinePassed;

impl ExchangeDeadline {
    /// Creates the deadline of an exchange whose request was complete at `since`. `since` is `None`
    /// if the client is still sending.
    pub fn new(limit: TimeLimit, since: Option<Instant>) -> ExchangeDeadline {
        ExchangeDeadline { limit, since, is_for_body_part: false }
    }

    /// Starts the time, because the request is complete.
    pub fn start(&mut self) {
        self.since = Some(Instant::now());
    }

    /// Records that a part of the response has arrived. If each part has its own time, this time
    /// starts again, unless the client is still sending.
    pub fn restart_after_response_part(&mut self) {
        if let TimeLimit::EachPart(_) = self.limit {
            self.since = self.since.map(|_| Instant::now());
            self.is_for_body_part = true;
        }
    }

    /// Whether the time runs for a part of the response's body.
    pub fn is_for_body_part(&self) -> bool {
        self.is_for_body_part
    }

    /// The longest time that the server gets for the exchange, or for a part; `None` if it may take
    /// any time.
    fn longest_wait(&self) -> Option<Duration> {
        match self.limit {
            TimeLimit::Whole(limit) | TimeLimit::EachPart(Some(limit)) => Some(limit),
            TimeLimit::EachPart(None) => None,
        }
    }

    /// When the exchange ends.
    pub fn end_time(&self) -> ExchangeEndTime {
        match (self.since, self.passes_at()) {
            (Some(_), Some(at)) if self.is_for_body_part => ExchangeEndTime::AtIfServerIsSilent(at),
            (Some(_), at) => ExchangeEndTime::At(at),
            (None, _) => ExchangeEndTime::IfServerTakesNothingFor(self.longest_wait()),
        }
    }

    /// When the time is over; `None` without a limit, and while the client sends.
    pub fn passes_at(&self) -> Option<Instant> {
        Some(self.since? + self.longest_wait()?)
    }

    /// Returns [`ExchangeDeadline::passes_at`], or the moment `wait` after the time began to run if
    /// this moment is earlier. `None` while the client sends.
    pub fn at_latest_after(&self, wait: Duration) -> Option<Instant> {
        let longest = self.longest_wait().map_or(wait, |longest| longest.min(wait));
        Some(self.since? + longest)
    }

    /// When the time for the whole exchange is over; `None` if each part has its own time, and
    /// while the client sends.
    pub fn whole_end(&self) -> Option<Instant> {
        self.passes_at().filter(|_| matches!(self.limit, TimeLimit::Whole(_)))
    }

    /// The time that is left, 0 after the deadline; `None` without a limit, and while the client
    /// sends.
    pub fn time_left(&self) -> Option<Duration> {
        self.passes_at().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The time that is left until [`ExchangeDeadline::whole_end`].
    pub fn whole_time_left(&self) -> Option<Duration> {
        self.whole_end().map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Returns true after the deadline.
    pub fn has_passed(&self) -> bool {
        self.time_left() == Some(Duration::ZERO)
    }

    /// Waits for a future, at most until the deadline.
    pub async fn wait_within<T>(
        &self,
        future: impl Future<Output = T>,
    ) -> Result<T, DeadlinePassed> {
        wait_at_most_until(self.passes_at(), future).await.ok_or(DeadlinePassed)
    }
}

/// Waits for a future, at most until `end`. Returns `None` if `end` passes first.
pub async fn wait_at_most_until<T>(
    end: Option<Instant>,
    future: impl Future<Output = T>,
) -> Option<T> {
    match end {
        Some(end) => timeout_at(end.into(), future).await.ok(),
        None => Some(future.await),
    }
}

#[cfg(test)]
mod tests;
