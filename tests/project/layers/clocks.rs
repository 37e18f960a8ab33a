//! Who may read a clock that can be set, or let a store delete by one. All others use the believed
//! time, because a clock that jumps must not begin, end or delete anything.

use std::fs;

use super::sources::{project_root, read_source_files};

/// The readers of the machine's clock, and why none of them may use the believed time.
const READERS_OF_MACHINE_CLOCK: [(&str, &str); 11] = [
    ("quota/clock", "aligns the seconds of CLOCK_BOOTTIME"),
    ("quota/time_of_command", "judges the clock"),
    ("quota/worker", "lets the calendar judge the clock"),
    ("process/server/startup", "lets the calendar judge the clock"),
    ("gate/request_context", "writes the access log, and the field Date"),
    ("observe/process_log", "writes the process log"),
    ("cli/store", "repair-month asks whether the clock is right again"),
    ("cli/doctor", "tells how long certificates last, and whose clock differs"),
    ("cli/store_access", "warns of clocks that differ"),
    ("cli/demo", "has a store of its own, which is new"),
    ("cli/table", "shows the age of a file, without a config and a store"),
];

/// Code that reads a clock or deletes by one, with the files of `src/` that may contain it, and
/// why.
const CLOCK_CODE: [(&str, &[&str], &str); 12] = [
    ("unixepoch", &[], "SQLite reads the machine's clock"),
    ("CURRENT_TIME", &[], "SQLite reads the machine's clock"),
    ("julianday", &[], "SQLite reads the machine's clock"),
    ("strftime", &[], "SQLite reads the machine's clock"),
    ("'now'", &[], "SQLite reads the machine's clock"),
    ("Timestamp::now", &[], "jiff reads the machine's clock"),
    ("Zoned::now", &[], "jiff reads the machine's clock"),
    ("clock_gettime", &["quota/clock.rs"], "only CLOCK_BOOTTIME, which nobody can set"),
    (
        "call('TIME'",
        &["store/redis/charge_rates.lua"],
        "scripts work by the believed time of their callers; buckets need the time that has passed",
    ),
    (
        "cmd(\"TIME\")",
        &["store/redis/incarnation.rs", "store/redis/month.rs"],
        "the calendar judges the server's clock",
    ),
    ("'EX'", &[], "Redis deletes by the server's clock"),
    (
        "EXPIRE'",
        &[
            "store/redis/charge_rates.lua",
            "store/redis/report_lease.lua",
            "store/redis/credit_top.lua",
            "store/redis/add_keys.lua",
            "store/redis/fill_ring.lua",
            "store/redis/move_common.lua",
        ],
        "totals outlive a clock that is a year ahead; the others are buckets of rates, marks of a \
         day, an import and what a copy has staged",
    ),
];

#[test]
fn only_listed_modules_read_the_machine_clock() {
    let mut wrong = Vec::new();
    for source in read_source_files() {
        let is_reader = source.text.contains("machine_unix_now")
            || source.text.contains("machine_time_since_epoch()");
        let may_read = source.module == "support/machine_clock"
            || READERS_OF_MACHINE_CLOCK
                .iter()
                .any(|(module, _)| source.is_within_modules(&[module]));
        if is_reader && !may_read {
            wrong.push(format!("src/{}.rs", source.module));
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: use the believed time of the ledger or of the store, or say in \
         READERS_OF_MACHINE_CLOCK why this is not possible."
    );
}

#[test]
fn no_sql_no_script_and_no_crate_reads_a_clock() {
    let mut wrong = Vec::new();
    let mut check = |file: &str, text: &str| {
        for (code, files, _) in CLOCK_CODE {
            if text.contains(code) && !files.contains(&file) {
                wrong.push(format!("src/{file}: {code}"));
            }
        }
    };
    for source in read_source_files() {
        check(&format!("{}.rs", source.module), &source.text);
    }
    let scripts = project_root().join("src/store/redis");
    for entry in fs::read_dir(scripts).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "lua") {
            let name = path.file_name().unwrap().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("--"));
            let code: Vec<&str> = code.collect();
            check(&format!("store/redis/{name}"), &code.join("\n"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: let the caller pass the believed time, or add the file to CLOCK_CODE with the \
         reason."
    );
}
