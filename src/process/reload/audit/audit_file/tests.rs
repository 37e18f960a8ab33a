use std::time::Duration;

use super::*;
use crate::store::{ChangeAuthor, LimitChange, RedisOptions, StoreUrl};

fn open_store(folder: &Path, name: &str) -> Store {
    let url = StoreUrl::Sqlite(folder.join(name));
    Store::open(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap()
}

fn make_change(store: &mut Store, name: &str) {
    let author = ChangeAuthor::riskgate("a test");
    store.set_account(&author, name, None, Some(LimitChange::UsePlanLimit)).unwrap();
}

/// The targets of the records in a file, in their order.
fn targets(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let record = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    text.lines().map(|line| record(line)["target"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_record_is_written_once_over_restarts_and_renames() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("audit.jsonl"), folder.path().join("old"));
    let mut store = open_store(folder.path(), "s.db");
    let mut file = AuditFile::new(path.clone());
    for step in 1..=8 {
        make_change(&mut store, &format!("account-{step}"));
        file.append_new_records(&mut store).unwrap();
        file.append_new_records(&mut store).unwrap();
        match step {
            2 => file = AuditFile::new(path.clone()),
            4 => std::fs::rename(&path, &old).unwrap(),
            6 => {
                // A rotation, and then a restart.
                std::fs::rename(&path, folder.path().join("older")).unwrap();
                file = AuditFile::new(path.clone());
            }
            _ => {}
        }
    }
    assert_eq!(
        (targets(&old).len(), targets(&path)),
        (4, vec!["account-7".to_owned(), "account-8".to_owned()])
    );
}

#[test]
fn a_process_that_was_killed_between_its_writes_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let mut store = open_store(folder.path(), "s.db");
    make_change(&mut store, "one");
    AuditFile::new(path.clone()).append_new_records(&mut store).unwrap();
    let log = std::fs::read(path_of_written_records_log(&path)).unwrap();
    make_change(&mut store, "two");
    AuditFile::new(path.clone()).append_new_records(&mut store).unwrap();
    // The line of the last record is whole, the log lacks it, and a third line is incomplete.
    std::fs::write(path_of_written_records_log(&path), [&log[..], b"half"].concat()).unwrap();
    let mut text = std::fs::read_to_string(&path).unwrap();
    text += "{\"id\":\"3\",\"at";
    std::fs::write(&path, text).unwrap();
    make_change(&mut store, "three");
    AuditFile::new(path.clone()).append_new_records(&mut store).unwrap();
    assert_eq!(targets(&path), ["one", "two", "three"]);
}

#[test]
fn a_file_of_an_earlier_version_goes_on_where_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let mut store = open_store(folder.path(), "s.db");
    for name in ["one", "two", "three"] {
        make_change(&mut store, name);
    }
    let records = store.read_audit_after(None, 10).unwrap();
    // A rotation has taken the first line away.
    std::fs::write(&path, format!("{}\n", records[1].to_json())).unwrap();
    AuditFile::new(path.clone()).append_new_records(&mut store).unwrap();
    assert_eq!(targets(&path), ["two", "three"]);
}

#[test]
fn two_processes_write_each_record_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let mut store = open_store(folder.path(), "s.db");
    let mut files = [AuditFile::new(path.clone()), AuditFile::new(path.clone())];
    for step in 0..9 {
        make_change(&mut store, &format!("account-{step}"));
        files[step % 2].append_new_records(&mut store).unwrap();
        files[(step + step / 3) % 2].append_new_records(&mut store).unwrap();
    }
    assert_eq!(targets(&path).len(), 9);
}
