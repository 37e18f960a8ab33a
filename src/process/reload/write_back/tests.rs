use super::*;
use crate::store::redis_server::RedisServer;
use crate::store::{RedisOptions, RingRows, StoreUrl};

#[test]
fn rows_that_a_replica_lacks_are_written_until_it_has_them() {
    let server = RedisServer::start();
    let url = StoreUrl::parse(&server.url()).unwrap();
    let options = RedisOptions { wait_replicas: 1, ..RedisOptions::default() };
    let mut store = Store::open(&url, &options, Duration::from_millis(1_500)).unwrap();
    let account =
        AccountRow { name: "acme".to_owned(), plan: Some("pro".to_owned()), own_limit: None };
    let known = RingRows { accounts: vec![account], ..RingRows::default() };
    let mut lost = LostRows::default();
    lost.find_and_keep_lost_rows(&known, &mut RingRows::default(), true);
    let (mut write_back, started) = (WriteBack::default(), Instant::now());
    assert!(write_back.restore_if_due(&lost, &mut store, started));
    let lacking = "what the store lost is written back, but 1 of store.wait_replicas lack it";
    assert_eq!(write_back.problem(), Some(lacking));
    // The rows are no longer lost, and no replica has them yet.
    let none_lost = LostRows::default();
    let minutes = |minutes: u64| started + Duration::from_secs(60 * minutes);
    assert!(write_back.restore_if_due(&none_lost, &mut store, minutes(1)));
    assert_eq!(write_back.problem(), Some(lacking));
    let _replica = RedisServer::replica_of(&server);
    let has_them = (2..50).any(|minute| {
        write_back.restore_if_due(&none_lost, &mut store, minutes(minute));
        write_back.problem().is_none()
    });
    assert!(has_them, "{:?}", write_back.problem());
    assert!(!write_back.restore_if_due(&none_lost, &mut store, minutes(60)));
}

#[test]
fn a_store_that_never_accepts_lost_rows_is_tried_ever_less_often() {
    let folder = tempfile::tempdir().unwrap();
    let url = StoreUrl::Sqlite(folder.path().join("store.db"));
    let timeout = Duration::from_secs(5);
    let mut store = Store::open(&url, &RedisOptions::default(), timeout).unwrap();
    let key = |digest: u8| KeyRow {
        id: "web".to_owned(),
        account: "acme".to_owned(),
        label: None,
        digest: [digest; 32],
        origins: Vec::new(),
        require_origin: false,
        created_at: 0,
        expires_at: None,
        revoked_at: None,
    };
    // Another key has the id by now, and this node does not know that key yet.
    store.add_keys(&ChangeAuthor::riskgate("a test"), &[(key(2), None)], None).unwrap();
    let known = RingRows { keys: vec![key(1)], ..RingRows::default() };
    let mut lost = LostRows::default();
    lost.find_and_keep_lost_rows(&known, &mut RingRows::default(), true);
    let (mut write_back, started) = (WriteBack::default(), Instant::now());
    let mut try_at = |quarters: u32| {
        let now = started + Duration::from_millis(250) * quarters;
        write_back.restore_if_due(&lost, &mut store, now)
    };
    assert!(try_at(0), "at once");
    assert!(!try_at(3) && try_at(4), "after a second");
    let attempts = (5..2_400).filter(|quarters| try_at(*quarters)).count();
    assert!((10..=15).contains(&attempts), "{attempts} in ten minutes");
    write_back.reset_backoff();
    assert!(write_back.restore_if_due(&lost, &mut store, started), "a new loss resets the pause");
}
