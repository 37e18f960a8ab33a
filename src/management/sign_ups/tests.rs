use std::time::Duration;

use super::*;
use crate::model::sign_up::{SignUp, SignUpEntry};
use crate::store::{RedisOptions, SignUpCursor, StoreUrl, StoredIdMark};

#[test]
fn gateways_that_count_by_account_forget_what_they_have_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let url = StoreUrl::Sqlite(folder.path().join("riskgate.db"));
    let mut store = Store::open(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap();
    let secret = InboxSecret::new(&[7; 32]).unwrap();
    let pseudonymizer = Pseudonymizer::new(&secret);
    let address = EmailAddress::parse("jane+a@gmail.com").unwrap();
    let inbox = InboxRules::built_in().unwrap().canonical_inbox(&address);
    let author = ChangeAuthor::riskgate("a test");
    let mut delete = |by_account: bool| {
        let mark = pseudonymizer.inbox_id_mark(by_account);
        let written = StoredIdMark { mark, confirmation: None };
        store.write_inbox_id_mark(&written).unwrap();
        let accounts = &["one", "two"];
        let owner = SignUpOwner { address: &address, secret_of_file: Some(&secret), accounts };
        assert_eq!(delete_sign_ups(&mut store, &author, &owner).unwrap(), 0);
        let (entries, _) = store.read_sign_ups_page(SignUpCursor::default()).unwrap();
        let deleted = entries.iter().map(|entry| match entry {
            SignUpEntry::Deletion(deletion) => deletion.inbox,
            SignUpEntry::SignUp(_) => panic!("expected deletions alone"),
        });
        deleted.collect::<HashSet<Pseudonym>>()
    };
    let pseudonyms = |scopes: &[SignUpScope<'_>]| -> HashSet<Pseudonym> {
        scopes.iter().map(|scope| pseudonymizer.inbox_id(&inbox, *scope)).collect()
    };
    assert_eq!(delete(false), pseudonyms(&[SignUpScope::Deployment]));
    // A request without a key has the scope of the deployment.
    let [one, two] = ["one", "two"].map(SignUpScope::Account);
    assert_eq!(delete(true), pseudonyms(&[SignUpScope::Deployment, one, two]));
}

/// A copy of a store has usage by day of the last month, and totals of this month alone.
#[test]
fn sign_ups_of_a_removed_account_that_has_usage_by_day_alone_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("riskgate.db");
    let url = StoreUrl::Sqlite(path.clone());
    let mut store = Store::open(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap();
    let secret = InboxSecret::new(&[7; 32]).unwrap();
    let pseudonymizer = Pseudonymizer::new(&secret);
    let address = EmailAddress::parse("jane@a.com").unwrap();
    let inbox = InboxRules::built_in().unwrap().canonical_inbox(&address);
    let at = store.now().unix_now;
    let sign_up = |account| {
        let inbox = pseudonymizer.inbox_id(&inbox, SignUpScope::Account(account));
        SignUp { at, inbox, address: inbox, domain: None, client: None }
    };
    store.append_sign_ups(&[sign_up("gone"), sign_up("other")], SignUpCursor::default()).unwrap();
    let day = "INSERT INTO daily_usage VALUES (?1, 'gone', 1, 'check', 'k', zeroblob(16), 3)";
    let month = Month::containing(*times_of_kept_sign_ups(at).start()).number();
    rusqlite::Connection::open(path).unwrap().execute(day, [month]).unwrap();
    let owner = SignUpOwner { address: &address, secret_of_file: Some(&secret), accounts: &[] };
    assert_eq!(find_sign_ups(&mut store, &owner).unwrap().count, 1);
    assert_eq!(delete_sign_ups(&mut store, &ChangeAuthor::riskgate("a test"), &owner).unwrap(), 1);
}
