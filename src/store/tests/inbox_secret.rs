//! Tests of the inbox secret in both stores.

use super::super::{Store, StoredIdMark, StoredInboxSecret};
use super::{TestStore, on_each_store};

fn secret(byte: u8, created_at: i64) -> StoredInboxSecret {
    StoredInboxSecret { secret: [byte; 32], created_at }
}

#[test]
fn a_store_keeps_the_oldest_secret() {
    on_each_store(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        assert_eq!(one.read_inbox_secret().unwrap(), None);
        let mut keep = |store: &mut Store, known: &StoredInboxSecret| {
            let kept = store.keep_inbox_secret(known).unwrap();
            assert_eq!(other.read_inbox_secret().unwrap(), Some(kept.clone()));
            kept
        };
        let first = secret(7, 1_790_000_000);
        assert_eq!(keep(&mut one, &first), first, "a store without a secret");
        assert_eq!(keep(&mut one, &first), first);
        assert_eq!(keep(&mut one, &secret(1, 1_790_000_001)), first, "a later one");
        assert_eq!(keep(&mut one, &secret(8, 1_790_000_000)), first, "larger bytes of one second");
        let smaller = secret(6, 1_790_000_000);
        assert_eq!(keep(&mut one, &smaller), smaller);
        let older = secret(250, -5);
        assert_eq!(keep(&mut one, &older), older);
    });
}

#[test]
fn nodes_that_start_at_once_come_to_know_one_secret() {
    on_each_store(|location| {
        let started: Vec<(Store, StoredInboxSecret)> = std::thread::scope(|scope| {
            let start = |n: u8| {
                scope.spawn(move || {
                    let known = secret(n, 1_790_000_000 - i64::from(n % 3));
                    let mut store = location.open();
                    store.keep_inbox_secret(&known).unwrap();
                    (store, known)
                })
            };
            let nodes: Vec<_> = (1..=8).map(start).collect();
            nodes.into_iter().map(|node| node.join().unwrap()).collect()
        });
        // Each node reads the secret again before it relies on it.
        let keep = |(mut store, known): (Store, StoredInboxSecret)| {
            store.keep_inbox_secret(&known).unwrap()
        };
        let kept: Vec<StoredInboxSecret> = started.into_iter().map(keep).collect();
        assert_eq!(location.open().read_inbox_secret().unwrap(), Some(secret(2, 1_789_999_998)));
        assert!(kept.iter().all(|it| *it == kept[0]), "{kept:?}");
    });
}

#[test]
fn an_emptied_server_gets_its_secret_back() {
    let location = TestStore::new_redis();
    let TestStore::Server(server) = &location else { return };
    let (mut store, known) = (location.open(), secret(7, 1_790_000_000));
    store.keep_inbox_secret(&known).unwrap();
    server.run(&["FLUSHALL"]);
    assert_eq!(location.open().read_inbox_secret().unwrap(), None);
    assert_eq!(store.keep_inbox_secret(&known).unwrap(), known);
    assert_eq!(location.open().read_inbox_secret().unwrap(), Some(known));
}

#[test]
fn the_mark_of_the_ids_is_replaced() {
    on_each_store(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        assert_eq!(one.read_inbox_id_mark().unwrap(), None);
        for (mark, confirmation) in [("first", "1"), ("first", "2"), ("second", "3")] {
            let confirmation = Some(confirmation.to_owned());
            let written = StoredIdMark { mark: mark.to_owned(), confirmation };
            one.write_inbox_id_mark(&written).unwrap();
            assert_eq!(other.read_inbox_id_mark().unwrap(), Some(written));
        }
    });
}

#[test]
fn a_damaged_secret_is_never_replaced() {
    let known = secret(7, 1_790_000_000);
    let digits = hex::encode(known.secret);
    let damaged = ["", "5", "5 00", &format!("x {digits}"), &format!("5 {digits}0")];
    for damaged in damaged {
        on_each_store(|location| {
            let mut store = location.open();
            store.keep_inbox_secret(&known).unwrap();
            location.damage_inbox_secret(damaged);
            for error in [
                store.read_inbox_secret().unwrap_err(),
                store.keep_inbox_secret(&secret(1, 0)).unwrap_err(),
            ] {
                let error = error.to_string();
                let expected =
                    "expected the inbox secret that was written, but found a damaged one";
                assert!(error.contains(expected) && !error.contains("0707"), "{error}");
            }
        });
    }
}

impl TestStore {
    fn damage_inbox_secret(&self, text: &str) {
        match self {
            TestStore::File(folder) => {
                let file = rusqlite::Connection::open(folder.path().join("store.db")).unwrap();
                let update = "UPDATE meta SET value = ?1 WHERE key = 'inbox_secret'";
                assert_eq!(file.execute(update, [text]).unwrap(), 1);
            }
            TestStore::Server(_) | TestStore::Cluster(_) => {
                let server = self.server();
                server.run(&["HSET", "riskgate:{inbox}:secret", "secret", text]);
            }
        }
    }
}

#[test]
fn no_text_about_a_secret_shows_it() {
    assert_eq!(
        format!("{:?}", secret(7, 1_790_000_000)),
        "StoredInboxSecret { created_at: 1790000000, .. }"
    );
}
