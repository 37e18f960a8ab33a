use super::*;
use crate::model::verdict::VerdictSource;
use crate::table::{Source, Table};

const NOW: i64 = 1_795_219_200;
const DAY: i64 = 86_400;

fn table() -> Table {
    let folder = tempfile::tempdir().unwrap();
    let list = |file: &str, kind: &str| format!("[[list]]\nfile = \"{file}\"\nkind = \"{kind}\"\n");
    let manifest = list("mx-labels.csv", "mx_label") + &list("free.txt", "free");
    for (file, text) in [
        ("manifest.toml", manifest.as_str()),
        (
            "mx-labels.csv",
            "suffix,label,class\nbad.host,Bad,disposable\ngood.host,Good,professional\n",
        ),
        ("free.txt", "listed.com\n"),
    ] {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    Table::load(&Source::Path(folder.path().to_owned())).unwrap()
}

fn on() -> LearnedCache {
    let cache = LearnedCache::default();
    cache.switch(true);
    cache
}

fn mx(text: &str, holds_for: i64) -> DnsFinding {
    DnsFinding::Mx { text: text.to_owned(), holds_for }
}

fn failed() -> DnsFinding {
    DnsFinding::NotKnown("SERVFAIL".to_owned())
}

/// What a look-up says: the score, and whether it came by the DNS.
fn look_up(cache: &LearnedCache, table: &Table, name: &str, now: i64) -> (u8, bool) {
    let domain = Domain::parse(name).unwrap();
    let found = cache.apply_learned(table.lookup(&domain, now), &domain, now);
    (found.verdict.score.value(), found.source() == VerdictSource::Dns)
}

/// The next name in the queue, if there is one.
fn next(cache: &LearnedCache) -> Option<Arc<str>> {
    cache.pending().queue.pop_front()
}

#[test]
fn the_first_look_up_queues_a_name_and_the_second_knows_it() {
    let (cache, table) = (on(), table());
    for _ in 0..3 {
        assert_eq!(look_up(&cache, &table, "new.com", NOW), (10, false));
    }
    let name = next(&cache).unwrap();
    assert_eq!((&*name, next(&cache)), ("new.com", None), "once is enough");
    look_up(&cache, &table, "new.com", NOW);
    assert_eq!(next(&cache), None, "it is being asked");
    let learned = cache.answer(&name, mx("mx.bad.host", 600), NOW).unwrap();
    assert_eq!((learned.name.as_str(), learned.until), ("new.com", NOW + 600));
    assert_eq!(look_up(&cache, &table, "new.com", NOW + 1), (85, true));
    assert_eq!(next(&cache), None);
}

#[test]
fn a_name_in_a_list_is_never_queued_and_nothing_is_while_it_is_off() {
    let (cache, table) = (on(), table());
    look_up(&cache, &table, "listed.com", NOW);
    look_up(&cache, &table, "sub.listed.com", NOW);
    assert_eq!(next(&cache), None);
    look_up(&cache, &table, "new.com", NOW);
    cache.answer(&next(&cache).unwrap(), mx(".", 600), NOW);
    cache.switch(false);
    assert_eq!(look_up(&cache, &table, "new.com", NOW), (10, false));
    assert_eq!((next(&cache), cache.known()), (None, 0));
}

#[test]
fn a_fact_that_flags_a_name_ends_with_its_ttl_whether_a_new_answer_comes_or_not() {
    let table = table();
    for (text, score) in [(".", 95), ("nxdomain", 95), ("parked", 85), ("mx.bad.host", 85)] {
        let cache = on();
        let name: Arc<str> = "new.com".into();
        cache.answer(&name, mx(text, 600), NOW);
        assert_eq!(look_up(&cache, &table, "new.com", NOW + 599), (score, true), "{text}");
        assert_eq!(look_up(&cache, &table, "new.com", NOW + 600), (10, false), "{text}");
        cache.answer(&name, failed(), NOW + 601);
        assert_eq!(look_up(&cache, &table, "new.com", NOW + 602), (10, false), "{text}");
        cache.answer(&name, mx("mx.bad.host", 600), NOW + 700);
        assert_eq!(look_up(&cache, &table, "new.com", NOW + 701), (85, true), "{text}");
    }
}

#[test]
fn a_fact_that_flags_nothing_counts_for_a_day_past_its_ttl() {
    let (cache, table) = (on(), table());
    let name: Arc<str> = "new.com".into();
    cache.answer(&name, mx("mx.good.host", 600), NOW);
    assert_eq!(look_up(&cache, &table, "new.com", NOW + 599 + DAY), (0, true));
    cache.answer(&name, failed(), NOW + 599 + DAY);
    assert_eq!(look_up(&cache, &table, "new.com", NOW + 600 + DAY), (10, false));
}

#[test]
fn a_name_is_queued_again_in_the_last_minute_of_its_ttl_so_that_no_flag_is_interrupted() {
    let (cache, table) = (on(), table());
    let name: Arc<str> = "new.com".into();
    cache.answer(&name, mx(".", 600), NOW);
    look_up(&cache, &table, "new.com", NOW + 539);
    assert_eq!(next(&cache), None);
    assert_eq!(look_up(&cache, &table, "new.com", NOW + 540), (95, true));
    assert_eq!(next(&cache).as_deref(), Some("new.com"));
    cache.answer(&name, failed(), NOW + 541);
    assert_eq!(look_up(&cache, &table, "new.com", NOW + 542), (95, true));
    look_up(&cache, &table, "new.com", NOW + 600);
    assert_eq!(next(&cache), None, "the next retry is due a minute after the failure");
    look_up(&cache, &table, "new.com", NOW + 601);
    assert_eq!(next(&cache).as_deref(), Some("new.com"));
}

#[test]
fn a_name_of_which_nothing_comes_is_tried_again_ever_more_seldom() {
    let (cache, table) = (on(), table());
    let mut now = NOW;
    for pause in [60, 300, 1_800, 7_200, 7_200] {
        look_up(&cache, &table, "new.com", now);
        let name = next(&cache).expect("it is tried");
        assert_eq!(cache.answer(&name, failed(), now), None);
        look_up(&cache, &table, "new.com", now + pause - 1);
        assert_eq!(next(&cache), None, "{pause}");
        now += pause;
    }
    assert_eq!(look_up(&cache, &table, "new.com", now), (10, false));
}

#[test]
fn a_million_names_leave_queue_and_memory_bounded() {
    let (cache, table) = (on(), table());
    for number in 0..1_000_000 {
        look_up(&cache, &table, &format!("name-{number}.com"), NOW);
    }
    assert_eq!(cache.queued(), MAX_QUEUED);
    assert_eq!(cache.pending().names.len(), MAX_QUEUED);
    assert_eq!(cache.dropped(), 1_000_000 - MAX_QUEUED as u64);
    let host = "h".repeat(60);
    for number in 0..1_000_000 {
        cache.answer(&format!("name-{number}.com").into(), mx(&host, 600), NOW);
        if number % 1_000 == 0 {
            // One that is asked for stays, whoever comes.
            look_up(&cache, &table, "name-0.com", NOW);
        }
    }
    assert!(cache.bytes.load(Ordering::Relaxed) <= MAX_BYTES);
    assert!(cache.known() < MAX_BYTES / OVERHEAD && cache.known() > 50_000);
    assert_eq!(cache.order().len(), cache.known());
    let counted: usize = cache.known.iter().map(|it| it.value().cost(it.key())).sum();
    assert_eq!(counted, cache.bytes.load(Ordering::Relaxed));
    assert!(cache.known.contains_key("name-0.com"));
    assert!(cache.known.contains_key("name-999999.com"));
    assert!(!cache.known.contains_key("name-1.com"));
}

#[test]
fn what_was_being_asked_can_be_queued_again() {
    let (cache, table) = (on(), table());
    look_up(&cache, &table, "one.com", NOW);
    look_up(&cache, &table, "two.com", NOW);
    assert_eq!(next(&cache).as_deref(), Some("one.com"));
    cache.forget_asked();
    look_up(&cache, &table, "one.com", NOW);
    look_up(&cache, &table, "two.com", NOW);
    assert_eq!(cache.queued(), 2);
}
