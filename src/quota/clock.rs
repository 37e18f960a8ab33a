//! The clock of this machine that nobody can set: CLOCK_BOOTTIME. By this clock, a process
//! continues a time that a store remembers.

use std::time::Duration;

use crate::model::believed_time::TimeAnchor;
use crate::support::machine_clock::machine_time_since_epoch;

/// CLOCK_BOOTTIME in whole seconds. Nobody can set it, and it goes on while the machine sleeps.
///
/// [`BootClock::new`] shifts this clock by less than two seconds, so that its seconds begin with
/// the seconds of the system clock. So a process and its successor agree on the second at which a
/// key expires, unless the system clock is set in between.
#[derive(Clone, Copy)]
pub(super) struct BootClock {
    /// Added to CLOCK_BOOTTIME; more than zero and less than two seconds.
    second_boundary_shift: Duration,
}

impl BootClock {
    pub(super) fn new() -> BootClock {
        let second = Duration::from_secs(1);
        let fraction = |time: Duration| Duration::from_nanos(time.subsec_nanos().into());
        let second_boundary_shift =
            second + fraction(machine_time_since_epoch()) - fraction(read_boottime());
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

/// Ties this believed time to CLOCK_BOOTTIME, so that the store can remember both. `None` if the
/// boot id can't be read.
pub(super) fn anchor_time(believed_now: i64) -> Option<TimeAnchor> {
    let boottime = read_boottime().as_secs().cast_signed();
    Some(TimeAnchor { boot_id: read_boot_id().ok()?, boottime, unix_now: believed_now })
}

/// Returns the present time by an anchor of this boot of the machine. `None` if the anchor is of
/// another machine, boot or time namespace, or if that can't be told: then nothing tells how much
/// time has passed since.
pub(super) fn find_present_time(anchor: &TimeAnchor) -> Option<i64> {
    let passed = read_boottime().as_secs().cast_signed() - anchor.boottime;
    (read_boot_id().ok()? == anchor.boot_id && passed >= 0)
        .then(|| anchor.unix_now.saturating_add(passed))
}

/// Says that the boot id can't be read, and what this means. `None` if the boot id can be read.
pub(super) fn boot_id_problem() -> Option<String> {
    let found = read_boot_id().err()?;
    Some(format!(
        "expected the boot id in {BOOT_ID_FILE}, but found {found}; without the boot id, riskgate \
         trusts this machine's clock at each start: let riskgate see all of /proc (under systemd: \
         ProcSubset=all)"
    ))
}

const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// Returns an id of the present boot and of this process's time namespace, because each time
/// namespace has a CLOCK_BOOTTIME of its own.
///
/// # Errors
/// What was found in place of the boot id.
fn read_boot_id() -> Result<String, String> {
    let boot = std::fs::read_to_string(BOOT_ID_FILE).map_err(|error| error.to_string())?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let boot_id = format!("{}/{}", boot.trim(), namespace.display());
    match boot.trim() {
        "" => Err("an empty file".to_owned()),
        _ if boot_id.contains(char::is_whitespace) => Err("a text with blanks".to_owned()),
        _ => Ok(boot_id),
    }
}
