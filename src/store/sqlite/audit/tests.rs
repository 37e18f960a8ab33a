use std::time::Duration;

use serde_json::json;

use super::*;
use crate::model::monthly_limit::{LimitChange, MonthlyLimit};
use crate::store::operations::RingBackend as _;

fn open(folder: &tempfile::TempDir) -> Sqlite {
    Sqlite::open(&folder.path().join("s.db"), Duration::from_secs(5)).unwrap()
}

#[test]
fn a_damaged_record_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let author = ChangeAuthor::riskgate("a test");
    store.set_account(&author, "acme", Some("pro"), None).unwrap();
    let insert = "INSERT INTO audit (at, author, operation, target, before, after)
                  VALUES ('x', x'ff', x'ff', 7, x'00', 1.5)";
    store.connection.execute_batch(insert).unwrap();
    // Nobody has told this store the time, so the record gets that of the last one, if it is
    // later.
    store.set_account(&author, "acme", Some("free"), None).unwrap();
    let records = store.read_audit_after(None, 9).unwrap();
    let parts = |record: &AuditRecord| (record.author.clone(), record.target.clone());
    let known = (author, "acme".to_owned());
    let damaged = (ChangeAuthor::riskgate("unknown"), "7".to_owned());
    assert_eq!(records.iter().map(parts).collect::<Vec<_>>(), [known.clone(), damaged, known]);
    assert_eq!(records[1].at, 0);
}

#[test]
fn changes_of_damaged_rows_have_their_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder);
    let insert = "INSERT INTO account VALUES ('acme', 'pro', 'many', 0, 1);
                  INSERT INTO api_key VALUES
                  ('key_1', 'acme', NULL, zeroblob(32), 'no list', 0, 5, NULL, NULL, 1)";
    store.connection.execute_batch(insert).unwrap();
    let author = ChangeAuthor::riskgate("a test");
    for _ in 0..2 {
        store.expire_or_revoke_key(&author, "key_1", None, Some(1_800_000_000)).unwrap();
    }
    store.set_account(&author, "acme", Some("free"), None).unwrap();
    let limit = Some(LimitChange::SetOwnLimit(MonthlyLimit::Calls(7)));
    store.set_account(&author, "acme", None, limit).unwrap();
    let records = store.read_audit_after(None, 9).unwrap();
    let changes = records.into_iter().map(|it| (it.operation, it.before, it.after));
    let key = |revoked_at: Value| json!({ "damaged": true, "expires_at": null, "revoked_at": revoked_at });
    let account = |plan: &str| json!({ "damaged": true, "plan": plan, "own_limit": null, "unlimited": false });
    let repaired = json!({ "plan": "free", "own_limit": 7 });
    assert_eq!(
        changes.collect::<Vec<_>>(),
        [
            ("key.revoke".to_owned(), key(Value::Null), key(json!("2027-01-15T08:00:00Z"))),
            ("account.set".to_owned(), account("pro"), account("free")),
            ("account.set".to_owned(), account("free"), repaired),
        ]
    );
}
