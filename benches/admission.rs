//! What admitting one call costs, with the account in hand, beside the bare atomic operation.
//!
//! The store is a real one on disk; the lease is refilled in the background as in the gateway.
//! Each bench asserts what it did.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use riskgate::admission::identify;
use riskgate::keys::{KeyRing, Plans, Token};
use riskgate::quota::{Ledger, LedgerOptions, OnFailure};
use riskgate::store::{KeyRow, LimitRow, Store};

/// 2026-11-21.
const NOW: i64 = 1_795_219_200;

fn ledger(folder: &tempfile::TempDir) -> Ledger {
    let path = folder.path().join("store.db");
    let open = || Store::open(&path, Duration::from_secs(5)).expect("a store");
    let options = LedgerOptions { deadline: Duration::from_secs(5), on_failure: OnFailure::Closed };
    Ledger::start(open(), open(), options, NOW).expect("a ledger")
}

fn charge(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = ledger(&folder);
    let lease = ledger.lease("acme", LimitRow::Unlimited);
    let month = ledger.month(NOW);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(ledger.charge(&lease, month)).expect("a first call");

    let mut group = c.benchmark_group("charge");
    group.throughput(Throughput::Elements(1));
    let bare = AtomicU64::new(u64::MAX);
    group.bench_function("baseline: a bare fetch_update", |b| {
        b.iter(|| bare.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)));
    });
    assert_ne!(bare.load(Ordering::Relaxed), u64::MAX);
    // Spent and given back: the same operation twice, so that the lease never runs out.
    group.bench_function("from the lease, and back", |b| {
        b.iter(|| {
            let spent = ledger.try_charge(&lease, month);
            ledger.give_back(black_box(spent).expect("a call in the lease"));
        });
    });
    group.finish();
    assert_eq!(runtime.block_on(ledger.usage(&lease, month)), Ok(1));
}

fn key(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = ledger(&folder);
    let mut tokens = Vec::new();
    let keys = (0..10_000).map(|n| {
        let token = Token::generate("rg_").expect("a key");
        let digest = token.digest();
        tokens.push(format!("Bearer {}", token.reveal()).into_bytes());
        KeyRow {
            id: format!("key-{n}"),
            account: format!("account-{}", n % 100),
            label: None,
            digest,
            origins: Vec::new(),
            require_origin: false,
            created_at: NOW,
            expires_at: None,
            revoked_at: None,
        }
    });
    let rows = riskgate::store::RingRows {
        store_id: String::new(),
        version: 1,
        keys: keys.collect(),
        accounts: Vec::new(),
    };
    let plans = Plans::from([("free".to_owned(), LimitRow::Calls(100))]);
    let ring = Arc::new(KeyRing::build(&rows, &[], &plans, &ledger).expect("a ring"));

    let mut group = c.benchmark_group("key of 10,000");
    group.throughput(Throughput::Elements(1));
    let mut turn = tokens.iter().cycle();
    group.bench_function("baseline: SHA-256 of the token", |b| {
        b.iter(|| riskgate::keys::digest(turn.next().expect("a token")));
    });
    let mut turn = tokens.iter().cycle();
    group.bench_function("known", |b| {
        b.iter(|| {
            let token = turn.next().expect("a token").as_slice();
            assert!(identify(&ring, std::iter::once(token), NOW).is_ok());
        });
    });
    group.bench_function("unknown", |b| {
        let token = b"Bearer rg_00000000000000000000000000000000".as_slice();
        b.iter(|| assert!(identify(&ring, std::iter::once(token), NOW).is_err()));
    });
    group.finish();
}

criterion_group!(benches, charge, key);
criterion_main!(benches);
