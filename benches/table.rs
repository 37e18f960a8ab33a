//! Measures look-ups in the table and loads of the table, each beside a hash map of strings. In the
//! map, a look-up tries the name and then its parent domains.
//!
//! Each bench first asserts its results, because a fast table with wrong results is worthless. Each
//! name depends on the result before, so that the CPU can't overlap look-ups.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use riskgate::model::domain::{Domain, self_and_parent_offsets};
use riskgate::model::verdict::{Reason, Verdict};
use riskgate::table::{Table, TableLocation};

/// 2026-11-21.
const NOW_UNIX_SECONDS: i64 = 1_795_219_200;
const NAME_COUNT: usize = 65_536;

/// Builds the baseline: a map from each row's name to its own verdict.
fn build_hash_map(table: &Table) -> HashMap<String, Verdict> {
    table.iter_rows().map(|row| (row.name.to_owned(), row.own_answer.verdict)).collect()
}

fn look_up_in_map<'m>(map: &'m HashMap<String, Verdict>, domain: &Domain) -> Option<&'m Verdict> {
    let name = domain.as_str();
    let registrable_at = domain.registrable_start().unwrap_or(0);
    self_and_parent_offsets(name)
        .take_while(|at| *at <= registrable_at)
        .find_map(|at| map.get(&name[at..]))
}

/// Returns disposable names of the table, drawn from its sorted names with a step. The step is a
/// prime, so the names are spread over the whole table.
fn disposable_domains(table: &Table) -> Vec<Domain> {
    let mut names: Vec<&str> = table
        .iter_rows()
        .filter(|row| row.own_answer.verdict.reason == Reason::Disposable)
        .map(|row| row.name)
        .collect();
    names.sort_unstable();
    let step = 104_729;
    (0..NAME_COUNT).filter_map(|n| Domain::parse(names[n * step % names.len()]).ok()).collect()
}

fn bench_lookups(c: &mut Criterion) {
    let table = Table::load(&TableLocation::Bundled).expect("the bundled table");
    let map = build_hash_map(&table);
    let hits = disposable_domains(&table);
    let subdomains: Vec<Domain> = hits
        .iter()
        .filter(|domain| domain.registrable_start() == Some(0))
        .filter(|domain| {
            table.find_row(domain.as_str()).is_some_and(|row| row.answer_below.is_some())
        })
        .map(|domain| Domain::parse(&format!("mail.{domain}")).expect("a subdomain"))
        .collect();
    let misses: Vec<Domain> = (0..NAME_COUNT)
        .map(|n| Domain::parse(&format!("no-such-row-{n}.com")).expect("a domain"))
        .collect();
    for (case, domains, is_listed) in
        [("hit", &hits, true), ("subdomain", &subdomains, true), ("miss", &misses, false)]
    {
        for domain in domains {
            let found = table.lookup(domain, NOW_UNIX_SECONDS);
            assert_eq!(found.verdict.reason == Reason::Disposable, is_listed, "{domain}");
            assert_eq!(found.matched_name_offset.is_some(), is_listed, "{domain}");
            assert_eq!(look_up_in_map(&map, domain).is_some(), is_listed, "{domain}");
        }
        let mut group = c.benchmark_group(format!("lookup/{case}"));
        group.throughput(Throughput::Elements(1));
        let mut at = 0;
        group.bench_function("table", |b| {
            b.iter(|| {
                // The next name depends on the last result, so that the CPU can't overlap look-ups.
                let found = table.lookup(&domains[at % domains.len()], NOW_UNIX_SECONDS);
                at += 1 + black_box(found.verdict.score.value()) as usize / 101;
                found.json_tail().len()
            });
        });
        let mut at = 0;
        group.bench_function("std-hash-map", |b| {
            b.iter(|| {
                let found = look_up_in_map(&map, &domains[at % domains.len()]);
                at += 1 + black_box(found.map_or(0, |v| v.score.value())) as usize / 101;
                found.is_some()
            });
        });
        let mut at = 0;
        group.bench_function("public-suffix-alone", |b| {
            b.iter(|| {
                at += 1;
                black_box(domains[at % domains.len()].registrable_start())
            });
        });
        group.finish();
    }
}

fn bench_loads(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bundled.table");
    let table = Table::load(&TableLocation::Bundled).expect("the bundled table");
    table.write_to(&path).expect("a compiled table");
    let compiled = TableLocation::Path(path);
    for source in [&TableLocation::Bundled, &compiled] {
        let loaded = Table::load(source).expect("a table");
        assert_eq!((loaded.version(), loaded.row_count()), (table.version(), table.row_count()));
    }
    let mut group = c.benchmark_group("load");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.bench_function("lists", |b| {
        b.iter(|| Table::load(&TableLocation::Bundled).map(|t| t.row_count()))
    });
    group.bench_function("compiled", |b| b.iter(|| Table::load(&compiled).map(|t| t.row_count())));
    group.bench_function("std-hash-map", |b| {
        b.iter_batched(|| (), |()| build_hash_map(&table), BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, bench_lookups, bench_loads);
criterion_main!(benches);
