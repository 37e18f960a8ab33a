use super::*;

fn reached() -> ReachedThreshold {
    ReachedThreshold {
        account: "acme \"x\"".to_owned(),
        plan: "free".to_owned(),
        month: Month::parse("2026-11").unwrap(),
        threshold_percent: 80,
        spent: 81,
        limit: 100,
    }
}

#[test]
fn a_message_has_the_form_of_the_documents() {
    let event = reached().to_event(1_795_000_000, 1_795_000_001);
    assert_eq!(
        event.body,
        r#"{"type":"quota.threshold_reached","timestamp":"2026-11-18T11:06:40Z","data":{"account":"acme \"x\"","plan":"free","month":"2026-11","threshold_percent":80,"month_count":81,"monthly_limit":100,"reset_at":"2026-12-01T00:00:00Z"}}"#
    );
    assert_eq!((event.created_at, event.due_at), (1_795_000_000, 1_795_000_001));
}

#[test]
fn the_key_depends_on_account_month_limit_and_threshold_only() {
    let key = |change: &dyn Fn(&mut ReachedThreshold)| {
        let mut changed = reached();
        change(&mut changed);
        changed.to_event(5, 5).key
    };
    let first = key(&|_| {});
    assert_eq!(first.len(), 32);
    assert_eq!(key(&|it| (it.spent, it.plan) = (99, "pro".to_owned())), first);
    let changes: [&dyn Fn(&mut ReachedThreshold); 4] = [
        &|it| it.account.push('x'),
        &|it| it.month = Month::parse("2026-12").unwrap(),
        &|it| it.limit = 101,
        &|it| it.threshold_percent = 100,
    ];
    for change in changes {
        assert_ne!(key(change), first);
    }
}
