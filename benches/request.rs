//! Measures a request without a network. Times its parts, each beside a baseline, and the whole
//! decision, from the bytes of a request to the bytes of its response.
//!
//! Run `cargo bench --bench request`; add `-- --quick` for a short run. Each bench asserts its
//! result.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use riskgate::downstream::fast_path::{BatchEnd, FastPath, NextAction};
use riskgate::gate::admission::{PresentedKey, authenticate_client};
use riskgate::keys::{Token, format_key_hash};
use riskgate::message::request_head::{RequestLimits, parse_request_head};
use riskgate::message::request_id::RequestId;
use riskgate::message::response::{CommonHeaders, RenderOptions, Reply};
use riskgate::model::domain::Domain;
use riskgate::model::email::EmailAddress;
use riskgate::model::origin::Origin;
use riskgate::quota::Allowance;
use riskgate::screening::{BodyHeaders, FieldPath, ReceivedBody, read_field_values};
use riskgate::{Gate, Mount};

const LIMITS: RequestLimits = RequestLimits {
    header_bytes: 16_384,
    header_fields: 64,
    target_bytes: 2_048,
    body_bytes: 1 << 20,
    authz_path: None,
};
/// The accounts that send requests in turn, so that none exhausts its leased calls.
const ACCOUNT_COUNT: usize = 500;
/// The requests of one account before all leases are refilled.
const REQUESTS_PER_ACCOUNT: usize = 3;

/// Counts the allocations of each thread.
struct CountingAllocator;

thread_local! {
    static ALLOCATION_COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed unchanged to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATION_COUNT.set(ALLOCATION_COUNT.get() + 1);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn build_request(key: &str, domain: &str) -> Vec<u8> {
    format!(
        "GET /v1/public/domain/{domain} HTTP/1.1\r\nHost: gate.example.com\r\n\
         Authorization: Bearer {key}\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n\r\n"
    )
    .into_bytes()
}

fn bench_request_parts(c: &mut Criterion) {
    let bytes = build_request("rg_0123456789abcdefghijklmnopqrstuv", "mail.example.com");
    let mut group = c.benchmark_group("header");
    group.throughput(Throughput::Elements(1));
    group.bench_function("baseline: httparse", |b| {
        b.iter(|| {
            let mut fields = [httparse::EMPTY_HEADER; 64];
            let mut request = httparse::Request::new(&mut fields);
            assert!(request.parse(black_box(&bytes)).is_ok_and(|status| status.is_complete()));
        });
    });
    group.bench_function("read and held to its grammar", |b| {
        b.iter(|| {
            let head = parse_request_head(black_box(&bytes), 0, &LIMITS);
            assert!(head.is_ok_and(|head| head.is_some_and(|head| head.may_take_fast_path())));
        });
    });
    group.finish();

    let mut group = c.benchmark_group("domain");
    group.bench_function("baseline: lower case", |b| {
        b.iter(|| black_box("mail.example.com").to_ascii_lowercase());
    });
    for (name, segment, domain) in [
        ("plain", "mail.example.com", "mail.example.com"),
        ("capitals", "Mail.Example.COM", "mail.example.com"),
        ("international", "b%C3%BCcher.example", "xn--bcher-kva.example"),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let parsed = Domain::from_path_segment(black_box(segment.as_bytes()));
                assert!(parsed.is_ok_and(|parsed| parsed.as_str() == domain));
            });
        });
    }
    group.finish();

    let mut group = c.benchmark_group("origin");
    group.bench_function("baseline: split", |b| {
        b.iter(|| assert!(black_box("https://app.example.com:8443").split_once("://").is_some()));
    });
    group.bench_function("parsed", |b| {
        b.iter(|| assert!(Origin::parse(black_box("https://app.example.com:8443")).is_ok()));
    });
    group.finish();
    bench_response_rendering(c);
}

fn bench_response_rendering(c: &mut Criterion) {
    const RESPONSE_BODY: &str = r#"{"domain":"mail.example.com","risk_score":50}"#;
    let allowance = Allowance { limit: 10_000, remaining: 1_234, reset_in_seconds: 86_400 };
    let id = RequestId::parse(b"0123456789abcdef0123456789abcdef").expect("an id");
    let common =
        CommonHeaders { request_id: id, allowance: Some(allowance), ..CommonHeaders::default() };
    let date = "Sat, 21 Nov 2026 12:00:00 GMT";
    let mut group = c.benchmark_group("reply");
    let mut out = Vec::with_capacity(1024);
    group.bench_function("baseline: format", |b| {
        let mut text = String::with_capacity(1024);
        b.iter(|| {
            text.clear();
            let Allowance { limit, remaining, reset_in_seconds: reset_in } = black_box(allowance);
            write!(
                text,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Cache-Control: no-store\r\nx-request-id: {}\r\n\
                 ratelimit-policy: \"monthly\";q={limit}\r\n\
                 ratelimit: \"monthly\";r={remaining};t={reset_in}\r\nDate: {}\r\n\
                 Connection: keep-alive\r\n\r\n{RESPONSE_BODY}",
                RESPONSE_BODY.len(),
                common.request_id.as_str(),
                date,
            )
            .expect("memory");
        });
        out = text.clone().into_bytes();
    });
    let expected = out.clone();
    group.bench_function("rendered", |b| {
        let reply = Reply::of_json(Bytes::from_static(RESPONSE_BODY.as_bytes()));
        b.iter(|| {
            out.clear();
            reply.append_as_http1(
                black_box(&common),
                date.as_bytes(),
                RenderOptions::default(),
                &mut out,
            );
        });
        assert!(expected.is_empty() || out == expected, "{}", String::from_utf8_lossy(&out));
    });
    group.finish();
}

/// Times what screening adds to a form: its address is read, parsed and looked up.
fn bench_form(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_mount, gate, _) = create_gate_with_keys(folder.path());
    let table = gate.state().table.snapshot();
    let fields = [FieldPath::parse("email").expect("a name")];
    let form =
        b"email=ada.lovelace%40mail.yopmail.com&password=a-long-passphrase&terms=on&plan=free&n=1";
    let headers =
        BodyHeaders { content_type: Some(b"application/x-www-form-urlencoded"), is_encoded: false };
    let mut group = c.benchmark_group("form");
    group.throughput(Throughput::Elements(1));
    group.bench_function("baseline: the end of its field", |b| {
        b.iter(|| assert!(black_box(form).iter().position(|byte| *byte == b'&').is_some()));
    });
    group.bench_function("read, parsed and looked up", |b| {
        b.iter(|| {
            let body = ReceivedBody { bytes: black_box(form), is_whole: true };
            let found = read_field_values(headers, b"", body, &fields).expect("a value");
            let address = EmailAddress::parse(&found.values[0]).expect("an address");
            assert!(table.lookup(address.domain(), 0).verdict.score.value() >= 80);
        });
    });
    group.finish();
}

/// Creates a gate like that of `riskgate run` with keys of many accounts. Returns the keys too.
fn create_gate_with_keys(folder: &Path) -> (Mount, Gate, Vec<String>) {
    let (mut file, mut keys) = (String::new(), Vec::new());
    for number in 0..ACCOUNT_COUNT {
        let token = Token::generate("rg_").expect("a key");
        let hash = format_key_hash(token.expose_text());
        let account = format!("account-{number}");
        let key =
            format!("[[key]]\nid = \"k{number}\"\naccount = \"{account}\"\nhash = \"{hash}\"\n");
        file.push_str(&key);
        keys.push(token.expose_text().to_owned());
    }
    std::fs::write(folder.join("keys.toml"), file).expect("a key file");
    let config = format!(
        "[store]\nurl = \"sqlite:{0}/riskgate.db\"\n[keys]\nfile = \"{0}/keys.toml\"\n\
         [log]\naccess = false\n[plans]\nfree = 1000000\n",
        folder.display()
    );
    let path = folder.join("riskgate.toml");
    std::fs::write(&path, config).expect("a config");
    let mount = Mount::from_config_file(path).expect("a gate");
    let gate = mount.gate();
    (mount, gate, keys)
}

fn bench_whole_decision(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_mount, gate, keys) = create_gate_with_keys(folder.path());
    let domains = ["yopmail.com", "mail.yopmail.com", "gmail.com", "unknown-to-all.example"];
    let requests: Vec<Vec<u8>> = keys
        .iter()
        .enumerate()
        .map(|(n, key)| build_request(key, domains[n % domains.len()]))
        .collect();
    let mut fast_path = FastPath::for_plain_connection(gate.clone(), LIMITS);
    let mut out = Vec::with_capacity(64 * 1024);
    let mut answers_ok = |request: &[u8]| {
        out.clear();
        let result = fast_path.answer_requests(black_box(request), &mut out);
        matches!(result, (length, BatchEnd::Next(NextAction::ReadMore)) if length == request.len())
            && out.starts_with(b"HTTP/1.1 200 OK\r\n")
    };
    fill_leases(&gate, &requests);
    // The first round makes the allocations for the top list, which counts an account once a day.
    assert!(requests[..4].iter().all(|request| answers_ok(request)));
    let before = ALLOCATION_COUNT.get();
    assert!(requests[..4].iter().all(|request| answers_ok(request)));
    let allocated = ALLOCATION_COUNT.get() - before;
    println!("four whole decisions: {allocated} allocations");
    assert!(allocated <= 4);
    let mut group = c.benchmark_group("whole decision");
    group.throughput(Throughput::Elements(1)).sample_size(30);
    group.warm_up_time(Duration::from_millis(50)).measurement_time(Duration::from_millis(200));
    group.bench_function("bytes in to bytes out", |b| {
        b.iter_custom(|iterations| {
            // The ledger refills the leases during the pause. The first few requests after a pause
            // would measure cold caches only. Therefore a sample always measures a whole batch, and
            // scales its time to the requested number of iterations.
            std::thread::sleep(Duration::from_millis(60));
            let batch = ACCOUNT_COUNT * REQUESTS_PER_ACCOUNT;
            let started = Instant::now();
            let answered = (0..batch).filter(|n| answers_ok(&requests[n % ACCOUNT_COUNT])).count();
            let elapsed = started.elapsed();
            assert!(answered * 1_000 >= batch * 999, "{answered} of {batch} were answered");
            elapsed.mul_f64(iterations as f64 / batch as f64)
        });
    });
    group.finish();
}

/// Charges one call of each account and waits for the store, so that each account then holds leased
/// calls.
fn fill_leases(gate: &Gate, requests: &[Vec<u8>]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut calls = tokio::task::JoinSet::new();
        for request in requests {
            let state = std::sync::Arc::clone(gate.state());
            let keys = state.keys.snapshot();
            let ring = Option::as_ref(&keys).expect("keys");
            let head =
                parse_request_head(request, 0, &LIMITS).expect("a head").expect("a complete one");
            let now = state.ledger.believed_now();
            let sent = PresentedKey::read_bearer(head.fields.authorization.into_iter());
            let lease = authenticate_client(ring, sent, now).expect("a key").account.lease.clone();
            let month = state.ledger.month_to_charge(now);
            calls.spawn(async move { state.ledger.charge(&lease, month, 1).await.is_ok() });
        }
        while let Some(charged) = calls.join_next().await {
            assert!(charged.expect("an answer"), "a call");
        }
    });
}

criterion_group!(benches, bench_request_parts, bench_form, bench_whole_decision);
criterion_main!(benches);
