//! Tests of sign-ups in both stores.

use serde_json::json;

use super::super::redis_server::RedisCluster;
use super::super::{MAX_SIGN_UPS, SignUpCursor, SignUpDeletion, SignUpsOfInboxes, Store};
use super::{TEST_TIME, TESTER, TestStore, on_each_store, tester};
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::sign_up::{InboxDeletion, Pseudonym, SignUp, SignUpEntry, apply_deletions};

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
        all.extend(page.iter().map(|entry| match entry {
            SignUpEntry::SignUp(sign_up) => *sign_up,
            SignUpEntry::Deletion(deletion) => panic!("{deletion:?}"),
        }));
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
    on_each_store(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        let start = SignUpCursor::default();
        assert_eq!(read_all(&mut other, start), (vec![], start));
        one.append_sign_ups(&[], SignUpCursor::default()).unwrap();
        assert_eq!(read_all(&mut other, start), (vec![], start));
        let mut first = sign_ups(0..7);
        // A clock was set back, and one was never set.
        (first[4].at, first[5].at) = (-7, i64::MAX);
        one.append_sign_ups(&first, SignUpCursor::default()).unwrap();
        let (read, middle) = read_all(&mut other, start);
        assert_eq!(read, first);
        assert_eq!(read_all(&mut other, middle), (vec![], middle));
        other.append_sign_ups(&first[..1], SignUpCursor::default()).unwrap();
        one.append_sign_ups(&sign_ups(7..12_300), SignUpCursor::default()).unwrap();
        let (read, end) = read_all(&mut other, middle);
        assert_eq!(read, [first[..1].to_vec(), sign_ups(7..12_300)].concat());
        assert_eq!(read_all(&mut one, end), (vec![], end));
        assert_eq!(read_from_start(&mut one).len(), 12_301);
    });
}

#[test]
fn a_writer_has_read_what_it_appends_unless_others_wrote_before() {
    on_each_store(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        let start = SignUpCursor::default();
        assert_eq!(one.append_sign_ups(&[], start).unwrap(), start);
        let after = one.append_sign_ups(&sign_ups(0..603), start).unwrap();
        assert_eq!(read_all(&mut other, start), (sign_ups(0..603), after));
        assert_eq!(one.append_sign_ups(&[], after).unwrap(), after);
        assert_eq!(other.append_sign_ups(&sign_ups(603..604), start).unwrap(), start);
        assert_eq!(one.append_sign_ups(&sign_ups(604..606), after).unwrap(), after);
        assert_eq!(read_all(&mut one, after).0, sign_ups(603..606));
    });
}

#[test]
fn a_store_that_was_set_back_is_read_from_its_oldest_sign_up() {
    on_each_store(|location| {
        let mut store = location.open();
        store.append_sign_ups(&sign_ups(0..10), SignUpCursor::default()).unwrap();
        let (_, cursor) = read_all(&mut store, SignUpCursor::default());
        for written_since in [0, 3, 10, 6_000] {
            let replaced = location.new_of_same_kind();
            let mut store = replaced.open();
            let written = sign_ups(20..20 + written_since);
            store.append_sign_ups(&written, SignUpCursor::default()).unwrap();
            let (read, after) = read_all(&mut store, cursor);
            assert_eq!(read, written);
            assert_eq!(read_all(&mut store, after), (vec![], after));
        }
    });
}

#[test]
fn a_sign_up_that_cannot_be_read_is_skipped() {
    on_each_store(|location| {
        let mut store = location.open();
        store.append_sign_ups(&sign_ups(0..3), SignUpCursor::default()).unwrap();
        location.append_damaged_sign_ups();
        assert_eq!(read_from_start(&mut store), sign_ups(0..3));
        store.append_sign_ups(&sign_ups(3..4), SignUpCursor::default()).unwrap();
        let (read, cursor) = read_all(&mut store, SignUpCursor::default());
        assert_eq!(read, sign_ups(0..4));
        assert_eq!(read_all(&mut store, cursor), (vec![], cursor));
    });
}

#[test]
fn a_page_of_foreign_entries_is_not_the_end_of_a_stream() {
    let location = TestStore::new_redis();
    let mut store = location.open();
    store.append_sign_ups(&sign_ups(0..2), SignUpCursor::default()).unwrap();
    let (_, cursor) = read_all(&mut store, SignUpCursor::default());
    let fill = "for i = 1, 10001 do redis.call('XADD', KEYS[1], '2-' .. i, 'other', 'field') end";
    location.server().run(&["EVAL", fill, "1", "riskgate:{sign_ups}:stream"]);
    store.append_sign_ups(&sign_ups(2..4), cursor).unwrap();
    assert_eq!(read_from_start(&mut store), sign_ups(0..4));
    assert_eq!(read_all(&mut store, cursor).0, sign_ups(2..4));
    let inboxes: Vec<Pseudonym> = sign_ups(0..4).iter().map(|it| it.inbox).collect();
    assert_eq!(delete(&mut store, &inboxes), 4);
}

#[test]
fn sign_ups_among_many_foreign_entries_are_found_in_few_queries() {
    let location = TestStore::new_redis();
    let mut store = location.open();
    store.append_sign_ups(&sign_ups(0..4_999), SignUpCursor::default()).unwrap();
    let fill = "for i = 1, 20000 do redis.call('XADD', KEYS[1], '6000-' .. i, 'other', 'x') end";
    location.server().run(&["EVAL", fill, "1", "riskgate:{sign_ups}:stream"]);
    location.server().run(&["CONFIG", "RESETSTAT"]);
    assert_eq!(store.find_sign_ups(&[sign_up(7, 0).inbox].into()).unwrap().count, 1);
    let stats = location.server().run(&["INFO", "commandstats"]);
    // One query finds the sign-ups. Four find foreign entries, and the last one nothing.
    assert!(stats.contains("cmdstat_xrange:calls=6,"), "{stats}");
}

#[test]
fn old_sign_ups_are_deleted_by_settled_time_alone() {
    let now = TEST_TIME.unix_now;
    on_each_store(|location| {
        let mut store = location.open();
        let old: Vec<SignUp> = (0..250).map(|n| sign_up(n, now - 31 * DAY)).collect();
        let young = [sign_up(300, now - 30 * DAY), sign_up(301, now - 31 * DAY)];
        let all = [&old[..100], &young[..1], &old[100..], &young[1..]].concat();
        store.append_sign_ups(&all, SignUpCursor::default()).unwrap();
        for trust in [TimeTrust::Known, TimeTrust::LowerBound] {
            store.set_time(BelievedTime { unix_now: now + 40 * DAY, trust });
            store.append_sign_ups(&[], SignUpCursor::default()).unwrap();
            assert_eq!(read_from_start(&mut store), all);
        }
        store.set_time(BelievedTime { unix_now: now, trust: TimeTrust::Settled });
        let latest = sign_up(302, now);
        store.append_sign_ups(&[latest], SignUpCursor::default()).unwrap();
        // One sign-up was written, so 101 of the oldest were looked at.
        assert_eq!(
            read_from_start(&mut store),
            [&young[..1], &old[100..], &young[1..], &[latest]].concat()
        );
        store.append_sign_ups(&[], SignUpCursor::default()).unwrap();
        store.append_sign_ups(&[], SignUpCursor::default()).unwrap();
        assert_eq!(read_from_start(&mut store), [young[0], latest]);
        store.set_time(BelievedTime { unix_now: now + 99 * DAY, trust: TimeTrust::Settled });
        store.append_sign_ups(&[], SignUpCursor::default()).unwrap();
        assert_eq!(read_from_start(&mut store), [latest], "the last one stays");
    });
}

#[test]
fn sign_ups_of_a_clock_that_was_ahead_are_deleted_and_keep_no_old_ones() {
    let now = TEST_TIME.unix_now;
    on_each_store(|location| {
        let mut store = location.open();
        let ahead: Vec<SignUp> = (0..150).map(|n| sign_up(n, now + 365 * DAY)).collect();
        let old: Vec<SignUp> = (150..200).map(|n| sign_up(n, now - 40 * DAY)).collect();
        let kept = [sign_up(200, now + DAY / 2), sign_up(201, now)];
        store.set_time(BelievedTime { unix_now: now, trust: TimeTrust::Known });
        store
            .append_sign_ups(&[&ahead[..], &old, &kept].concat(), SignUpCursor::default())
            .unwrap();
        store.set_time(BelievedTime { unix_now: now, trust: TimeTrust::Settled });
        for _ in 0..3 {
            store.append_sign_ups(&[], SignUpCursor::default()).unwrap();
        }
        assert_eq!(read_from_start(&mut store), kept);
    });
}

#[test]
fn a_reader_goes_on_after_the_sign_up_of_its_cursor_was_deleted() {
    let now = TEST_TIME.unix_now;
    on_each_store(|location| {
        let mut store = location.open();
        store
            .append_sign_ups(
                &[sign_up(1, now - 40 * DAY), sign_up(2, now - 40 * DAY)],
                SignUpCursor::default(),
            )
            .unwrap();
        let (_, cursor) = read_all(&mut store, SignUpCursor::default());
        store.set_time(BelievedTime { unix_now: now, trust: TimeTrust::Settled });
        store.append_sign_ups(&[sign_up(3, now)], SignUpCursor::default()).unwrap();
        assert_eq!(read_all(&mut store, cursor).0, [sign_up(3, now)]);
        assert_eq!(read_from_start(&mut store), [sign_up(3, now)]);
    });
}

/// An operator deletes entries of the server by hand: the newest, and later all.
#[test]
fn sign_ups_are_shared_again_after_the_newest_were_deleted_by_hand() {
    let location = TestStore::new_redis();
    let (mut store, mut reader) = (location.open(), location.open());
    let key = "riskgate:{sign_ups}:stream";
    let start = SignUpCursor::default();
    store.append_sign_ups(&sign_ups(0..5), start).unwrap();
    let (_, cursor) = read_all(&mut reader, start);
    location.server().run(&["XDEL", key, "4-0", "5-0"]);
    let (_, cursor) = read_all(&mut reader, cursor);
    store.append_sign_ups(&sign_ups(20..22), start).unwrap();
    let (read, cursor) = read_all(&mut reader, cursor);
    assert_eq!(read, sign_ups(20..22));
    location.server().run(&["XTRIM", key, "MAXLEN", "0"]);
    store.append_sign_ups(&sign_ups(22..23), start).unwrap();
    assert_eq!(read_all(&mut reader, cursor).0, sign_ups(22..23));
    location.server().run(&["XTRIM", key, "MAXLEN", "0"]);
    delete(&mut store, &[pseudonym(0, 1)]);
    assert_eq!(entries(&mut reader).len(), 1, "the deletion");
}

#[test]
fn only_the_latest_sign_ups_are_kept() {
    on_each_store(|location| {
        let mut store = location.open();
        location.fill_with_sign_ups();
        let filled = SignUpCursor { number: MAX_SIGN_UPS as u64, ..SignUpCursor::default() };
        store.append_sign_ups(&sign_ups(0..3), filled).unwrap();
        let (page, _) = store.read_sign_ups_page(SignUpCursor::default()).unwrap();
        assert_eq!(page[0].at(), 4, "those written last");
    });
}

/// Deletes what the store has of these inboxes, as `management` does.
fn delete(store: &mut Store, inboxes: &[Pseudonym]) -> usize {
    let found = store.find_sign_ups(&inboxes.iter().copied().collect()).unwrap();
    store.delete_sign_ups(&TESTER, &SignUpDeletion { found: &found, inboxes }).unwrap()
}

/// What a reader gets who reads everything.
fn entries(store: &mut Store) -> Vec<SignUpEntry> {
    store.read_sign_ups_page(SignUpCursor::default()).unwrap().0
}

#[test]
fn the_sign_ups_of_an_inbox_are_deleted_and_readers_are_told() {
    on_each_store(|location| {
        let (mut store, mut reader) = (location.open(), location.open());
        let other_address = SignUp { address: pseudonym(255, 99), ..sign_up(1, 77) };
        store
            .append_sign_ups(
                &[&sign_ups(0..4)[..], &[other_address]].concat(),
                SignUpCursor::default(),
            )
            .unwrap();
        let (_, cursor) = read_all(&mut reader, SignUpCursor::default());
        let inbox = sign_up(1, 0).inbox;
        let found = store.find_sign_ups(&[inbox, pseudonym(0, 50)].into()).unwrap();
        let latest = TEST_TIME.unix_now + 1;
        assert_eq!((found.count, found.times.clone()), (2, Some(77..=latest)));
        assert_eq!(found.inboxes, [inbox].into());
        // One arrives after the search.
        reader.append_sign_ups(&[sign_up(1, 78), sign_up(9, 79)], SignUpCursor::default()).unwrap();
        let deletion = SignUpDeletion { found: &found, inboxes: &[inbox, pseudonym(0, 50)] };
        assert_eq!(store.delete_sign_ups(&TESTER, &deletion).unwrap(), 3);
        let later = TEST_TIME.unix_now + 1;
        store.append_sign_ups(&[sign_up(1, later)], SignUpCursor::default()).unwrap();

        let [zero, two, three] = [0, 2, 3].map(|n| SignUpEntry::SignUp(sign_ups(n..n + 1)[0]));
        let of_inbox =
            |inbox| SignUpEntry::Deletion(InboxDeletion { at: TEST_TIME.unix_now, inbox });
        let later = [(9, 79), (1, later)].map(|(n, at)| SignUpEntry::SignUp(sign_up(n, at)));
        let told = [later[0], of_inbox(inbox), of_inbox(pseudonym(0, 50)), later[1]];
        assert_eq!(reader.read_sign_ups_page(cursor).unwrap().0, told);
        assert_eq!(entries(&mut reader), [&[zero, two, three], &told[..]].concat());

        let records = store.read_audit_before(None, 9).unwrap();
        assert_eq!(records[0].operation, "sign_ups.delete");
        assert_eq!(records[0].author, tester());
        // On a server, the record is written before the last sign-up is found.
        let count = if store.is_server() { 2 } else { 3 };
        assert_eq!(records[0].before, json!({ "sign_ups": count }));
        let text = records[0].to_json().to_string();
        assert!(!text.contains(&inbox.to_string()), "{text}");
    });
}

#[test]
fn a_write_that_arrives_after_a_deletion_brings_nothing_back() {
    let now = TEST_TIME.unix_now;
    on_each_store(|location| {
        let (mut store, mut late) = (location.open(), location.open());
        let (old, latest) = (sign_up(1, now - 5), sign_up(1, now));
        store.append_sign_ups(&[sign_up(7, 1), old], SignUpCursor::default()).unwrap();
        let (_, read_up_to) = read_all(&mut late, SignUpCursor::default());
        store.append_sign_ups(&[latest], read_up_to).unwrap();
        assert_eq!(delete(&mut store, &[pseudonym(0, 3), old.inbox]), 2);
        let (of_other, afterwards) = (sign_up(2, now - 5), sign_up(1, now + 1));
        late.append_sign_ups(&[latest], read_up_to).unwrap();
        late.append_sign_ups(&[latest, of_other, old, afterwards], read_up_to).unwrap();
        let sign_ups = |entries: &[SignUpEntry]| apply_deletions(entries).0;
        let found = entries(&mut store);
        assert_eq!(sign_ups(&found), [sign_up(7, 1), of_other, afterwards]);
        assert_eq!(found.len(), 5, "no more than these and the deletions");
        // A writer that has read the deletion decides for itself.
        let (_, read_up_to) = store.read_sign_ups_page(read_up_to).unwrap();
        late.append_sign_ups(&[latest], read_up_to).unwrap();
        assert_eq!(entries(&mut store).last(), Some(&SignUpEntry::SignUp(latest)));
    });
}

#[test]
fn an_inbox_with_thousands_of_sign_ups_is_deleted_whole() {
    on_each_store(|location| {
        let mut store = location.open();
        let of_inbox = |n| SignUp { inbox: pseudonym(0, 1), ..sign_up(n, 100) };
        let all: Vec<SignUp> =
            (0..6_500).map(|n| if n % 2 == 0 { of_inbox(n) } else { sign_up(n, 100) }).collect();
        store.append_sign_ups(&all, SignUpCursor::default()).unwrap();
        assert_eq!(delete(&mut store, &[pseudonym(0, 1)]), 3_251, "and that of number 1");
        assert_eq!(entries(&mut store).len(), 3_250);
        // Again: it deletes the former deletion, and no sign-up.
        assert_eq!(delete(&mut store, &[pseudonym(0, 1)]), 0);
        assert_eq!(entries(&mut store).len(), 3_250);
        let found = store.find_sign_ups(&[pseudonym(0, 1)].into()).unwrap();
        assert_eq!((found.count, found.times), (0, None));
    });
}

#[test]
fn a_reader_goes_on_after_the_last_sign_up_was_deleted() {
    on_each_store(|location| {
        let mut store = location.open();
        store.append_sign_ups(&sign_ups(0..2), SignUpCursor::default()).unwrap();
        let (_, cursor) = read_all(&mut store, SignUpCursor::default());
        delete(&mut store, &[sign_up(1, 0).inbox]);
        let (page, after) = store.read_sign_ups_page(cursor).unwrap();
        assert_eq!(page.len(), 1, "only the deletion");
        // Many are written, and the deletion is the oldest of them. Nobody reads them again.
        store.append_sign_ups(&sign_ups(5..7), SignUpCursor::default()).unwrap();
        assert_eq!(read_all(&mut store, after).0, sign_ups(5..7));
    });
}

#[test]
fn a_deletion_in_an_empty_store_is_written_and_expires() {
    let now = TEST_TIME.unix_now;
    on_each_store(|location| {
        let mut store = location.open();
        assert_eq!(delete(&mut store, &[pseudonym(0, 1)]), 0);
        let deletion = InboxDeletion { at: now, inbox: pseudonym(0, 1) };
        assert_eq!(entries(&mut store), [SignUpEntry::Deletion(deletion)]);
        let later = now + 31 * DAY;
        store.append_sign_ups(&[sign_up(1, later)], SignUpCursor::default()).unwrap();
        store.set_time(BelievedTime { unix_now: later, trust: TimeTrust::Settled });
        store.append_sign_ups(&[], SignUpCursor::default()).unwrap();
        assert_eq!(entries(&mut store), [SignUpEntry::SignUp(sign_up(1, later))]);
    });
}

#[test]
fn a_copy_has_neither_deletions_nor_what_they_delete() {
    on_each_store(|location| {
        let mut store = location.open();
        store.mark_as_store(&TESTER).unwrap();
        store.append_sign_ups(&sign_ups(0..3), SignUpCursor::default()).unwrap();
        // As if the store had failed before it deleted the sign-ups that it has found.
        let found = SignUpsOfInboxes::default();
        let inboxes = [sign_up(1, 0).inbox];
        let read = store.find_sign_ups(&[sign_up(9, 0).inbox].into()).unwrap();
        let nothing_found = SignUpsOfInboxes { read_up_to: read.read_up_to, ..found };
        let deletion = SignUpDeletion { found: &nothing_found, inboxes: &inboxes };
        store.delete_sign_ups(&TESTER, &deletion).unwrap();
        assert_eq!(entries(&mut store).len(), 4);
        let contents = store.read_contents().unwrap().unwrap();
        assert_eq!(contents.sign_ups, [sign_ups(0..1), sign_ups(2..3)].concat());
        assert_eq!(apply_deletions(&entries(&mut store)).0, contents.sign_ups);
    });
}

#[test]
fn sqlite_overwrites_what_it_deletes() {
    // In few sign-ups and in many: SQLite moves rows when it adds pages.
    for others in [10, 90, 6_000] {
        let location = TestStore::new_sqlite();
        let mut store = location.open();
        // The deletion takes the place of one of them, so there are several.
        let marked = SignUp { address: Pseudonym(*b"a marked address"), ..sign_up(1, 100) };
        for half in [sign_ups(5..5 + others / 2), sign_ups(5 + others / 2..5 + others)] {
            store
                .append_sign_ups(&[&half[..], &[marked; 3]].concat(), SignUpCursor::default())
                .unwrap();
        }
        let TestStore::File(folder) = &location else { unreachable!() };
        let is_on_disk = || {
            let files = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path());
            let mut bytes = files.map(|path| std::fs::read(path).unwrap());
            bytes.any(|bytes| bytes.windows(16).any(|it| it == marked.address.0))
        };
        assert!(is_on_disk());
        assert_eq!(delete(&mut store, &[marked.inbox]), 6);
        assert!(!is_on_disk(), "{others}");
    }
}

impl TestStore {
    /// An empty store of the same kind, as after a loss.
    fn new_of_same_kind(&self) -> TestStore {
        match self {
            TestStore::File(_) => TestStore::new_sqlite(),
            TestStore::Server(_) => TestStore::new_redis(),
            TestStore::Cluster(_) => TestStore::Cluster(RedisCluster::start(1)),
        }
    }

    /// Appends what no version of riskgate writes.
    fn append_damaged_sign_ups(&self) {
        match self {
            TestStore::File(_) => {
                let insert = "INSERT INTO sign_up (at, pseudonyms) VALUES (5, 'text'),
                              (5, zeroblob(64)), (5, x'08' || zeroblob(64)), (5, 7),
                              ('soon', zeroblob(65))";
                self.run_sql(insert);
            }
            TestStore::Server(_) | TestStore::Cluster(_) => {
                let server = self.server();
                let add = |id: &str, at: &str, bytes: &str| {
                    let script = format!(
                        "redis.call('XADD', KEYS[1], '{id}', 'at', '{at}', 'pseudonyms', {bytes})"
                    );
                    server.run(&["EVAL", &script, "1", "riskgate:{sign_ups}:stream"]);
                };
                add("4-0", "5", "string.rep('\\0', 64)");
                add("5-0", "x", "string.rep('\\0', 65)");
                add("6-0", "5", "'\\8' .. string.rep('\\0', 64)");
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
                self.open().append_sign_ups(&first, SignUpCursor::default()).unwrap();
                let update = "UPDATE sqlite_sequence SET seq = 1000000 WHERE name = 'sign_up'";
                self.run_sql(update);
            }
            TestStore::Server(_) | TestStore::Cluster(_) => {
                let server = self.server();
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
}
