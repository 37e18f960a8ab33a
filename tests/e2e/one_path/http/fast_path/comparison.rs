//! The comparison of both paths over one transport.

use std::time::Duration;

use super::compared_gateway::ComparedGateway;
use super::http1_input::{Http1Input, random_http1_input};
use super::http2_exchange::send_and_read_streams;
use super::http2_input::random_http2_input;
use super::normalization::normalized_responses;
use super::random_requests::KEY;
use super::upstream_script::RETRIED;
use crate::harness::{Stream, wait_until};
use crate::random_numbers::seed_range;

/// How the clients speak to both gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http1,
    Http1OverTls,
    /// Over TLS and without TLS in turn.
    Http2,
}

/// A client that sends as many bytes has a body that is longer than riskgate holds.
const LONG_INPUT_BYTES: usize = 64 * 1024;

/// What one connection to each gateway gave.
struct Outcome {
    /// The normalized responses with the fast path and without.
    responses: [Vec<String>; 2],
    /// The number of requests that the fast path can serve.
    plain: u64,
    /// What the client sent.
    sent: String,
}

impl Transport {
    fn default_seed_count(self) -> u64 {
        match self {
            Transport::Http1 | Transport::Http1OverTls => 400,
            Transport::Http2 => 300,
        }
    }

    fn seeds(self) -> std::ops::Range<u64> {
        seed_range(self.default_seed_count())
    }

    /// Sends the random input of this seed to each gateway on a new connection.
    fn exchange(self, seed: u64, gateways: [&ComparedGateway; 2]) -> Outcome {
        match self {
            Transport::Http1 | Transport::Http1OverTls => {
                let alpn = (self == Transport::Http1OverTls).then_some("http/1.1");
                let input = random_http1_input(seed);
                let responses =
                    gateways.map(|side| send_and_read(side.connect(alpn).as_mut(), &input));
                let sent = String::from_utf8_lossy(&input.bytes).into_owned();
                Outcome { responses, plain: input.plain, sent }
            }
            Transport::Http2 => {
                let alpn = seed.is_multiple_of(2).then_some("h2");
                let input = random_http2_input(seed);
                let responses =
                    gateways.map(|side| send_and_read_streams(side.connect(alpn), &input));
                for side in gateways {
                    // A request whose stream was reset may go on for longer than its connection.
                    wait_until("all requests have ended", || {
                        side.count("riskgate_requests_in_flight") == 0
                    });
                }
                Outcome { responses, plain: input.plain, sent: input.to_string() }
            }
        }
    }
}

/// Sends the bytes with pauses at the cuts, closes the sending side, and reads all responses. The
/// last line says how the connection ended.
fn send_and_read(stream: &mut dyn Stream, sent: &Http1Input) -> Vec<String> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let (mut from, mut has_failed_write) = (0, false);
    for at in sent.cuts.iter().copied().chain([sent.bytes.len()]) {
        // The gateway may already have reset the connection. A read after the failed write then
        // finds only the end of the connection.
        has_failed_write |= stream.write_all(&sent.bytes[from..at]).is_err();
        if at < sent.bytes.len() {
            std::thread::sleep(Duration::from_millis(2));
        }
        from = at;
    }
    stream.shutdown_write();
    let mut answers = Vec::new();
    let end = match stream.read_to_end(&mut answers).map_err(|error| error.kind()) {
        Ok(_) if !has_failed_write => "orderly".to_owned(),
        // Over TLS all of these mean that the gateway has not closed the connection in order.
        Ok(_) | Err(BrokenPipe | ConnectionReset | UnexpectedEof) => "broken".to_owned(),
        Err(other) => format!("{other:?}"),
    };
    let mut responses = normalized_responses(&answers);
    // After a refusal, the gateway discards only so much of a long body. Whether the rest of it
    // meets a closed socket depends on time.
    if sent.bytes.len() < LONG_INPUT_BYTES {
        responses.push(end);
    }
    responses
}

/// Opens the connections of all seeds, and compares everything that both gateways did.
pub fn compare_paths(transport: Transport) {
    let (with, without) = (ComparedGateway::start(true), ComparedGateway::start(false));
    let (mut plain, mut answered) = (0, 0);
    for seed in transport.seeds() {
        let before = with.fast_path_request_count();
        let outcome = transport.exchange(seed, [&with, &without]);
        assert_same_responses(&outcome, &format!("{transport:?}, seed {seed}"));
        plain += outcome.plain;
        answered += (with.fast_path_request_count() - before).min(outcome.plain);
    }
    assert_eq!(without.fast_path_request_count(), 0);
    assert!(plain > 0 && answered * 100 >= plain * 95, "{answered} of {plain} plain requests");
    compare_effects(transport, &with, &without);
}

/// Panics with the first different response only. `shown` names the connection.
fn assert_same_responses(outcome: &Outcome, shown: &str) {
    let [with, without] = &outcome.responses;
    let count = with.len().max(without.len());
    let Some(at) = (0..count).find(|at| with.get(*at) != without.get(*at)) else { return };
    let (with, without) = (with.get(at), without.get(at));
    let sent = &outcome.sent;
    panic!("{shown}, line {at}\n   with: {with:?}\nwithout: {without:?}\n   sent: {sent}");
}

/// Compares the forwarded requests, the log lines, the charged calls and the metrics.
fn compare_effects(transport: Transport, with: &ComparedGateway, without: &ComparedGateway) {
    let forwarded = |side: &ComparedGateway| {
        let mut requests = side.forwarded_requests();
        if transport == Transport::Http2 {
            // A client that resets its stream may prevent the retry, depending on time.
            requests.retain(|request| !request.contains(RETRIED));
            // The streams of a connection are served in any order.
            requests.sort_unstable();
        }
        requests
    };
    assert_same_lines(&forwarded(with), &forwarded(without));
    for side in [with, without] {
        // A line may be written after its request has been counted.
        wait_until("each counted request is logged", || {
            side.sorted_log_lines().len() as u64 == side.count("riskgate_requests_total")
        });
    }
    assert_same_lines(&with.sorted_log_lines(), &without.sorted_log_lines());
    let used = |side: &ComparedGateway| side.gateway.get("/v1/usage", KEY).expect(200).text();
    assert_eq!(used(with), used(without));
    let outcomes = [
        "ok",
        "unauthorized",
        "forbidden",
        "validation_error",
        "bad_request",
        "email_refused",
        "form_unreadable",
    ];
    for metric in ["domain", "top_domains", "check", "upstream", "none"] {
        for outcome in outcomes {
            let count = |side: &ComparedGateway| {
                let labels = [format!("route=\"{metric}\""), format!("outcome=\"{outcome}\"")];
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                side.gateway.sum_of_samples("riskgate_requests_total", &labels)
            };
            assert_eq!(count(with), count(without), "{metric} {outcome}");
        }
    }
}

/// Panics with the first difference only.
#[track_caller]
fn assert_same_lines(one: &[String], other: &[String]) {
    for (one, other) in one.iter().zip(other) {
        assert_eq!(one, other);
    }
    assert_eq!(one.len(), other.len());
}
