use super::*;
use crate::store::{RedisOptions, StoreUrl};
use std::path::Path;

fn fixed_unix_now() -> i64 {
    1_790_000_000
}

fn open_store(path: &Path) -> Store {
    let url = StoreUrl::Sqlite(path.to_owned());
    Store::open(&url, &RedisOptions::default(), Duration::from_secs(5)).unwrap()
}

fn start_top_list(path: &Path, options: TopDomainsOptions) -> TopList {
    let store = open_store(path);
    let judge: FlaggedVerdictFn = Box::new(|domain: &str| {
        let score = Score::new(100)?;
        (domain != "now-safe.com").then_some((Reason::Disposable, score))
    });
    let seed = || vec!["first.com".to_owned(), "second.com".to_owned(), "now-safe.com".to_owned()];
    TopList::start(store, options, judge, Box::new(seed), Box::new(fixed_unix_now)).unwrap()
}

fn listed_domains(top: &TopList) -> Vec<String> {
    let body: serde_json::Value = serde_json::from_slice(&top.response_body()).unwrap();
    let domains = body["domains"].as_array().unwrap();
    assert_eq!(body["count"], domains.len());
    domains.iter().map(|entry| entry["domain"].as_str().unwrap().to_owned()).collect()
}

const OPTIONS: TopDomainsOptions =
    TopDomainsOptions { limit: 100, min_accounts: 1, half_life_seconds: 604_800.0 };

#[test]
fn the_seed_list_leads_until_a_domain_has_a_higher_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let top_list = start_top_list(&path, OPTIONS);
    assert_eq!(listed_domains(&top_list), ["first.com", "second.com"]);
    top_list.count_lookup("third.com", "acme", fixed_unix_now());
    top_list.close();
    let top_list = start_top_list(&path, OPTIONS);
    assert_eq!(listed_domains(&top_list), ["first.com", "second.com", "third.com"]);
    for account in 0..130 {
        top_list.count_lookup("third.com", &format!("account-{account}"), fixed_unix_now());
    }
    top_list.close();
    let top_list = start_top_list(&path, OPTIONS);
    assert_eq!(listed_domains(&top_list), ["third.com", "first.com", "second.com"]);
}

#[test]
fn a_name_that_nobody_asked_about_has_no_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let top_list = start_top_list(&path, OPTIONS);
    for account in ["acme", "other", "acme"] {
        top_list.count_lookup("second.com", account, fixed_unix_now());
    }
    top_list.close();
    let entries = start_top_list(&path, OPTIONS).entries();
    let shown: Vec<serde_json::Value> = entries.iter().map(TopEntry::to_json_with_count).collect();
    let entry = |domain: &str, count: Option<f64>| json!({ "domain": domain, "risk_score": 100, "reason": "disposable", "count": count });
    assert_eq!(shown, [entry("first.com", None), entry("second.com", Some(2.0))]);
}

#[test]
fn an_account_counts_once_for_each_row_and_day_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    for _ in 0..3 {
        let top_list = start_top_list(&path, OPTIONS);
        for _ in 0..200 {
            top_list.count_lookup("third.com", "acme", fixed_unix_now());
        }
        top_list.close();
    }
    let mut store = open_store(&path);
    let (rows, marks) =
        store.top_rows_and_dedup_hashes(fixed_unix_now().div_euclid(SECONDS_PER_DAY)).unwrap();
    assert_eq!((rows.len(), marks.len()), (1, 1));
    assert!(rows[0].count > 0.99 && rows[0].count < 1.01, "{}", rows[0].count);
}

#[test]
fn a_row_is_not_listed_before_min_accounts_have_looked_it_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let top_list = start_top_list(&path, TopDomainsOptions { min_accounts: 2, ..OPTIONS });
    top_list.count_lookup("third.com", "acme", fixed_unix_now());
    top_list.close();
    let top_list = start_top_list(&path, TopDomainsOptions { min_accounts: 2, ..OPTIONS });
    assert_eq!(listed_domains(&top_list), ["first.com", "second.com"]);
    top_list.count_lookup("third.com", "other", fixed_unix_now());
    top_list.close();
    assert_eq!(
        listed_domains(&start_top_list(&path, TopDomainsOptions { min_accounts: 2, ..OPTIONS }))
            .len(),
        3
    );
}

#[test]
fn counts_unsaved_at_midnight_or_in_an_outage_are_saved_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let top_list = start_top_list(&path, OPTIONS);
    // This transaction blocks all other writers.
    let outage = rusqlite::Connection::open(&path).unwrap();
    outage.execute_batch("BEGIN IMMEDIATE").unwrap();
    let midnight = (fixed_unix_now() / SECONDS_PER_DAY + 1) * SECONDS_PER_DAY;
    for (domain, at) in [
        ("before.com", midnight - 1),
        ("both.com", midnight - 1),
        ("both.com", midnight),
        ("after.com", midnight),
        // Two requests may read the clock in one order and be counted in the other.
        ("late.com", midnight - 1),
        ("later.com", midnight + SECONDS_PER_DAY),
    ] {
        top_list.count_lookup(domain, "acme", at);
    }
    outage.execute_batch("ROLLBACK").unwrap();
    top_list.close();
    assert_eq!(top_list.dropped_lookups(), 0);
    let rows = open_store(&path).top_rows().unwrap();
    let count = |domain: &str| {
        let row = rows.iter().find(|row| row.domain == domain);
        row.map_or(0.0, |row| row.count).round()
    };
    let counts = ["before.com", "both.com", "after.com", "late.com", "later.com"].map(count);
    assert_eq!(counts, [1.0, 2.0, 1.0, 1.0, 1.0]);
}

/// Creates a worker without its thread.
fn worker_without_thread(path: &Path) -> Worker {
    Worker {
        store: Store::open(
            &StoreUrl::Sqlite(path.to_owned()),
            &RedisOptions::default(),
            Duration::from_millis(20),
        )
        .unwrap(),
        flagged_verdict_of: Box::new(|_| None),
        seed_list: Box::new(Vec::new),
        clock: Box::new(fixed_unix_now),
        rows: HashMap::new(),
        shared: Arc::new(Shared::new(OPTIONS)),
        unsaved_by_day: BTreeMap::new(),
        unsaved_hashes: 0,
        stored_domains: HashSet::new(),
        evicted: BTreeSet::new(),
        last_read_attempt: Instant::now(),
    }
}

impl Worker {
    fn count_generated_domains(&mut self, names: std::ops::Range<usize>, at: i64) {
        for name in names {
            let domain = format!("name-{name}.test");
            self.count_queued_lookup(FlaggedLookup {
                domain,
                account_hash: 1,
                dedup_hash: name as u64,
                looked_up_at: at,
            });
        }
    }
}

#[test]
fn rows_evicted_in_an_outage_are_remembered_only_if_the_store_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut worker = worker_without_thread(&path);
    let outage = rusqlite::Connection::open(&path).unwrap();
    outage.execute_batch("BEGIN IMMEDIATE").unwrap();
    worker.count_generated_domains(0..MAX_COUNTED_ROWS + 200, fixed_unix_now());
    assert!(!worker.save_counts());
    assert_eq!(
        (worker.rows.len(), worker.evicted.len()),
        (MAX_COUNTED_ROWS, 0),
        "the store has no row"
    );
    outage.execute_batch("ROLLBACK").unwrap();
    assert!(worker.save_counts());
    assert_eq!(worker.store.top_rows().unwrap().len(), MAX_COUNTED_ROWS);
    // An evicted row that the store still has doesn't return when the store is read, and is removed
    // from the store once.
    outage.execute_batch("BEGIN IMMEDIATE").unwrap();
    for round in 1..=3 {
        worker.count_generated_domains(
            MAX_COUNTED_ROWS * 2..MAX_COUNTED_ROWS * 2 + 100 * round,
            fixed_unix_now() + 1,
        );
        worker.reload_saved_rows();
        assert_eq!(
            (worker.rows.len(), worker.evicted.len()),
            (MAX_COUNTED_ROWS, 100 * round),
            "{round}"
        );
    }
    outage.execute_batch("ROLLBACK").unwrap();
    assert!(worker.save_counts());
    assert!(worker.evicted.is_empty());
    assert_eq!(worker.store.top_rows().unwrap().len(), MAX_COUNTED_ROWS);
}
