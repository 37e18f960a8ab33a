//! Tests of sign-ups in both stores.

use super::super::{MAX_SIGN_UPS, SignUpCursor, Store};
use super::{TEST_TIME, TestStore, on_both_stores};
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::sign_up::{Pseudonym, SignUp};

const DAY: i64 = 86_400;

fn pseudonym(kind: u8, n: u32) -> Pseudonym {
    let mut bytes = [kind; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    Pseudonym(bytes)
}

/// The n-th test sign-up, at this time.
pub(super) fn sign_up(n: u32, at: i64) -> SignUp {
    SignUp {
        at,
        inbox: pseudonym(0, n),
        address: pseudonym(255, n),
        domain: n.is_multiple_of(2).then(|| pseudonym(13, n)),
        client: n.is_multiple_of(3).then(|| pseudonym(10, n)),
    }
}

fn sign_ups(numbers: std::ops::Range<u32>) -> Vec<SignUp> {
    numbers.map(|n| sign_up(n, TEST_TIME.unix_now + i64::from(n))).collect()
}

/// All sign-ups after a cursor, and the cursor after them.
fn read_all(store: &mut Store, mut cursor: SignUpCursor) -> (Vec<SignUp>, SignUpCursor) {
    let mut all = Vec::new();
    loop {
        let (page, after) = store.read_sign_ups_page(cursor).unwrap();
        assert!(page.len() <= 5_000);
        all.extend(page);
        if std::mem::replace(&mut cursor, after) == after {
            return (all, after);
        }
    }
}

fn read_from_start(store: &mut Store) -> Vec<SignUp> {
    read_all(store, SignUpCursor::default()).0
}

#[test]
fn sign_ups_are_read_in_the_order_of_writing() {
    on_both_stores(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        let start = SignUpCursor::default();
        assert_eq!(read_all(&mut other, start), (vec![], start));
        one.append_sign_ups(&[]).unwrap();
        assert_eq!(read_all(&mut other, start), (vec![], start));
        let mut first = sign_ups(0..7);
        // A clock was set back, and one was never set.
        (first[4].at, first[5].at) = (-7, i64::MAX);
        one.append_sign_ups(&first).unwrap();
        let (read, middle) = read_all(&mut other, start);
        assert_eq!(read, first);
        assert_eq!(read_all(&mut other, middle), (vec![], middle));
        other.append_sign_ups(&first[..1]).unwrap();
        one.append_sign_ups(&sign_ups(7..12_300)).unwrap();
        let (read, end) = read_all(&mut other, middle);
        assert_eq!(read, [first[..1].to_vec(), sign_ups(7..12_300)].concat());
        assert_eq!(read_all(&mut one, end), (vec![], end));
        assert_eq!(read_from_start(&mut one).len(), 12_301);
    });
}

#[test]
fn a_store_that_was_set_back_is_read_from_its_oldest_sign_up() {
    on_both_stores(|location| {
        let mut store = location.open();
        store.append_sign_ups(&sign_ups(0..10)).unwrap();
        let (_, cursor) = read_all(&mut store, SignUpCursor::default());
        for written_since in [0, 3, 10, 6_000] {
            let replaced = location.new_of_same_kind();
            let mut store = replaced.open();
            let written = sign_ups(20..20 + written_since);
            store.append_sign_ups(&written).unwrap();
            let (read, after) = read_all(&mut store, cursor);
            assert_eq!(read, written);
            assert_eq!(read_all(&mut store, after), (vec![], after));
        }
    });
}

#[test]
fn a_sign_up_that_cannot_be_read_is_skipped() {
    on_both_stores(|location| {
        let mut store = location.open();
        store.append_sign_ups(&sign_ups(0..3)).unwrap();
        location.append_damaged_sign_ups();
        store.append_sign_ups(&sign_ups(3..4)).unwrap();
        let (read, cursor) = read_all(&mut store, SignUpCursor::default());
        assert_eq!(read, sign_ups(0..4));
        assert_eq!(read_all(&mut store, cursor), (vec![], cursor));
    });
}

#[test]
fn old_sign_ups_are_deleted_by_settled_time_alone() {
    let now = TEST_TIME.unix_now;
    on_both_stores(|location| {
        let mut store = location.open();
        let old: Vec<SignUp> = (0..250).map(|n| sign_up(n, now - 31 * DAY)).collect();
        let young = [sign_up(300, now - 30 * DAY), sign_up(301, now - 31 * DAY)];
        let all = [&old[..100], &young[..1], &old[100..], &young[1..]].concat();
        store.append_sign_ups(&all).unwrap();
        for trust in [TimeTrust::Known, TimeTrust::LowerBound] {
            store.set_time(BelievedTime { unix_now: now + 40 * DAY, trust });
            store.append_sign_ups(&[]).unwrap();
            assert_eq!(read_from_start(&mut store), all);
        }
        store.set_time(BelievedTime { unix_now: now, trust: TimeTrust::Settled });
        let latest = sign_up(302, now);
        store.append_sign_ups(&[latest]).unwrap();
        // One sign-up was written, so 101 of the oldest were looked at.
        assert_eq!(
            read_from_start(&mut store),
            [&young[..1], &old[100..], &young[1..], &[latest]].concat()
        );
        store.append_sign_ups(&[]).unwrap();
        store.append_sign_ups(&[]).unwrap();
        assert_eq!(read_from_start(&mut store), [young[0], latest]);
        store.set_time(BelievedTime { unix_now: now + 99 * DAY, trust: TimeTrust::Settled });
        store.append_sign_ups(&[]).unwrap();
        assert_eq!(read_from_start(&mut store), [latest], "the last one stays");
    });
}

#[test]
fn a_reader_goes_on_after_the_sign_up_of_its_cursor_was_deleted() {
    let now = TEST_TIME.unix_now;
    on_both_stores(|location| {
        let mut store = location.open();
        store.append_sign_ups(&[sign_up(1, now - 40 * DAY), sign_up(2, now - 40 * DAY)]).unwrap();
        let (_, cursor) = read_all(&mut store, SignUpCursor::default());
        store.set_time(BelievedTime { unix_now: now, trust: TimeTrust::Settled });
        store.append_sign_ups(&[sign_up(3, now)]).unwrap();
        assert_eq!(read_all(&mut store, cursor).0, [sign_up(3, now)]);
        assert_eq!(read_from_start(&mut store), [sign_up(3, now)]);
    });
}

#[test]
fn only_the_latest_sign_ups_are_kept() {
    on_both_stores(|location| {
        let mut store = location.open();
        location.fill_with_sign_ups();
        store.append_sign_ups(&sign_ups(0..3)).unwrap();
        let (page, _) = store.read_sign_ups_page(SignUpCursor::default()).unwrap();
        assert_eq!(page[0].at, 4, "those written last");
    });
}

impl TestStore {
    /// An empty store of the same kind, as after a loss.
    fn new_of_same_kind(&self) -> TestStore {
        match self {
            TestStore::File(_) => TestStore::new_sqlite(),
            TestStore::Server(_) => TestStore::new_redis(),
        }
    }

    /// Appends what no version of riskgate writes.
    fn append_damaged_sign_ups(&self) {
        match self {
            TestStore::File(_) => {
                let insert = "INSERT INTO sign_up (at, pseudonyms) VALUES (5, 'text'),
                              (5, zeroblob(64)), (5, x'04' || zeroblob(64)), (5, 7)";
                self.run_sql(insert);
            }
            TestStore::Server(server) => {
                let add = |id: &str, at: &str, bytes: &str| {
                    let script = format!(
                        "redis.call('XADD', KEYS[1], '{id}', 'at', '{at}', 'pseudonyms', {bytes})"
                    );
                    server.run(&["EVAL", &script, "1", "riskgate:{sign_ups}:stream"]);
                };
                add("4-0", "5", "string.rep('\\0', 64)");
                add("5-0", "x", "string.rep('\\0', 65)");
                add("6-0", "5", "'\\4' .. string.rep('\\0', 64)");
                server.run(&["XADD", "riskgate:{sign_ups}:stream", "7-1", "other", "field"]);
            }
        }
    }

    /// Fills the store with as many sign-ups as it keeps, at the times 1, 2, 3 and so on. The file
    /// has only the first ten of them, because it counts by number.
    fn fill_with_sign_ups(&self) {
        match self {
            TestStore::File(_) => {
                let first: Vec<SignUp> = (1..=10).map(|n| sign_up(n, i64::from(n))).collect();
                self.open().append_sign_ups(&first).unwrap();
                let update = "UPDATE sqlite_sequence SET seq = 1000000 WHERE name = 'sign_up'";
                self.run_sql(update);
            }
            TestStore::Server(server) => {
                let fill = "for i = ARGV[1] + 1, ARGV[1] + 100000 do
                    redis.call('XADD', KEYS[1], string.format('%d-0', i), 'at', i,
                        'pseudonyms', string.rep('\\0', 65)) end";
                for start in (0..MAX_SIGN_UPS).step_by(100_000) {
                    let start = start.to_string();
                    server.run(&["EVAL", fill, "1", "riskgate:{sign_ups}:stream", &start]);
                }
                let length = server.run(&["XLEN", "riskgate:{sign_ups}:stream"]);
                assert_eq!(length, MAX_SIGN_UPS.to_string());
            }
        }
    }

    fn run_sql(&self, statement: &str) {
        let TestStore::File(folder) = self else { return };
        let file = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
        file.execute(statement, []).unwrap();
    }
}
