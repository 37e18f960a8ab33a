//! Sends requests at a constant rate, even if responses are late, and prints their latencies.
//!
//! Each request has a due time that does not depend on the server, and its latency counts from that
//! time. If a request waits because earlier responses were late, that delay counts too, which
//! avoids coordinated omission. The generator polls the clock and does not sleep. It compares every
//! response body with the right one.
//!
//! It also prints the longest time between two polls: a long time shows that other processes used
//! its core. It sends the requests of the first WARM seconds, but does not count them.
//!
//!     open_loop PORT MIX RATE WARM SECONDS CONNECTIONS

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use riskgate_bench::{ExpectedExchange, read_workload};
use rustix::event::epoll;

/// How long the generator waits for the last responses.
const LAST_RESPONSES_TIMEOUT: Duration = Duration::from_secs(5);

struct Connection {
    stream: TcpStream,
    read_buf: Vec<u8>,
    /// The request in flight, and when it was due.
    pending: Option<(usize, Instant)>,
}

#[derive(Default)]
struct Outcome {
    latencies_us: Vec<u64>,
    longest_stall: Duration,
    wrong_responses: u64,
    wrong_example: String,
}

/// The lengths of the header and of the whole response, once the header is complete.
fn response_lengths(read_buf: &[u8]) -> Option<(usize, usize)> {
    let head = read_buf.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&read_buf[..head]).ok()?;
    let body = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        if is_length { value.trim().parse::<usize>().ok() } else { None }
    })?;
    Some((head, head + body))
}

impl Connection {
    fn open(port: u16) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        stream.set_nonblocking(true).expect("not to block");
        Connection { stream, read_buf: Vec::with_capacity(4096), pending: None }
    }

    fn send_request(&mut self, request_index: usize, due: Instant, request: &[u8]) {
        // A request is far smaller than a socket's buffer.
        let written = self.stream.write(request).expect("room for a request");
        assert_eq!(written, request.len(), "room for a whole request");
        self.pending = Some((request_index, due));
    }

    /// Reads the available bytes. Returns true once the response is complete.
    fn read_response(
        &mut self,
        mix: &[ExpectedExchange],
        from: Instant,
        outcome: &mut Outcome,
    ) -> bool {
        let mut part = [0u8; 4096];
        match self.stream.read(&mut part) {
            Ok(0) => panic!("the server closed a connection"),
            Ok(read) => self.read_buf.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("a connection broke: {error}"),
        }
        let Some((head, whole)) = response_lengths(&self.read_buf) else { return false };
        if self.read_buf.len() < whole {
            return false;
        }
        let (which, due) = self.pending.take().expect("no response without a request");
        if due >= from {
            outcome.latencies_us.push(due.elapsed().as_micros() as u64);
        }
        let is_right = self.read_buf.starts_with(b"HTTP/1.1 200 ")
            && self.read_buf.len() == whole
            && self.read_buf[head..] == *mix[which].expected_body.as_bytes();
        if !is_right {
            outcome.wrong_responses += 1;
            outcome.wrong_example = String::from_utf8_lossy(&self.read_buf).into_owned();
        }
        self.read_buf.clear();
        true
    }
}

/// The load to generate.
struct LoadPlan {
    requests_per_second: f64,
    warm_up_seconds: f64,
    seconds: f64,
    connections: usize,
}

fn generate_load(port: u16, mix: &[ExpectedExchange], plan: &LoadPlan) -> (u64, Outcome) {
    let LoadPlan { requests_per_second: rate, connections, .. } = *plan;
    let requests: Vec<Vec<u8>> = mix.iter().map(ExpectedExchange::to_request_bytes).collect();
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let mut all: Vec<Connection> = (0..connections).map(|_| Connection::open(port)).collect();
    for (at, connection) in all.iter().enumerate() {
        let data = epoll::EventData::new_u64(at as u64);
        epoll::add(&poll, &connection.stream, data, epoll::EventFlags::IN).expect("to be polled");
    }
    let mut idle: VecDeque<usize> = (0..connections).collect();
    let mut outcome = Outcome::default();
    let mut ready = Vec::with_capacity(connections);
    let total = (rate * (plan.warm_up_seconds + plan.seconds)) as u64;
    let begun = Instant::now();
    let from = begun + Duration::from_secs_f64(plan.warm_up_seconds);
    let mut last_poll = from;
    let due = |number: u64| begun + Duration::from_secs_f64(number as f64 / rate);
    let mut sent = 0;
    let mut answered = 0;
    let end = due(total) + LAST_RESPONSES_TIMEOUT;
    while answered < total && Instant::now() < end {
        let now = Instant::now();
        // Polls before `from` do not count.
        outcome.longest_stall = outcome.longest_stall.max(now.saturating_duration_since(last_poll));
        last_poll = now.max(from);
        while sent < total && due(sent) <= now {
            let Some(at) = idle.pop_front() else { break };
            let which = sent as usize % mix.len();
            all[at].send_request(which, due(sent), &requests[which]);
            sent += 1;
        }
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let spare = rustix::buffer::spare_capacity(&mut ready);
        epoll::wait(&poll, spare, Some(&none)).expect("events");
        for event in ready.drain(..) {
            let at = event.data.u64() as usize;
            if all[at].read_response(mix, from, &mut outcome) {
                idle.push_back(at);
                answered += 1;
            }
        }
    }
    // Requests without a response count with the time that they have waited so far.
    let pending = all.iter().filter_map(|connection| connection.pending.map(|(_, due)| due));
    let late: Vec<Instant> =
        pending.chain((sent..total).map(due)).filter(|at| *at >= from).collect();
    outcome.latencies_us.extend(late.iter().map(|due| due.elapsed().as_micros() as u64));
    (late.len() as u64, outcome)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, mix, rate, warm, seconds, connections] = &arguments[..] else {
        panic!("usage: open_loop PORT MIX RATE WARM SECONDS CONNECTIONS")
    };
    let mix = read_workload(Path::new(mix));
    let plan = LoadPlan {
        requests_per_second: rate.parse().expect("a rate"),
        warm_up_seconds: warm.parse().expect("seconds to warm up"),
        seconds: seconds.parse().expect("seconds"),
        connections: connections.parse().expect("a number of connections"),
    };
    let (late, mut outcome) = generate_load(port.parse().expect("a port"), &mix, &plan);
    outcome.latencies_us.sort_unstable();
    let at = |share: f64| {
        let times = &outcome.latencies_us;
        times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1)))
    };
    let at = |share: f64| at(share).copied().unwrap_or(0);
    println!(
        "{{\"answers\":{},\"late\":{late},\"wrong\":{},\"longest_stall\":{},\"p50\":{},\"p99\":{},\
         \"p999\":{}}}",
        outcome.latencies_us.len(),
        outcome.wrong_responses,
        outcome.longest_stall.as_micros(),
        at(0.5),
        at(0.99),
        at(0.999),
    );
    if outcome.wrong_responses > 0 {
        eprintln!("a wrong answer: {}", outcome.wrong_example);
    }
}
