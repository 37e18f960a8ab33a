//! This machine's clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// CLOCK_BOOTTIME in whole seconds. Nobody can set it, and it goes on while the machine sleeps.
///
/// When the process starts, these seconds are aligned with those of the system clock: both begin at
/// the same moment. So a process and its successor read the same second, and a key that has expired
/// stays expired over a restart.
#[derive(Clone, Copy)]
pub(super) struct BootClock {
    /// Added to CLOCK_BOOTTIME so that its seconds begin with those of the system clock: from just
    /// above zero to just below two seconds.
    alignment: Duration,
}

impl BootClock {
    pub(super) fn new() -> BootClock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = Duration::from_secs(1);
        let fraction = |time: Duration| Duration::from_nanos(time.subsec_nanos().into());
        let alignment = second + fraction(since_epoch) - fraction(read_boottime());
        BootClock { alignment }
    }

    pub(super) fn seconds(self) -> i64 {
        (read_boottime() + self.alignment).as_secs().cast_signed()
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
