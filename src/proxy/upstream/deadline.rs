//! The deadline of an exchange with an upstream server.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use crate::support::time_limit::TimeLimit;

/// The deadline of one exchange. It is not running while the client sends its request.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeDeadline {
    limit: TimeLimit,
    since: Instant,
}

/// The error if the deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlinePassed;

impl ExchangeDeadline {
    /// The deadline of an exchange whose request was complete at `since`.
    pub fn new(limit: TimeLimit, since: Instant) -> ExchangeDeadline {
        ExchangeDeadline { limit, since }
    }

    /// Starts the time again, because a part of the request has arrived.
    pub fn restart_after_request_part(&mut self) {
        self.since = Instant::now();
    }

    /// Starts the time again, because a part of the response has arrived; not if it is for the
    /// whole exchange.
    pub fn restart_after_response_part(&mut self) {
        if let TimeLimit::EachPart(_) = self.limit {
            self.since = Instant::now();
        }
    }

    /// When the time is over; `None` without a limit.
    pub fn at(&self) -> Option<Instant> {
        match self.limit {
            TimeLimit::Whole(limit) | TimeLimit::EachPart(Some(limit)) => Some(self.since + limit),
            TimeLimit::EachPart(None) => None,
        }
    }

    /// When the time for the whole exchange is over; `None` if the time is for each part.
    pub fn whole_end(&self) -> Option<Instant> {
        self.at().filter(|_| matches!(self.limit, TimeLimit::Whole(_)))
    }

    /// The time that is left, 0 after the deadline; `None` without a limit.
    pub fn time_left(&self) -> Option<Duration> {
        self.at().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The time that is left for the whole exchange; `None` if the time is for each part.
    pub fn whole_time_left(&self) -> Option<Duration> {
        self.whole_end().map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Returns true after the deadline.
    pub fn has_passed(&self) -> bool {
        self.time_left() == Some(Duration::ZERO)
    }

    /// Waits for a future until the deadline.
    pub async fn limit<T>(&self, future: impl Future<Output = T>) -> Result<T, DeadlinePassed> {
        match self.at() {
            Some(at) => timeout_at(at.into(), future).await.map_err(|_| DeadlinePassed),
            None => Ok(future.await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_response_restarts_only_a_limit_for_parts() {
        let second = Duration::from_secs(1);
        let since = Instant::now() - second * 2;
        let mut whole = ExchangeDeadline::new(TimeLimit::Whole(second), since);
        assert!(whole.has_passed());
        whole.restart_after_response_part();
        assert!(whole.has_passed());
        whole.restart_after_request_part();
        assert!(!whole.has_passed());
        let mut each_part = ExchangeDeadline::new(TimeLimit::EachPart(Some(second)), since);
        assert!(each_part.has_passed());
        each_part.restart_after_response_part();
        assert!(!each_part.has_passed());
        let unlimited = ExchangeDeadline::new(TimeLimit::EachPart(None), since);
        assert_eq!((unlimited.at(), unlimited.has_passed()), (None, false));
    }
}
