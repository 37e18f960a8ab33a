use super::*;
use crate::store::{DamagedRows, RingVersion};

fn key_row(id: &str, digest: u8) -> KeyRow {
    KeyRow {
        id: id.to_owned(),
        account: "acme".to_owned(),
        label: None,
        digest: [digest; 32],
        origins: Vec::new(),
        require_origin: false,
        created_at: 1,
        expires_at: None,
        revoked_at: None,
    }
}

fn revoked_key(id: &str, digest: u8) -> KeyRow {
    KeyRow { revoked_at: Some(5), ..key_row(id, digest) }
}

fn expiring_key(id: &str, digest: u8, at: i64) -> KeyRow {
    KeyRow { expires_at: Some(at), ..key_row(id, digest) }
}

fn acme_with_limit(calls: Option<u64>) -> AccountRow {
    AccountRow { name: "acme".to_owned(), plan: None, own_limit: calls.map(MonthlyLimit::Calls) }
}

fn ring_rows(keys: &[KeyRow]) -> RingRows {
    RingRows { keys: keys.to_vec(), accounts: vec![acme_with_limit(None)], ..RingRows::default() }
}

fn ring_changes(keys: &[KeyRow], accounts: &[AccountRow]) -> RingChanges {
    RingChanges { keys: keys.to_vec(), accounts: accounts.to_vec(), ..RingChanges::default() }
}

/// Merges the rows of a node that knew `known` into a store that lost data and holds `now`. Returns
/// the lost rows, and the rows that are in effect after that.
fn merge_rows_after_loss(known: &[KeyRow], now: &[KeyRow]) -> (LostRows, RingRows) {
    let (mut lost, mut now) = (LostRows::default(), ring_rows(now));
    lost.find_and_keep_lost_rows(&ring_rows(known), &mut now, true);
    (lost, now)
}

fn join_descriptions(lost: &LostRows) -> String {
    lost.describe_losses().join("\n")
}

#[test]
fn a_lost_revocation_applies_under_the_new_id() {
    let (mut lost, now) = merge_rows_after_loss(&[revoked_key("old", 1)], &[key_row("new", 1)]);
    assert_eq!(now.keys, [revoked_key("new", 1)]);
    assert_eq!(lost.rows_to_restore().0, [revoked_key("new", 1)], "and is written back");
    assert!(
        join_descriptions(&lost).contains("run `riskgate keys revoke new`"),
        "{}",
        join_descriptions(&lost)
    );
    // The key stays revoked until the store says so too.
    let mut change =
        ring_changes(&[KeyRow { label: Some("x".to_owned()), ..key_row("new", 1) }], &[]);
    lost.apply_losses_to_changes(&mut change);
    assert_eq!(change.keys[0].revoked_at, Some(5));
    lost.apply_losses_to_changes(&mut ring_changes(&[revoked_key("new", 1)], &[]));
    assert!(lost.is_fully_restored() && lost.describe_losses().is_empty());
}

#[test]
fn a_lost_expiry_applies_under_the_new_id() {
    let (lost, now) =
        merge_rows_after_loss(&[expiring_key("old", 1, 900)], &[expiring_key("new", 1, 1_000)]);
    assert_eq!(now.keys, [expiring_key("new", 1, 900)]);
    assert_eq!(lost.rows_to_restore().0, now.keys);
}

#[test]
fn a_lost_key_whose_id_is_taken_gets_a_new_id() {
    let (lost, now) = merge_rows_after_loss(&[key_row("web", 1)], &[key_row("web", 2)]);
    let [other, kept] = &now.keys[..] else { panic!("{:?}", now.keys) };
    assert_eq!((other, &kept.digest), (&key_row("web", 2), &[1; 32]));
    assert_eq!(kept.id, "web-0101010101010101");
    assert_eq!(&lost.rows_to_restore().0[0], kept);
    assert!(
        join_descriptions(&lost).contains("its id web is another key's"),
        "{}",
        join_descriptions(&lost)
    );
    // Each node derives the same id, and a later read changes nothing.
    let mut second_read = ring_rows(&[key_row("web", 2)]);
    let mut lost = lost;
    lost.find_and_keep_lost_rows(&now, &mut second_read, true);
    assert_eq!((&second_read.keys, lost.rows_to_restore().0.len()), (&now.keys, 1));
}

#[test]
fn a_lost_key_gets_a_new_id_if_a_change_takes_its_id() {
    let (mut lost, mut now) = merge_rows_after_loss(&[key_row("web", 1)], &[]);
    let mut change = ring_changes(&[key_row("web", 2)], &[]);
    lost.apply_losses_to_changes(&mut change);
    now.apply_changes(change);
    let ids: Vec<_> = now.keys.iter().map(|key| (key.id.as_str(), key.digest[0])).collect();
    assert_eq!(ids, [("web", 2), ("web-0101010101010101", 1)]);
    assert_eq!(lost.rows_to_restore().0, [now.keys[1].clone()]);
}

#[test]
fn a_lost_revocation_applies_to_the_same_key_added_again() {
    let (mut lost, mut now) = merge_rows_after_loss(&[revoked_key("old", 1)], &[]);
    let mut change = ring_changes(&[key_row("new", 1)], &[]);
    lost.apply_losses_to_changes(&mut change);
    now.apply_changes(change);
    assert_eq!(now.keys, [revoked_key("new", 1)]);
    assert_eq!(lost.rows_to_restore().0, now.keys);
}

#[test]
fn an_undone_rotation_is_no_loss_but_a_missing_row_is() {
    let (mut lost, mut now) =
        (LostRows::default(), ring_rows(&[key_row("old", 1), revoked_key("new", 2)]));
    lost.find_and_keep_lost_rows(
        &ring_rows(&[expiring_key("old", 1, 900), key_row("new", 2)]),
        &mut now,
        false,
    );
    assert_eq!(now.keys, [key_row("old", 1), revoked_key("new", 2)]);
    assert!(lost.is_fully_restored());
    // No command removes a revocation or a row, so this is a loss whatever the ids say.
    let known = ring_rows(&[revoked_key("one", 1), key_row("two", 2)]);
    let mut now = ring_rows(&[key_row("one", 1)]);
    lost.find_and_keep_lost_rows(&known, &mut now, false);
    assert_eq!(now.keys, [revoked_key("one", 1), key_row("two", 2)]);
}

#[test]
fn a_lost_expiry_still_applies_at_the_next_read() {
    let (mut lost, known) =
        merge_rows_after_loss(&[expiring_key("old", 1, 900)], &[key_row("old", 1)]);
    let mut now = ring_rows(&[key_row("old", 1)]);
    lost.find_and_keep_lost_rows(&known, &mut now, false);
    assert_eq!(now.keys, [expiring_key("old", 1, 900)]);
    assert!(!lost.is_fully_restored());
}

#[test]
fn a_key_with_a_damaged_row_is_not_restored() {
    let mut now = ring_rows(&[]);
    now.damaged = DamagedRows::default();
    now.damaged.key_digests_by_id.insert("new".to_owned(), Some([1; 32]));
    let mut lost = LostRows::default();
    lost.find_and_keep_lost_rows(&ring_rows(&[key_row("old", 1)]), &mut now, true);
    assert_eq!((now.keys.len(), lost.is_fully_restored()), (0, true));
}

#[test]
fn each_described_loss_names_a_repair_command() {
    let known =
        [revoked_key("gone", 1), expiring_key("late", 2, 1_800_000_000), key_row("good", 3)];
    let mut before = ring_rows(&known);
    before.accounts.push(AccountRow {
        name: "other".to_owned(),
        plan: Some("pro".to_owned()),
        own_limit: Some(MonthlyLimit::Calls(7)),
    });
    let mut lost = LostRows::default();
    let mut now = ring_rows(&[key_row("gone", 1), key_row("late", 2)]);
    now.accounts = vec![acme_with_limit(Some(9))];
    lost.find_and_keep_lost_rows(&before, &mut now, true);
    let lines = lost.describe_losses();
    for command in [
        "riskgate keys revoke gone",
        "riskgate keys revoke late",
        "riskgate keys create --account acme",
        "riskgate accounts set other --plan pro --limit 7",
        "riskgate accounts set acme --limit plan",
    ] {
        let count = lines.iter().filter(|line| line.contains(&format!("`{command}`"))).count();
        assert_eq!(count, 1, "{command}: {lines:?}");
    }
    assert!(lines.iter().all(|line| line.contains("the store lost")), "{lines:?}");
    assert_eq!(lines.len(), 5);
    assert!(lines[0].contains("gone"), "lost revocations come first: {lines:?}");
}

/// Lost rows of a node that knew acme's limit 7. The store lost it, and now has the plan's limit.
fn lost_rows_with_lost_limit() -> LostRows {
    let (mut lost, mut now) = (LostRows::default(), ring_rows(&[]));
    let known = RingRows { accounts: vec![acme_with_limit(Some(7))], ..ring_rows(&[]) };
    lost.find_and_keep_lost_rows(&known, &mut now, true);
    assert!(
        join_descriptions(&lost).contains("account acme: the store lost the limit 7"),
        "{}",
        join_descriptions(&lost)
    );
    lost
}

#[test]
fn a_lost_limit_is_reported_until_a_limit_is_set() {
    for calls in [Some(7), Some(9), None] {
        let mut lost = lost_rows_with_lost_limit();
        lost.apply_losses_to_changes(&mut ring_changes(&[], &[acme_with_limit(calls)]));
        assert_eq!(lost.describe_losses(), [""; 0], "set to {calls:?}");
    }
    let mut lost = lost_rows_with_lost_limit();
    lost.apply_losses_to_changes(&mut ring_changes(&[key_row("new", 1)], &[acme_with_limit(None)]));
    assert_eq!(lost.describe_losses().len(), 1, "a new key sets no limit");
}

#[test]
fn a_limit_set_after_the_loss_is_not_reported() {
    let mut lost = lost_rows_with_lost_limit();
    // Everything that changed after the known version changed after the loss.
    let ring_version = RingVersion { version: 9, ..RingVersion::default() };
    lost.forget_accounts_set_again(&RingChanges {
        ring_version,
        ..ring_changes(&[], &[acme_with_limit(None)])
    });
    assert_eq!(lost.describe_losses(), [""; 0]);
}

/// Comparing each changed account with each changed key or lost account would take minutes.
#[test]
fn losses_and_changes_of_many_accounts_take_no_long_time() {
    let account = |number: u32, calls| AccountRow {
        name: format!("account-{number}"),
        ..acme_with_limit(calls)
    };
    let (known, mut now): (Vec<_>, Vec<_>) =
        (0..120_000).map(|number| (account(number, Some(1)), account(number, Some(2)))).unzip();
    let key = |row: &AccountRow| KeyRow {
        account: row.name.clone(),
        ..key_row(&format!("key-of-{}", row.name), 1)
    };
    let keys: Vec<KeyRow> = now.iter().map(key).collect();
    let missing = now.split_off(60_000);
    let rows =
        |accounts: &[AccountRow]| RingRows { accounts: accounts.to_vec(), ..RingRows::default() };
    let mut lost = LostRows::default();
    lost.find_and_keep_lost_rows(&rows(&known), &mut rows(&now), true);
    let started = std::time::Instant::now();
    lost.apply_losses_to_changes(&mut ring_changes(&keys, &[now, missing].concat()));
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    assert!(lost.is_fully_restored());
    assert_eq!(lost.accounts_with_lost_settings.len(), 60_000, "none was set again");
}
