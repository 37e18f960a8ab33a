//! The cost of finding a key, compared with the SHA-256 of its text. Each bench asserts its result.

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use riskgate::gate::admission::{PresentedKey, authenticate_client};
use riskgate::keys::{KeyRing, Plans, Token};
use riskgate::quota::{FailurePolicy, Ledger, LedgerOptions};
use riskgate::store::{KeyRow, MonthlyLimit, RedisOptions, RingVersion, Store, StoreUrl};
use riskgate::support::serving_flag::ServingFlag;

/// 2026-11-21.
const NOW_UNIX_SECONDS: i64 = 1_795_219_200;

fn start_ledger(folder: &tempfile::TempDir) -> Ledger {
    let path = folder.path().join("store.db");
    let url = StoreUrl::Sqlite(path);
    let deadline = Duration::from_secs(5);
    let open = || Store::open(&url, &RedisOptions::default(), deadline).expect("a store");
    let options = LedgerOptions {
        store_deadline: deadline,
        on_failure: FailurePolicy::Closed,
        max_unsettled: 0,
        serving: ServingFlag::new_serving(),
    };
    Ledger::start(open(), open(), options, NOW_UNIX_SECONDS).expect("a ledger")
}

fn bench_key_lookup(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = start_ledger(&folder);
    let mut tokens = Vec::new();
    let keys = (0..10_000).map(|n| {
        let token = Token::generate("rg_").expect("a key");
        let digest = token.sha256();
        tokens.push(format!("Bearer {}", token.expose_text()).into_bytes());
        KeyRow {
            id: format!("key-{n}"),
            account: format!("account-{}", n % 100),
            label: None,
            digest,
            origins: Vec::new(),
            require_origin: false,
            created_at: NOW_UNIX_SECONDS,
            expires_at: None,
            revoked_at: None,
        }
    });
    let rows = riskgate::store::RingRows {
        ring_version: RingVersion { version: 1, ..RingVersion::default() },
        keys: keys.collect(),
        ..Default::default()
    };
    let plans = Plans::from([("free".to_owned(), MonthlyLimit::Calls(100))]);
    let ring = Arc::new(KeyRing::build(&rows, &[], &plans, &ledger));

    let mut group = c.benchmark_group("key of 10,000");
    group.throughput(Throughput::Elements(1));
    let mut token_cycle = tokens.iter().cycle();
    group.bench_function("baseline: SHA-256 of the token", |b| {
        b.iter(|| riskgate::keys::sha256(token_cycle.next().expect("a token")));
    });
    let present = |value| PresentedKey::read_bearer(std::iter::once(value));
    let mut token_cycle = tokens.iter().cycle();
    group.bench_function("known", |b| {
        b.iter(|| {
            let token = token_cycle.next().expect("a token").as_slice();
            assert!(authenticate_client(&ring, present(token), NOW_UNIX_SECONDS).is_ok());
        });
    });
    group.bench_function("unknown", |b| {
        let token = b"Bearer rg_00000000000000000000000000000000".as_slice();
        b.iter(|| assert!(authenticate_client(&ring, present(token), NOW_UNIX_SECONDS).is_err()));
    });
    group.finish();
}

criterion_group!(benches, bench_key_lookup);
criterion_main!(benches);
