use super::*;
use crate::store::{RedisOptions, StoreUrl};

fn stored(mark: &str, confirmation: u64) -> Option<StoredIdMark> {
    let confirmation = Some(confirmation.to_string());
    Some(StoredIdMark { mark: mark.to_owned(), confirmation })
}

#[test]
fn a_mark_that_nobody_confirms_is_replaced_by_a_node_that_lives() {
    let (mut keeper, start) = (IdMarkKeeper::default(), Instant::now());
    let mut step = |stored: Option<StoredIdMark>, seconds: u64| {
        keeper.decide_step(stored, "own", start + Duration::from_secs(seconds))
    };
    assert_eq!(step(None, 0), MarkStep::Write { replaces_other: false });
    assert_eq!(step(stored("own", 1), 1), MarkStep::Keep);
    // Another node lives: it confirms its mark.
    for seconds in (10..200).step_by(10) {
        let confirmed = stored("other", seconds / 20);
        assert_eq!(step(confirmed, seconds), MarkStep::Differs, "{seconds}");
    }
    // It ended after 190 s.
    for seconds in (190..240).step_by(10).chain([239]) {
        assert_eq!(step(stored("other", 9), seconds), MarkStep::Differs, "{seconds}");
    }
    assert_eq!(step(stored("other", 9), 240), MarkStep::Write { replaces_other: true });
}

#[test]
fn an_outage_of_the_store_does_not_count_as_time_without_a_confirmation() {
    let (mut keeper, start) = (IdMarkKeeper::default(), Instant::now());
    let mut step = |stored: Option<StoredIdMark>, seconds: u64| {
        keeper.decide_step(stored, "own", start + Duration::from_secs(seconds))
    };
    assert_eq!(step(stored("own", 1), 0), MarkStep::Keep);
    assert_eq!(step(stored("other", 1), 1), MarkStep::Differs);
    // Nobody reached the store meanwhile.
    for seconds in (100..160).step_by(15) {
        assert_eq!(step(stored("other", 1), seconds), MarkStep::Differs, "{seconds}");
    }
    assert_eq!(step(stored("other", 1), 160), MarkStep::Write { replaces_other: true });
}

#[test]
fn a_node_puts_its_mark_back_into_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let url = StoreUrl::Sqlite(folder.path().join("riskgate.db"));
    let mut store = Store::open(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap();
    let (mut living, mut gone) = (IdMarkKeeper::default(), IdMarkKeeper::default());
    let start = Instant::now();
    let mut compare = |keeper: &mut IdMarkKeeper, mark: &str, seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        let problem = keeper.compare_and_write(&mut store, mark, now).unwrap();
        (problem.is_some(), store.read_inbox_id_mark().unwrap().unwrap().mark)
    };
    assert_eq!(compare(&mut living, "living", 0), (false, "living".to_owned()));
    assert_eq!(compare(&mut gone, "gone", 1), (false, "gone".to_owned()));
    assert_eq!(compare(&mut living, "living", 2), (true, "gone".to_owned()));
    assert_eq!(compare(&mut gone, "gone", 16), (false, "gone".to_owned()));
    assert_eq!(compare(&mut living, "living", 17), (true, "gone".to_owned()));
    for seconds in [31, 46, 61, 76] {
        assert_eq!(compare(&mut living, "living", seconds), (true, "gone".to_owned()));
    }
    assert_eq!(compare(&mut living, "living", 77), (false, "living".to_owned()));
}

#[test]
fn one_of_all_nodes_with_the_mark_confirms_it() {
    let (mut keeper, start) = (IdMarkKeeper::default(), Instant::now());
    let mut step = |confirmation: u64, seconds: u64| {
        keeper.decide_step(stored("own", confirmation), "own", start + Duration::from_secs(seconds))
    };
    assert_eq!(step(1, 0), MarkStep::Keep);
    assert_eq!(step(1, 14), MarkStep::Keep);
    assert_eq!(step(1, 15), MarkStep::Write { replaces_other: false });
    // Another node was faster.
    assert_eq!(step(2, 16), MarkStep::Keep);
    assert_eq!(step(2, 30), MarkStep::Keep);
}

#[test]
fn a_node_that_starts_replaces_another_mark_at_once() {
    let mut keeper = IdMarkKeeper::default();
    let step = keeper.decide_step(stored("other", 1), "own", Instant::now());
    assert_eq!(step, MarkStep::Write { replaces_other: true });
}
