use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::store::sign_ups::SignUpsOfInboxes;

/// A connection that reads a snapshot of the store until it is dropped, as a backup does.
fn read_snapshot(path: &Path) -> Connection {
    let reader = Connection::open(path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM sign_up").unwrap();
    reader
}

fn sign_up(number: u8) -> SignUp {
    let pseudonym = Pseudonym([number; 16]);
    SignUp { at: 1_790_000_000, inbox: pseudonym, address: pseudonym, domain: None, client: None }
}

#[test]
fn a_deletion_beside_a_reader_keeps_no_writer_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let open = || Sqlite::open(&path, Duration::from_secs(5)).unwrap();
    let (mut store, mut ledger) = (open(), open());
    store.append_sign_ups(&[sign_up(1), sign_up(2)], SignUpCursor::default()).unwrap();
    let reader = read_snapshot(&path);
    let deletion = std::thread::spawn(move || {
        let found = SignUpsOfInboxes::default();
        let deletion = SignUpDeletion { found: &found, inboxes: &[Pseudonym([1; 16])] };
        store.delete_sign_ups(&ChangeAuthor::riskgate("a test"), &deletion).unwrap()
    });
    let mut longest_wait = Duration::ZERO;
    while !deletion.is_finished() {
        let started = Instant::now();
        drop(ledger.begin_write_transaction("testing").unwrap());
        longest_wait = longest_wait.max(started.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(deletion.join().unwrap(), 1);
    assert!(longest_wait < Duration::from_secs(1), "{longest_wait:?}");
    drop(reader);
}
