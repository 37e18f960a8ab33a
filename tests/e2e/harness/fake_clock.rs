//! A clock that a test sets while processes use it, through libfaketime.
//!
//! Only CLOCK_REALTIME is faked: CLOCK_MONOTONIC and CLOCK_BOOTTIME continue unchanged.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::Setup;

pub struct FakeClock {
    folder: TempDir,
    /// The offset from the machine's clock, in seconds.
    offset_seconds: AtomicI64,
}

impl FakeClock {
    /// A clock that shows this time, such as `2031-04-30T23:59:45Z`, and continues from there.
    pub fn starting_at(moment: &str) -> FakeClock {
        let clock =
            FakeClock { folder: tempfile::tempdir().unwrap(), offset_seconds: AtomicI64::new(0) };
        clock.set_to(moment);
        clock
    }

    pub fn set_to(&self, moment: &str) {
        let moment: jiff::Timestamp = moment.parse().unwrap();
        self.step(moment.as_second() - self.unix_seconds());
    }

    /// Moves the clock by this many seconds, forward or back.
    pub fn step(&self, seconds: i64) {
        let ahead = self.offset_seconds.fetch_add(seconds, Ordering::SeqCst) + seconds;
        // `rename` replaces the file in one step, because processes may read it at any moment: each
        // request for the time reads it.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{ahead:+}\n")).unwrap();
        std::fs::rename(new, self.offset_file_path()).unwrap();
    }

    /// The Unix second that the clock shows.
    pub fn unix_seconds(&self) -> i64 {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        machine.cast_signed() + self.offset_seconds.load(Ordering::SeqCst)
    }

    /// The environment variables that make a process use this clock.
    pub fn environment_variables(&self) -> [(&'static str, String); 5] {
        let switch = || "1".to_owned();
        [
            // The C library's allocator comes first: other libraries ask for the time before
            // libfaketime is ready.
            ("LD_PRELOAD", format!("{} libc.so.6", libfaketime_path().display())),
            ("FAKETIME_TIMESTAMP_FILE", self.offset_file_path().display().to_string()),
            ("FAKETIME_NO_CACHE", switch()),
            ("DONT_FAKE_MONOTONIC", switch()),
            ("NO_FAKE_STAT", switch()),
        ]
    }

    fn offset_file_path(&self) -> PathBuf {
        self.folder.path().join("ahead")
    }
}

impl Drop for FakeClock {
    /// Removes the shared memory of libfaketime in processes that were killed.
    fn drop(&mut self) {
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            let pid = ["faketime_shm_", "sem.faketime_sem_"]
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix));
            if pid.is_some_and(|pid| !std::path::Path::new("/proc").join(pid).exists()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

impl Setup {
    /// Makes the gateway and its commands use this clock.
    pub fn with_clock(self, clock: &FakeClock) -> Setup {
        let environment = clock.environment_variables();
        environment.into_iter().fold(self, |setup, (name, value)| setup.env(name, &value))
    }
}

/// Debian installs libfaketime in a folder named after the architecture.
fn libfaketime_path() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let mut found = found.filter(|path| path.exists());
    found.next().expect("libfaketime, which scripts/setup --tests brings")
}
