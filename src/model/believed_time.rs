//! The believed time: riskgate decides by it what begins, what ends and what may be deleted.
//!
//! Callers pass the time in; this module never reads a clock. `quota` makes the time from clocks.

/// Clocks that differ by at most this many seconds agree.
pub const MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS: i64 = 5;

/// The believed time, and what may be done by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BelievedTime {
    /// Unix seconds.
    pub unix_now: i64,
    /// What may be done by this time.
    pub trust: TimeTrust,
}

/// What may be done by a believed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeTrust {
    /// The clocks have agreed for ten minutes: what is old may be deleted.
    Settled,
    /// Keys, tokens and overrides begin and end by this time. Nothing is deleted by this time.
    Known,
    /// No clock can be believed. The time has passed: it is the latest that the store knows, the
    /// beginning of 2025, or 0. riskgate makes nothing by this time that begins or ends a number of
    /// seconds from now.
    LowerBound,
}

impl BelievedTime {
    /// A time of which nothing is known.
    pub const UNKNOWN: BelievedTime = BelievedTime { unix_now: 0, trust: TimeTrust::LowerBound };

    /// Returns true if what is old may be deleted.
    pub fn allows_deletion(self) -> bool {
        self.trust == TimeTrust::Settled
    }

    /// Returns true if the time is more than a lower bound.
    pub fn is_known(self) -> bool {
        self.trust != TimeTrust::LowerBound
    }
}

/// What a store remembers of the believed time of a gateway, for processes that start later.
///
/// As long as the machine runs, CLOCK_BOOTTIME tells how much time has passed since the anchor was
/// made, whatever happens to the other clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeAnchor {
    /// Identifies the boot of the machine whose CLOCK_BOOTTIME this is.
    pub boot_id: String,
    /// CLOCK_BOOTTIME in seconds.
    pub boottime: i64,
    /// The believed time at that moment, in Unix seconds.
    pub unix_now: i64,
}

/// The bound of both times of an anchor, in seconds: some 30,000 years.
const MAX_ANCHOR_SECONDS: i64 = 1 << 40;

impl TimeAnchor {
    /// Parses what [`Display`](std::fmt::Display) writes. `None` if the text has another form, or
    /// an impossible time.
    pub fn parse(text: &str) -> Option<TimeAnchor> {
        let mut words = text.split(' ');
        let (unix_now, boottime) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let boot_id = words.next()?.to_owned();
        let is_possible =
            |seconds: i64| (-MAX_ANCHOR_SECONDS..=MAX_ANCHOR_SECONDS).contains(&seconds);
        (words.next().is_none() && is_possible(unix_now) && is_possible(boottime))
            .then_some(TimeAnchor { boot_id, boottime, unix_now })
    }
}

impl std::fmt::Display for TimeAnchor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TimeAnchor { boot_id, boottime, unix_now } = self;
        write!(f, "{unix_now} {boottime} {boot_id}")
    }
}

#[cfg(test)]
mod tests;
