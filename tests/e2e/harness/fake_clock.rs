//! A clock that a test sets while processes run by it, through libfaketime.
//!
//! Only the time of day is another one: CLOCK_MONOTONIC and CLOCK_BOOTTIME go on as they are.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use super::Setup;

pub struct FakeClock {
    folder: TempDir,
    /// What it shows beyond the machine's clock, in seconds.
    offset_seconds: AtomicI64,
}

impl FakeClock {
    /// Shows this moment, and goes on.
    pub fn starting_at(moment: &str) -> FakeClock {
        let clock =
            FakeClock { folder: tempfile::tempdir().unwrap(), offset_seconds: AtomicI64::new(0) };
        clock.set(moment);
        clock
    }

    pub fn set(&self, moment: &str) {
        let moment: jiff::Timestamp = moment.parse().unwrap();
        self.step(moment.as_second() - self.now());
    }

    /// Sets it this many seconds ahead, or back.
    pub fn step(&self, seconds: i64) {
        let ahead = self.offset_seconds.fetch_add(seconds, Ordering::SeqCst) + seconds;
        // Whole at every moment, since whoever asks for the time reads it.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{ahead:+}\n")).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    /// The Unix second that it shows.
    pub fn now(&self) -> i64 {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        machine.cast_signed() + self.offset_seconds.load(Ordering::SeqCst)
    }

    /// What makes a process go by it.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        let switch = || "1".to_owned();
        [
            // The C library's own memory behind it: others ask for the time before it is ready.
            ("LD_PRELOAD", format!("{} libc.so.6", libfaketime_path().display())),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", switch()),
            ("DONT_FAKE_MONOTONIC", switch()),
            ("NO_FAKE_STAT", switch()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ahead")
    }
}

impl Setup {
    /// The gateway and its commands go by this clock.
    pub fn run_by_clock(self, clock: &FakeClock) -> Setup {
        let environment = clock.environment();
        environment.into_iter().fold(self, |setup, (name, value)| setup.env(name, &value))
    }
}

/// Debian keeps it in a folder that is named for the machine.
fn libfaketime_path() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let mut found = found.filter(|path| path.exists());
    found.next().expect("libfaketime, which scripts/setup --tests brings")
}
