use super::*;
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::sign_up::{Pseudonym, SIGN_UP_LIFETIME_SECONDS, SignUp, apply_deletions};
use crate::store::{ChangeAuthor, RedisOptions, SignUpDeletion, StoreUrl};

const NOW: i64 = 1_790_000_000;

fn open(folder: &tempfile::TempDir) -> Store {
    let url = StoreUrl::Sqlite(folder.path().join("riskgate.db"));
    let mut store = Store::open(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap();
    store.set_time(BelievedTime { unix_now: NOW, trust: TimeTrust::Settled });
    store
}

fn sign_up(number: u8, at: i64) -> SignUp {
    let pseudonym = Pseudonym([number; 16]);
    SignUp { at, inbox: pseudonym, address: pseudonym, domain: None, client: None }
}

fn read_all(store: &mut Store) -> Vec<SignUp> {
    let (page, _) = store.read_sign_ups_page(SignUpCursor::default()).unwrap();
    apply_deletions(&page).0
}

/// A node: what it knows, and how it exchanges this with the store.
fn node(random_byte: u8, is_on_server: bool) -> (SignUpCounter, SignUpSync) {
    let sign_ups = SignUpCounter::with_secret(None).unwrap();
    (sign_ups, SignUpSync::new(Some([random_byte; 32]), is_on_server))
}

#[test]
fn old_sign_ups_are_deleted_but_for_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    store.set_time(BelievedTime::UNKNOWN);
    let old: Vec<SignUp> =
        (0..250).map(|n| sign_up(n, NOW - SIGN_UP_LIFETIME_SECONDS - 60)).collect();
    for _ in 0..20 {
        store.append_sign_ups(&old, SignUpCursor::default()).unwrap();
    }
    store.set_time(BelievedTime { unix_now: NOW, trust: TimeTrust::Settled });
    delete_expired_sign_ups(&mut store, NOW).unwrap();
    assert_eq!(read_all(&mut store), [old[249]]);
    store.append_sign_ups(&[sign_up(1, NOW), sign_up(2, NOW)], SignUpCursor::default()).unwrap();
    delete_expired_sign_ups(&mut store, NOW).unwrap();
    assert_eq!(read_all(&mut store), [sign_up(1, NOW), sign_up(2, NOW)]);
}

#[test]
fn a_new_secret_of_a_server_is_used_after_a_delay() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let (sign_ups, mut sync) = node(1, true);
    for _ in 0..3 {
        assert_eq!(sync.sync_with_store(&mut store, &sign_ups, false, NOW).unwrap(), None);
        assert!(!sign_ups.has_secret());
    }
    // A node that starts later uses the secret at once.
    let (later, mut sync) = node(2, true);
    sync.sync_with_store(&mut store, &later, false, NOW + 3).unwrap();
    assert!(later.has_secret());
}

#[test]
fn a_node_that_only_reads_learns_all_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let (waiting, mut sync) = node(1, false);
    sync.read_from_store(&mut store, &waiting, NOW).unwrap();
    assert!(waiting.is_loaded() && !waiting.has_secret());
    assert_eq!(store.read_inbox_secret().unwrap(), None);
    let (serving, mut sync_of_serving) = node(2, false);
    serving.record_form(&[sign_up(1, NOW)]);
    sync_of_serving.sync_with_store(&mut store, &serving, false, NOW).unwrap();
    let mark = store.read_inbox_id_mark().unwrap();
    waiting.record_form(&[sign_up(2, NOW)]);
    sync.read_from_store(&mut store, &waiting, NOW).unwrap();
    assert_eq!(waiting.inbox_id_mark(true), serving.inbox_id_mark(true));
    let asked = SignUp { address: Pseudonym([9; 16]), ..sign_up(1, NOW) };
    assert_eq!(waiting.count_others(&asked).inbox_accounts_30d, Some(1));
    assert_eq!(read_all(&mut store), [sign_up(1, NOW)]);
    assert_eq!(store.read_inbox_id_mark().unwrap(), mark);
    sync.sync_with_store(&mut store, &waiting, false, NOW).unwrap();
    assert_eq!(read_all(&mut store), [sign_up(1, NOW), sign_up(2, NOW)]);
}

#[test]
fn a_node_never_takes_another_secret_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let (sign_ups, mut sync) = node(1, false);
    sync.sync_with_store(&mut store, &sign_ups, false, NOW).unwrap();
    let mark = sign_ups.inbox_id_mark(false);
    let older = StoredInboxSecret { secret: [9; 32], created_at: NOW - 1 };
    store.keep_inbox_secret(&older).unwrap();
    for _ in 0..2 {
        let problem = sync.sync_with_store(&mut store, &sign_ups, false, NOW).unwrap();
        assert!(problem.unwrap().contains("another inbox secret, which is older"));
        assert_eq!(sign_ups.inbox_id_mark(false), mark);
    }
}

#[test]
fn nodes_whose_ids_differ_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let ((one, mut first), (other, mut second)) = (node(1, false), node(2, false));
    let mut sync = |sync: &mut SignUpSync, sign_ups: &SignUpCounter, by_account| {
        sync.sync_with_store(&mut store, sign_ups, by_account, NOW).unwrap().is_some()
    };
    assert!(!sync(&mut first, &one, false));
    assert!(!sync(&mut second, &other, false));
    assert!(!sync(&mut first, &one, false));
    // The scope of the second one changes.
    assert!(!sync(&mut second, &other, true));
    assert!(sync(&mut first, &one, false));
    assert!(!sync(&mut second, &other, true));
    // The scope of the first one follows.
    assert!(!sync(&mut first, &one, true));
    assert!(!sync(&mut second, &other, true));
}

/// Deletes an inbox as `management` does.
fn delete(store: &mut Store, inbox: Pseudonym) {
    let found = store.find_sign_ups(&[inbox].into()).unwrap();
    let deletion = SignUpDeletion { found: &found, inboxes: &[inbox] };
    store.delete_sign_ups(&ChangeAuthor::riskgate("a test"), &deletion).unwrap();
}

#[test]
fn a_deleted_inbox_leaves_the_disk_once_nobody_reads_an_older_state() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let (one, mut sync) = node(1, false);
    let marked = SignUp { address: Pseudonym(*b"a marked address"), ..sign_up(1, NOW) };
    one.record_form(&[marked]);
    one.record_form(&[sign_up(2, NOW)]);
    sync.sync_with_store(&mut store, &one, false, NOW).unwrap();
    let mut backup = open(&folder);
    backup.begin_snapshot().unwrap();
    delete(&mut open(&folder), marked.inbox);
    let is_on_disk = || {
        let files = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path());
        let mut bytes = files.map(|path| std::fs::read(path).unwrap());
        bytes.any(|bytes| bytes.windows(16).any(|it| it == marked.address.0))
    };
    sync.sync_with_store(&mut store, &one, false, NOW).unwrap();
    assert!(is_on_disk(), "the backup reads it");
    backup.end_snapshot();
    sync.sync_with_store(&mut store, &one, false, NOW).unwrap();
    assert!(!is_on_disk());
}

#[test]
fn a_node_forgets_a_deleted_inbox_and_writes_none_of_its_earlier_sign_ups() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let ((one, mut first), (other, mut second)) = (node(1, false), node(2, false));
    let stored = sign_up(1, NOW - 9);
    one.record_form(&[stored]);
    first.sync_with_store(&mut store, &one, false, NOW).unwrap();
    second.sync_with_store(&mut store, &other, false, NOW).unwrap();
    // The second node can't reach the store for a while.
    let unsaved = SignUp { address: Pseudonym([8; 16]), ..sign_up(1, NOW) };
    let of_other_inbox = sign_up(2, NOW);
    other.record_form(&[unsaved]);
    other.record_form(&[of_other_inbox]);
    delete(&mut store, stored.inbox);
    let later = SignUp { address: Pseudonym([7; 16]), ..sign_up(1, NOW + 1) };
    other.record_form(&[later]);
    for _ in 0..2 {
        second.sync_with_store(&mut store, &other, false, NOW).unwrap();
        first.sync_with_store(&mut store, &one, false, NOW).unwrap();
    }
    assert_eq!(read_all(&mut store), [of_other_inbox, later]);
    for sign_ups in [&one, &other] {
        let count = |number: u8| {
            let asked = SignUp { address: Pseudonym([9; 16]), ..sign_up(number, NOW + 2) };
            sign_ups.count_others(&asked).inbox_accounts_30d
        };
        assert_eq!((count(1), count(2)), (Some(1), Some(1)));
    }
}

#[test]
fn sign_ups_of_a_clock_that_was_ahead_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    store.append_sign_ups(&[sign_up(1, NOW + 86_400)], SignUpCursor::default()).unwrap();
    let (sign_ups, mut sync) = node(1, false);
    sync.sync_with_store(&mut store, &sign_ups, false, NOW).unwrap();
    let asked = SignUp { address: Pseudonym([7; 16]), ..sign_up(1, NOW + 86_401) };
    assert_eq!(sign_ups.count_others(&asked).inbox_accounts_30d, Some(0));
}
