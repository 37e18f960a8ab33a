//! This machine's clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// CLOCK_BOOTTIME in whole seconds. Nobody can set it, and it goes on while the machine sleeps.
///
/// At the start of a process, the seconds of this clock are aligned with those of the system clock:
/// both begin at the same moment. A process and its successor therefore read the same second, and
/// an expired key stays expired over a restart.
#[derive(Clone, Copy)]
pub(super) struct BootClock {
    /// Added to CLOCK_BOOTTIME so that its seconds begin with those of the system clock: from just
    /// above zero to just below two seconds.
    second_boundary_shift: Duration,
}

impl BootClock {
    pub(super) fn new() -> BootClock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = Duration::from_secs(1);
        let fraction = |time: Duration| Duration::from_nanos(time.subsec_nanos().into());
        let second_boundary_shift = second + fraction(since_epoch) - fraction(read_boottime());
        BootClock { second_boundary_shift }
    }

    pub(super) fn seconds(self) -> i64 {
        (read_boottime() + self.second_boundary_shift).as_secs().cast_signed()
    }
}

fn read_boottime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The system clock in Unix seconds, for display and to compare with the store's clock.
pub fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}
