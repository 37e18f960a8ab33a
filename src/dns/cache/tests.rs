use super::*;
use crate::model::verdict::VerdictSource;
use crate::support::lock::lock;
use crate::table::{Table, TableLocation};

const NOW: i64 = 1_795_219_200;
const DAY_SECONDS: i64 = 86_400;
const POOL_ADDRESS: &str = "185.7.8.9";

fn table_with_mx_labels() -> Table {
    table_with_free_names("")
}

/// The table, with further free providers.
fn table_with_free_names(further_names: &str) -> Table {
    let folder = tempfile::tempdir().unwrap();
    let list = |file: &str, kind: &str| format!("[[list]]\nfile = \"{file}\"\nkind = \"{kind}\"\n");
    let manifest = list("mx-labels.csv", "mx_label")
        + &list("mx-addresses.csv", "mx_address")
        + &list("free.txt", "free");
    for (file, text) in [
        ("manifest.toml", manifest.as_str()),
        (
            "mx-labels.csv",
            "suffix,label,class\nbad.host,Bad,disposable\ngood.host,Good,professional\n",
        ),
        (
            "mx-addresses.csv",
            &format!("address,label,source,date\n{POOL_ADDRESS},Pool,a test,2026-11-01\n"),
        ),
        ("free.txt", &format!("listed.com\n{further_names}")),
    ] {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    Table::load(&TableLocation::Path(folder.path().to_owned())).unwrap()
}

fn enabled_cache() -> DnsFactCache {
    let cache = DnsFactCache::default();
    cache.enable_or_clear(true);
    cache
}

fn mx_finding(text: &str, ttl_seconds: i64) -> DnsFinding {
    DnsFinding::Mx { mx_value: text.to_owned(), addresses: Vec::new(), ttl_seconds }
}

fn failed_finding() -> DnsFinding {
    DnsFinding::Unknown("SERVFAIL".to_owned())
}

/// Looks up a name in the table and in the cache. Returns the score, and whether a learned fact
/// decided it.
fn look_up_score_and_source(
    cache: &DnsFactCache,
    table: &Table,
    name: &str,
    now: i64,
) -> (u8, bool) {
    let domain = Domain::parse(name).unwrap();
    let found = cache.apply_fact_and_queue_if_due(table.lookup(&domain, now), &domain, now);
    (found.verdict.score.value(), found.verdict_source() == VerdictSource::Dns)
}

/// The next name in the queue, if there is one.
fn pop_queued(cache: &DnsFactCache) -> Option<Arc<str>> {
    lock(&cache.names_to_resolve).queue.pop_front()
}

#[test]
fn a_look_up_queues_a_name_once_and_later_look_ups_use_its_finding() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    for _ in 0..3 {
        assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW), (10, false));
    }
    let name = pop_queued(&cache).unwrap();
    assert_eq!((&*name, pop_queued(&cache)), ("new.com", None), "a name is queued only once");
    look_up_score_and_source(&cache, &table, "new.com", NOW);
    assert_eq!(pop_queued(&cache), None, "the name is being resolved");
    cache.record_finding(&name, mx_finding("mx.bad.host", 600), &table, NOW);
    let learned = cache.take_unsaved_facts(NOW).pop().unwrap();
    assert_eq!((learned.name.as_str(), learned.expires_at), ("new.com", NOW + 600));
    assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW + 1), (85, true));
    assert_eq!(pop_queued(&cache), None);
}

#[test]
fn listed_names_and_a_disabled_cache_queue_nothing() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    look_up_score_and_source(&cache, &table, "listed.com", NOW);
    look_up_score_and_source(&cache, &table, "sub.listed.com", NOW);
    assert_eq!(pop_queued(&cache), None);
    look_up_score_and_source(&cache, &table, "new.com", NOW);
    cache.record_finding(&pop_queued(&cache).unwrap(), mx_finding(".", 600), &table, NOW);
    cache.enable_or_clear(false);
    assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW), (10, false));
    assert_eq!((pop_queued(&cache), cache.entries.len()), (None, 0));
    assert_eq!(cache.known_name_count(), 0);
}

#[test]
fn a_flagging_fact_ends_with_its_ttl_even_without_a_new_answer() {
    let table = table_with_mx_labels();
    for (text, score) in [(".", 95), ("nxdomain", 95), ("parked", 85), ("mx.bad.host", 85)] {
        let cache = enabled_cache();
        let name: Arc<str> = "new.com".into();
        cache.record_finding(&name, mx_finding(text, 600), &table, NOW);
        assert_eq!(
            look_up_score_and_source(&cache, &table, "new.com", NOW + 599),
            (score, true),
            "{text}"
        );
        assert_eq!(
            look_up_score_and_source(&cache, &table, "new.com", NOW + 600),
            (10, false),
            "{text}"
        );
        cache.record_finding(&name, failed_finding(), &table, NOW + 601);
        assert_eq!(
            look_up_score_and_source(&cache, &table, "new.com", NOW + 602),
            (10, false),
            "{text}"
        );
        cache.record_finding(&name, mx_finding("mx.bad.host", 600), &table, NOW + 700);
        assert_eq!(
            look_up_score_and_source(&cache, &table, "new.com", NOW + 701),
            (85, true),
            "{text}"
        );
    }
}

#[test]
fn a_fact_that_flags_nothing_counts_for_a_day_past_its_ttl() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    let name: Arc<str> = "new.com".into();
    cache.record_finding(&name, mx_finding("mx.good.host", 600), &table, NOW);
    assert_eq!(
        look_up_score_and_source(&cache, &table, "new.com", NOW + 599 + DAY_SECONDS),
        (0, true)
    );
    cache.record_finding(&name, failed_finding(), &table, NOW + 599 + DAY_SECONDS);
    assert_eq!(
        look_up_score_and_source(&cache, &table, "new.com", NOW + 600 + DAY_SECONDS),
        (10, false)
    );
}

#[test]
fn a_name_is_queued_again_in_the_last_minute_of_its_ttl_so_that_no_flag_is_interrupted() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    let name: Arc<str> = "new.com".into();
    cache.record_finding(&name, mx_finding(".", 600), &table, NOW);
    look_up_score_and_source(&cache, &table, "new.com", NOW + 539);
    assert_eq!(pop_queued(&cache), None);
    assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW + 540), (95, true));
    assert_eq!(pop_queued(&cache).as_deref(), Some("new.com"));
    cache.record_finding(&name, failed_finding(), &table, NOW + 541);
    assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW + 542), (95, true));
    look_up_score_and_source(&cache, &table, "new.com", NOW + 600);
    assert_eq!(pop_queued(&cache), None, "the next retry is due a minute after the failure");
    look_up_score_and_source(&cache, &table, "new.com", NOW + 601);
    assert_eq!(pop_queued(&cache).as_deref(), Some("new.com"));
}

#[test]
fn a_name_without_an_answer_is_queued_again_after_growing_delays() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    let mut now = NOW;
    for pause in [60, 300, 1_800, 7_200, 7_200] {
        look_up_score_and_source(&cache, &table, "new.com", now);
        let name = pop_queued(&cache).expect("the name is queued again");
        cache.record_finding(&name, failed_finding(), &table, now);
        assert!(cache.take_unsaved_facts(now).is_empty());
        look_up_score_and_source(&cache, &table, "new.com", now + pause - 1);
        assert_eq!(pop_queued(&cache), None, "{pause}");
        now += pause;
    }
    assert_eq!(look_up_score_and_source(&cache, &table, "new.com", now), (10, false));
}

#[test]
fn queue_and_cache_stay_bounded_with_a_million_names() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    for number in 0..1_000_000 {
        look_up_score_and_source(&cache, &table, &format!("name-{number}.com"), NOW);
    }
    assert_eq!(cache.queued_name_count(), MAX_QUEUED_NAMES);
    assert_eq!(lock(&cache.names_to_resolve).queued_or_in_flight.len(), MAX_QUEUED_NAMES);
    assert_eq!(cache.dropped_name_count(), 1_000_000 - MAX_QUEUED_NAMES as u64);
    let host = "h".repeat(60);
    for number in 0..1_000_000 {
        cache.record_finding(
            &format!("name-{number}.com").into(),
            mx_finding(&host, 600),
            &table,
            NOW,
        );
        if number % 1_000 == 0 {
            // A name that is looked up again and again is not evicted.
            look_up_score_and_source(&cache, &table, "name-0.com", NOW);
        }
    }
    assert!(cache.estimated_bytes.load(Ordering::Relaxed) <= MAX_CACHE_BYTES);
    assert!(
        cache.entries.len() < MAX_CACHE_BYTES / ENTRY_OVERHEAD_BYTES
            && cache.entries.len() > 50_000
    );
    assert_eq!(lock(&cache.eviction_order).len(), cache.entries.len());
    let counted: usize = cache.entries.iter().map(|it| it.value().estimated_bytes(it.key())).sum();
    assert_eq!(counted, cache.estimated_bytes.load(Ordering::Relaxed));
    assert!(cache.entries.contains_key("name-0.com"));
    assert!(cache.entries.contains_key("name-999999.com"));
    assert!(!cache.entries.contains_key("name-1.com"));
}

#[test]
fn a_name_whose_query_was_cancelled_can_be_queued_again() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    look_up_score_and_source(&cache, &table, "one.com", NOW);
    look_up_score_and_source(&cache, &table, "two.com", NOW);
    assert_eq!(pop_queued(&cache).as_deref(), Some("one.com"));
    cache.forget_queries_in_flight();
    look_up_score_and_source(&cache, &table, "one.com", NOW);
    look_up_score_and_source(&cache, &table, "two.com", NOW);
    assert_eq!(cache.queued_name_count(), 2);
}

fn finding_at_pool_address(host: &str) -> DnsFinding {
    let addresses = vec![POOL_ADDRESS.parse().unwrap()];
    DnsFinding::Mx { mx_value: host.to_owned(), addresses, ttl_seconds: 600 }
}

#[test]
fn a_listed_address_raises_the_score_until_the_fact_expires() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    cache.update_shared_addresses(&table, NOW);
    cache.record_finding(&"new.com".into(), finding_at_pool_address("mx.new.com"), &table, NOW);
    assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW + 599), (70, true));
    assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW + 600), (10, false));
}

#[test]
fn an_address_that_a_real_name_uses_counts_for_no_name() {
    for (real_name, host) in [("new2.com", "mx.listed.com"), ("new2.com", "_dc-mx.listed.com")] {
        let (cache, table) = (enabled_cache(), table_with_mx_labels());
        cache.update_shared_addresses(&table, NOW);
        cache.record_finding(&"new.com".into(), finding_at_pool_address("mx.new.com"), &table, NOW);
        assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW), (70, true));
        cache.record_finding(&real_name.into(), finding_at_pool_address(host), &table, NOW);
        for name in ["new.com", "new2.com"] {
            let found = look_up_score_and_source(&cache, &table, name, NOW + 1);
            assert_eq!(found, (10, false), "{name} {host}");
        }
    }
}

#[test]
fn after_a_change_of_the_table_no_address_counts_until_its_real_names_are_known() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    cache.update_shared_addresses(&table, NOW);
    for name in ["new.com", "new2.com"] {
        let finding = finding_at_pool_address(&format!("mx.{name}"));
        cache.record_finding(&name.into(), finding, &table, NOW);
    }
    assert_eq!(look_up_score_and_source(&cache, &table, "new.com", NOW), (70, true));
    let other = table_with_free_names("new3.com\n");
    assert_eq!(look_up_score_and_source(&cache, &other, "new.com", NOW), (10, false));
    cache.update_shared_addresses(&other, NOW);
    assert_eq!(look_up_score_and_source(&cache, &other, "new.com", NOW), (70, true));
    let other = table_with_free_names("new2.com\n");
    cache.update_shared_addresses(&other, NOW);
    assert_eq!(look_up_score_and_source(&cache, &other, "new.com", NOW), (10, false));
}

#[test]
fn only_names_with_a_fact_are_counted_as_known() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    let name: Arc<str> = "new.com".into();
    cache.record_finding(&name, failed_finding(), &table, NOW);
    assert_eq!((cache.known_name_count(), cache.entries.len()), (0, 1));
    for finding in [mx_finding(".", 600), mx_finding("parked", 600), failed_finding()] {
        cache.record_finding(&name, finding, &table, NOW);
        assert_eq!((cache.known_name_count(), cache.entries.len()), (1, 1));
    }
}

#[test]
fn the_latest_fact_of_a_name_alone_waits_until_it_expires() {
    let (cache, table) = (enabled_cache(), table_with_mx_labels());
    let learn = |name: &str, host: &str, now| {
        cache.record_finding(&name.into(), mx_finding(host, 600), &table, now);
    };
    let take = |now| -> Vec<(String, String)> {
        let facts = cache.take_unsaved_facts(now).into_iter();
        facts.map(|fact| (fact.name, fact.mx)).collect()
    };
    let fact = |name: &str, host: &str| (name.to_owned(), host.to_owned());
    learn("a.com", "mx.good.host", NOW);
    learn("b.com", "mx.good.host", NOW);
    let not_written = cache.take_unsaved_facts(NOW);
    learn("a.com", "mx.bad.host", NOW + 1);
    cache.put_back_unsaved_facts(not_written);
    // A store that was down has the facts of other nodes since the fact of b.com expired.
    assert_eq!(take(NOW + 600), [fact("a.com", "mx.bad.host")]);
    for number in 0..MAX_UNSAVED_FACTS + 5 {
        learn(&format!("name-{number}.com"), "mx.good.host", NOW);
        learn("name-0.com", "mx.bad.host", NOW);
    }
    let waiting = take(NOW);
    assert_eq!(waiting.len(), MAX_UNSAVED_FACTS);
    assert_eq!(waiting[0], fact("name-0.com", "mx.bad.host"));
}
