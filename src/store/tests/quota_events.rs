//! Tests of quota events in both stores.

use super::super::{
    ClaimTimes, ClaimedQuotaEvent, MAX_PENDING_QUOTA_EVENTS, NewQuotaEvent, QuotaEventOutcome,
    QuotaEventState, Store,
};
use super::{TESTER, TestStore, on_each_store};
use crate::model::month::Month;

pub(super) fn quota_event(key: &str, month: Month) -> NewQuotaEvent {
    NewQuotaEvent {
        key: key.to_owned(),
        account: format!("account \"{key}\" ä"),
        month,
        body: format!("{{\"a\":\"{key}\nb %s\"}}"),
        created_at: 100,
        due_at: 100,
    }
}

fn month() -> Month {
    Month::from_number(1_200).unwrap()
}

fn due_event(key: &str, due_at: i64) -> NewQuotaEvent {
    NewQuotaEvent { due_at, ..quota_event(key, month()) }
}

/// Claims events at this second, until a minute later.
fn claim(store: &mut Store, now: i64, max: usize) -> Vec<ClaimedQuotaEvent> {
    let times = ClaimTimes { now, latest_due: now + 7_200, claimed_until: now + 60 };
    store.claim_quota_events(times, max).unwrap()
}

fn keys(events: &[ClaimedQuotaEvent]) -> Vec<&str> {
    events.iter().map(|event| event.key.as_str()).collect()
}

#[test]
fn an_event_is_recorded_once_and_claimed_by_one_caller_at_a_time() {
    on_each_store(|location| {
        let (mut one, mut other) = (location.open(), location.open());
        assert_eq!(one.record_quota_events(&[], 0).unwrap(), 0);
        assert_eq!(claim(&mut one, 999, 9), []);
        let events = [due_event("b", 101), due_event("a", 100), due_event("c", 102)];
        for store in [&mut one, &mut other] {
            assert_eq!(store.record_quota_events(&events, 0).unwrap(), 3);
            assert_eq!(store.count_pending_quota_events().unwrap(), 3);
        }
        assert_eq!(claim(&mut one, 99, 9), []);
        let first = claim(&mut one, 101, 9);
        assert_eq!(keys(&first), ["a", "b"], "those due longest first, and not c");
        let ClaimedQuotaEvent { account, body, created_at, attempts, .. } = &first[0];
        let expected = quota_event("a", month());
        assert_eq!((account, body), (&expected.account, &expected.body));
        assert_eq!((*created_at, *attempts), (100, 1));
        assert_eq!(keys(&claim(&mut other, 160, 1)), ["c"]);
        assert_eq!(claim(&mut other, 160, 9), []);
        // The claim of the first caller has ended, as if it was killed.
        let second = claim(&mut other, 161, 9);
        assert_eq!(keys(&second), ["a", "b"]);
        assert_eq!(second[0].attempts, 2);
        for outcome in [QuotaEventOutcome::Delivered(170), QuotaEventOutcome::DueAgain(170)] {
            assert!(!one.finish_quota_event(&first[0], outcome).unwrap(), "the claim has passed");
        }
        assert!(other.finish_quota_event(&second[0], QuotaEventOutcome::Delivered(170)).unwrap());
        let again = other.finish_quota_event(&second[0], QuotaEventOutcome::DueAgain(171));
        assert!(!again.unwrap(), "a delivered event stays delivered");
        assert_eq!(one.count_pending_quota_events().unwrap(), 2);
    });
}

#[test]
fn a_finished_event_is_not_recorded_again_until_it_is_forgotten() {
    on_each_store(|location| {
        let mut store = location.open();
        let events = [due_event("a", 100), due_event("b", 100)];
        store.record_quota_events(&events, 0).unwrap();
        let claimed = claim(&mut store, 100, 9);
        store.finish_quota_event(&claimed[0], QuotaEventOutcome::Delivered(200)).unwrap();
        store.finish_quota_event(&claimed[1], QuotaEventOutcome::GivenUp(300)).unwrap();
        let rows = store.quota_events_to_copy(month()).unwrap();
        let states: Vec<QuotaEventState> = rows.iter().map(|row| row.state).collect();
        assert_eq!(states, [QuotaEventState::Delivered(200), QuotaEventState::GivenUp(300)]);
        assert!(rows.iter().all(|row| row.account.is_empty() && row.body.is_empty()));
        for forgotten_before in [0, 200] {
            assert_eq!(store.record_quota_events(&events, forgotten_before).unwrap(), 2);
            assert_eq!(claim(&mut store, 10_000, 9), []);
        }
        // A new event deletes the old ones, and each of them may then be recorded again.
        let more = [due_event("c", 100)];
        assert_eq!(store.record_quota_events(&more, 201).unwrap(), 1);
        assert_eq!(store.record_quota_events(&events, 201).unwrap(), 2);
        assert_eq!(keys(&claim(&mut store, 10_000, 9)), ["a", "c"]);
    });
}

#[test]
fn a_failed_event_is_due_again_later_and_keeps_its_attempts() {
    on_each_store(|location| {
        let mut store = location.open();
        store.record_quota_events(&[due_event("a", 100)], 0).unwrap();
        let mut now = 100;
        for attempt in 1..=12 {
            let claimed = claim(&mut store, now, 9);
            assert_eq!(claimed[0].attempts, attempt);
            assert_eq!(claimed[0].body, quota_event("a", month()).body);
            let outcome = QuotaEventOutcome::DueAgain(now + 10);
            assert!(store.finish_quota_event(&claimed[0], outcome).unwrap());
            assert_eq!(claim(&mut store, now + 9, 9), []);
            now += 10;
        }
        // A clock was ahead when the next attempt was planned.
        let claimed = claim(&mut store, now, 9);
        store.finish_quota_event(&claimed[0], QuotaEventOutcome::DueAgain(now + 7_201)).unwrap();
        assert_eq!(keys(&claim(&mut store, now, 9)), ["a"]);
        assert_eq!(claim(&mut store, now, 9), []);
    });
}

#[test]
fn an_event_that_cannot_be_read_holds_no_other_up() {
    let columns = ["attempts = 'many'", "account = x'ff'", "created_at = 'soon'", "body = x'ff'"];
    on_each_store(|location| {
        let is_file = matches!(location, TestStore::File(_));
        let mut store = location.open();
        for (at, damage) in
            if is_file { &columns[..] } else { &["'nonsense'", "'p 0 \\255'"] }.iter().enumerate()
        {
            let names = [format!("a{at}"), format!("b{at}")];
            let events = [due_event(&names[0], 100), due_event(&names[1], 101)];
            store.record_quota_events(&events, 0).unwrap();
            match is_file {
                true => location.run_sql(&format!(
                    "UPDATE quota_event SET {damage} WHERE key = '{}'",
                    names[0]
                )),
                false => location.set_field("riskgate:{webhook}:events", &names[0], damage),
            }
            let claimed = claim(&mut store, 200, 9);
            assert_eq!(keys(&claimed), [&names[1]], "{damage}");
            let delivered = QuotaEventOutcome::Delivered(170);
            assert!(store.finish_quota_event(&claimed[0], delivered).unwrap());
        }
    });
}

#[test]
fn a_full_store_takes_no_further_events_until_some_are_finished() {
    on_each_store(|location| {
        let mut store = location.open();
        let event = |n: usize| due_event(&format!("{n:05}"), 100);
        let events: Vec<NewQuotaEvent> = (0..MAX_PENDING_QUOTA_EVENTS + 3).map(event).collect();
        for chunk in events[..MAX_PENDING_QUOTA_EVENTS].chunks(500) {
            assert_eq!(store.record_quota_events(chunk, 0).unwrap(), chunk.len());
        }
        let (known, new) = events.split_at(MAX_PENDING_QUOTA_EVENTS);
        let mixed = [&known[..2], &new[..1], &known[2..3]].concat();
        assert_eq!(store.record_quota_events(&mixed, 0).unwrap(), 2, "up to the first new one");
        let claimed = claim(&mut store, 100, 2);
        for event in &claimed {
            store.finish_quota_event(event, QuotaEventOutcome::Delivered(100)).unwrap();
        }
        assert_eq!(store.record_quota_events(new, 0).unwrap(), 2);
        let pending = store.count_pending_quota_events().unwrap();
        assert_eq!(pending, MAX_PENDING_QUOTA_EVENTS as u64);
    });
}

#[test]
fn the_repair_of_the_month_deletes_the_events_of_later_months() {
    on_each_store(|location| {
        let mut store = location.open();
        store.mark_as_store(&TESTER).unwrap();
        let later = Month::from_number(1_201).unwrap();
        let events = [quota_event("now", month()), quota_event("later", later)];
        store.record_quota_events(&events, 0).unwrap();
        store.repair_month(&TESTER, month()).unwrap();
        assert_eq!(store.count_pending_quota_events().unwrap(), 1);
        assert_eq!(keys(&claim(&mut store, 100, 9)), ["now"]);
        assert_eq!(store.record_quota_events(&events, 0).unwrap(), 2);
        assert_eq!(keys(&claim(&mut store, 100, 9)), ["later"], "once that month begins");
    });
}
