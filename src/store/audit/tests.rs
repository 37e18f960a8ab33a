use super::*;

fn state(entries: &[(&str, &str)]) -> SourceState {
    let entries = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    SourceState {
        subject: "config on a".to_owned(),
        shared_subject: "config".to_owned(),
        entries: entries.collect(),
    }
}

#[test]
fn a_record_shows_no_time_for_a_key_whose_creation_is_not_known() {
    let key = KeyRow {
        id: "web".to_owned(),
        account: "acme".to_owned(),
        label: None,
        digest: [7; 32],
        origins: Vec::new(),
        require_origin: false,
        created_at: 0,
        expires_at: None,
        revoked_at: None,
    };
    assert_eq!(key_to_json(&key)["created_at"], Value::Null);
    let key = KeyRow { created_at: 1, ..key };
    assert_eq!(key_to_json(&key)["created_at"], "1970-01-01T00:00:01Z");
}

#[test]
fn a_record_of_a_source_lists_what_differs() {
    let before = state(&[("a", "1"), ("b", "2"), ("c", "3")]).to_stored_text();
    let after = state(&[("a", "1"), ("b", "4"), ("d", "5")]).to_stored_text();
    let (old, new) = diff_source_states(&before, &after);
    assert_eq!(old, json!({ "b": "2", "c": "3" }));
    assert_eq!(new, json!({ "b": "4", "d": "5" }));
}

#[test]
fn a_large_source_is_remembered_by_its_digest() {
    let large = |last: &str| {
        let mut large = state(&[]);
        large.entries.extend((0..20_000).map(|n| (format!("{n}.example"), "deny".to_owned())));
        large.entries.insert("last".to_owned(), last.to_owned());
        large.to_stored_text()
    };
    let (before, after) = (large("a"), large("b"));
    assert!(before.len() < 200);
    let (old, new) = diff_source_states(&before, &after);
    assert_ne!(old["sha256"], new["sha256"]);
    assert_eq!(old.get("number of entries"), None, "the number is the same");
}

#[test]
fn ids_sort_as_their_records() {
    let ids = ["9", "10", "1700000000000-0", "1700000000000-2", "1700000000000-10"];
    assert!(ids.map(AuditRecord::parse_id).is_sorted());
    assert_eq!(AuditRecord::parse_id("a-1"), None);
}
