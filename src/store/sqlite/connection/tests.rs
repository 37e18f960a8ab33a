use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::model::believed_time::TimeAnchor;
use crate::store::operations::AuditBackend;
use crate::store::operations::QuotaEventBackend;
use crate::store::operations::RingBackend;
use crate::store::operations::TimeBackend;

#[test]
fn an_empty_file_is_refused_and_stays_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    std::fs::write(&path, "").unwrap();
    let error = Sqlite::open(&path, Duration::from_millis(50)).err().unwrap().to_string();
    assert!(error.contains("expected a riskgate store, but found an empty one"), "{error}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

/// As nodes do that start at once.
#[test]
fn a_store_that_another_process_creates_meanwhile_is_no_link_that_leads_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let [made, path] = ["made.db", "store.db"].map(|name| folder.path().join(name));
    drop(Sqlite::open(&made, Duration::from_secs(5)).unwrap());
    let is_done = AtomicBool::new(false);
    let errors: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                std::fs::hard_link(&made, &path).unwrap();
                std::fs::remove_file(&path).unwrap();
            }
        });
        let looks = (0..50_000).map(|_| open::store_file_exists(&path));
        let errors = looks.filter_map(|found| Some(found.err()?.to_string())).collect();
        is_done.store(true, Ordering::Relaxed);
        errors
    });
    assert_eq!(errors, [""; 0]);
}

/// Makes a store of version 2 from a present one.
const MAKE_VERSION_2_WITH_ACCOUNT: &str =
    "DROP TABLE quota_event; DROP TABLE audit; DROP TABLE source_state; DROP TABLE request;
     DROP TABLE daily_usage; PRAGMA user_version = 2;
     INSERT INTO account (name) VALUES ('acme')";

#[test]
fn a_store_of_version_2_is_migrated_and_keeps_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let open = || Sqlite::open(&path, Duration::from_secs(5)).unwrap();
    open().connection.execute_batch(MAKE_VERSION_2_WITH_ACCOUNT).unwrap();
    for _ in 0..2 {
        let mut store = open();
        assert_eq!(store.count_pending_quota_events().unwrap(), 0);
        assert_eq!(store.read_audit_before(None, 9).unwrap(), []);
        let read = |select: &str| -> i64 {
            store.connection.query_row(select, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(read("PRAGMA user_version"), 3);
        assert_eq!(read("SELECT count(*) FROM account"), 1);
    }
}

#[test]
fn a_store_of_version_2_is_read_through_a_link_with_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("store.db"), folder.path().join("link"));
    let writer = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
    writer.connection.execute_batch(MAKE_VERSION_2_WITH_ACCOUNT).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let store = Sqlite::open_to_read(&link, Duration::from_secs(5)).unwrap();
    let read = |connection: &Connection, select: &str| -> i64 {
        connection.query_row(select, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(read(&store.connection, "SELECT count(*) FROM account"), 1);
    assert_eq!(read(&store.connection, "PRAGMA user_version"), 3);
    assert_eq!(read(&writer.connection, "PRAGMA user_version"), 2);
}

#[test]
fn check_file_not_replaced_fails_if_the_file_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
    store.check_file_not_replaced().unwrap();
    std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    assert!(store.check_file_not_replaced().is_err());
}

/// The names of the accounts in the database file alone, as if the log were lost.
fn read_accounts_without_log(file: &Path) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    std::fs::copy(file, &copy).unwrap();
    let connection = Connection::open(&copy).unwrap();
    let mut statement = connection.prepare("SELECT name FROM account").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn add_account(store: &mut Sqlite, name: &str) -> Result<(), StoreError> {
    let transaction = store.begin_write_transaction("testing")?;
    transaction.execute("INSERT INTO account (name) VALUES (?1)", [name]).unwrap();
    transaction.commit().unwrap();
    Ok(())
}

fn open_for_test(path: &Path) -> Result<Sqlite, StoreError> {
    Sqlite::open(path, Duration::from_secs(5))
}

/// A store with the account `old` in its file, and the account `new` in its log alone.
fn open_with_account_in_log(path: &Path) -> Sqlite {
    let mut store = open_for_test(path).unwrap();
    add_account(&mut store, "old").unwrap();
    assert!(store.checkpoint_wal().unwrap());
    add_account(&mut store, "new").unwrap();
    assert_eq!(read_accounts_without_log(path), ["old"]);
    store
}

#[test]
fn no_store_is_created_beside_the_log_of_another_file() {
    for suffix in ["-wal", "-journal"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let log = folder.path().join(format!("store.db{suffix}"));
        std::fs::write(&log, "changes").unwrap();
        let wait = Duration::from_secs(5);
        let errors = [
            Sqlite::open(&path, wait).err(),
            Sqlite::open_to_check(&path, wait).err(),
            Sqlite::open_to_read(&path, wait).err(),
        ];
        for error in errors {
            let error = error.unwrap().to_string();
            assert!(error.contains("found only its log ") && error.contains(suffix), "{error}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "changes");
        // SQLite empties a log that has nothing new.
        std::fs::write(&log, "").unwrap();
        open_for_test(&path).unwrap();
    }
}

#[test]
fn another_file_is_never_opened_with_the_log_of_the_former_one() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name);
    let (path, other, aside) =
        (in_folder("store.db"), in_folder("other.db"), in_folder("aside.db"));
    drop(open_for_test(&other).unwrap());
    let bytes = std::fs::read(&other).unwrap();
    let mut store = open_with_account_in_log(&path);
    std::fs::rename(&path, &aside).unwrap();
    std::fs::rename(&other, &path).unwrap();
    let error = store.check_file_not_replaced().unwrap_err().to_string();
    assert!(error.contains("another one; put it back, or stop riskgate, move "), "{error}");
    assert!(add_account(&mut store, "late").is_err() && store.checkpoint_wal().is_err());
    assert!(store.ring_version().is_err());
    std::mem::forget(store); // As after a kill.
    let wait = Duration::from_secs(5);
    let errors = [
        Sqlite::open(&path, wait).err(),
        Sqlite::open_to_read(&path, wait).err(),
        Sqlite::open_to_copy(&path, wait).err(),
        Sqlite::open_to_check(&path, wait).err(),
    ];
    for error in errors {
        let error = error.unwrap().to_string();
        assert!(error.contains("put that file back, or stop riskgate, move "), "{error}");
    }
    assert!(std::fs::read(&path).unwrap() == bytes, "the other file is unchanged");
    // The former file continues with its log.
    std::fs::rename(&path, &other).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    let mut store = open_for_test(&path).unwrap();
    assert_eq!(store.ring_rows().unwrap().unwrap().accounts.len(), 2);
    store.check_file_not_replaced().unwrap();
    // The other file can be used once the log is away.
    std::fs::rename(&other, &path).unwrap();
    store.check_file_not_replaced().unwrap_err();
    std::mem::forget(store);
    for suffix in ["-wal", "-shm"] {
        let name = |name: &str| in_folder(&format!("{name}{suffix}"));
        std::fs::rename(name("store.db"), name("aside.db")).unwrap();
    }
    let mut store = open_for_test(&path).unwrap();
    assert_eq!(store.ring_rows().unwrap().unwrap().accounts.len(), 0);
    add_account(&mut store, "next").unwrap();
    let left = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
    assert!(left.into_iter().all(|it| !it.to_string_lossy().contains("note")));
}

#[test]
fn the_changes_of_a_removed_log_are_saved_in_the_file() {
    for removed in [&["-wal"][..], &["-wal", "-shm"]] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = open_with_account_in_log(&path);
        // Another process, such as the other gateway of an upgrade.
        let mut second = open_for_test(&path).unwrap();
        for suffix in removed {
            std::fs::remove_file(folder.path().join(format!("store.db{suffix}"))).unwrap();
        }
        let error = store.check_file_not_replaced().unwrap_err().to_string();
        assert!(error.contains("its changes are saved in the store: restart"), "{error}");
        assert_eq!(read_accounts_without_log(&path), ["new", "old"]);
        assert!(add_account(&mut second, "late").is_err());
    }
}

#[test]
fn the_changes_of_a_removed_log_never_go_beside_a_new_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (log, aside) = (folder.path().join("store.db-wal"), folder.path().join("aside"));
    let store = open_with_account_in_log(&path);
    std::fs::rename(&log, &aside).unwrap();
    std::fs::write(&log, "the log of another process").unwrap();
    let error = store.check_file_not_replaced().unwrap_err().to_string();
    assert!(error.contains("put it back before you restart riskgate"), "{error}");
    assert_eq!(read_accounts_without_log(&path), ["old"]);
    drop(store);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "the log of another process");
    assert_eq!(read_accounts_without_log(&path), ["old"]);
    std::fs::rename(&aside, &log).unwrap();
    let mut store = open_for_test(&path).unwrap();
    assert_eq!(store.ring_rows().unwrap().unwrap().accounts.len(), 2);
}

#[test]
fn a_write_fails_once_a_file_beside_the_store_was_removed() {
    for suffix in ["-wal", "-shm"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let mut store = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
        let mut other = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
        drop(other.begin_write_transaction("testing").unwrap());
        std::fs::remove_file(folder.path().join(format!("store.db{suffix}"))).unwrap();
        let error = store.begin_write_transaction("testing").err().unwrap().to_string();
        assert!(error.contains(suffix) && error.contains("restart riskgate"), "{error}");
        let anchor = TimeAnchor::parse("1796083199 5 boot").expect("an anchor");
        assert!(store.remember_time(&anchor).is_err());
        assert!(store.check_file_not_replaced().is_err());
        assert!(other.begin_write_transaction("testing").is_err());
    }
}

#[test]
fn threads_can_create_the_same_store_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| Sqlite::open(&path, Duration::from_secs(5)).map(drop).unwrap());
        }
    });
    let leftovers = std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok);
    assert!(leftovers.into_iter().all(|e| !e.file_name().to_string_lossy().contains(".new-")));
}
