//! Runs a group of cases on one gateway and one upstream server, and checks the five results of
//! each case.
//!
//! Cases run one after the other, so that every forwarded request belongs to the running case. A
//! failed case does not stop the group: the runner reports all failed cases at the end.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::assertions::{self, Placeholders};
use super::case::{Case, ConnectionOutcome};
use crate::harness::{
    CALLS_TO_OBTAIN_LEASE, Connection, Gateway, MockUpstream, ReceivedRequest, Setup, Step, get,
    is_fast_path_the_default, response_bytes,
};

/// Opens a connection from this client address to the gateway at this address.
type ConnectionOpener = dyn Fn(IpAddr, SocketAddr) -> Connection;

pub struct CaseGroup {
    name: &'static str,
    /// Separates the client addresses of this group from those of other groups.
    address_octet: u8,
    settings: fn(Setup) -> Setup,
    /// TOML lines that the key file adds to the key of every case.
    key_settings: &'static str,
    connector: Box<ConnectionOpener>,
}

/// Prefixes that every group has besides the built-in routes.
const ROUTES_TOML: &str = "
[[upstream.route]]
prefix = \"/v1/signup\"
methods = [\"GET\", \"POST\"]

[[upstream.route]]
prefix = \"/open\"
key = false
";

impl CaseGroup {
    pub fn new(name: &'static str, address_octet: u8) -> CaseGroup {
        CaseGroup {
            name,
            address_octet,
            settings: |setup| setup,
            key_settings: "",
            connector: Box::new(Connection::open_from),
        }
    }

    pub fn with_settings(self, settings: fn(Setup) -> Setup) -> CaseGroup {
        CaseGroup { settings, ..self }
    }

    pub fn with_key_settings(self, key: &'static str) -> CaseGroup {
        CaseGroup { key_settings: key, ..self }
    }

    /// Opens the connections of the cases with `open` instead of [`Connection::open_from`].
    pub fn with_connector(
        self,
        open: impl Fn(IpAddr, SocketAddr) -> Connection + 'static,
    ) -> CaseGroup {
        CaseGroup { connector: Box::new(open), ..self }
    }

    /// Runs all cases and panics if any failed.
    pub fn run(&self, cases: Vec<Case>) {
        let (passed, failed) = self.run_cases(cases);
        passed.iter().for_each(|name| println!("case passed: {name}"));
        let failed: String = failed.iter().map(|line| format!("case failed: {line}\n")).collect();
        assert!(failed.is_empty(), "\n{failed}");
    }

    /// The names of the passed cases, and those of the failed cases with their faults.
    pub fn run_cases(&self, cases: Vec<Case>) -> (Vec<String>, Vec<String>) {
        let name = |case: &Case| format!("{}: {}", self.name, case.name);
        let selected = selected_cases();
        let selected =
            |case: &&Case| selected.as_ref().is_none_or(|some| some.contains(&name(case)));
        let cases: Vec<Case> = cases.iter().filter(selected).cloned().collect();
        if cases.is_empty() {
            return Default::default();
        }
        let current: Arc<Mutex<Option<usize>>> = Arc::default();
        let cases = Arc::new(cases);
        let upstream = self.start_upstream(&current, &cases);
        let gateway = self.start_gateway(&upstream, cases.len());
        let (mut passed, mut failed) = (Vec::new(), Vec::new());
        for (at, case) in cases.iter().enumerate() {
            *current.lock().unwrap() = Some(at);
            let running =
                RunningCase { group: self, gateway: &gateway, upstream: &upstream, case_index: at };
            let mut faults = Vec::new();
            let checked = AssertUnwindSafe(|| running.check_case(case, &mut faults));
            if catch_unwind(checked).is_err() {
                faults.push("an unexpected response".to_owned());
            }
            let name = name(case);
            match faults.is_empty() {
                true => passed.push(name),
                false => failed.push(format!("{name} | {}", faults.join("; "))),
            }
        }
        (passed, failed)
    }

    /// Runs the script of the current case; the next client gets a correct response.
    fn start_upstream(
        &self,
        current: &Arc<Mutex<Option<usize>>>,
        cases: &Arc<Vec<Case>>,
    ) -> MockUpstream {
        let (current, cases) = (Arc::clone(current), Arc::clone(cases));
        MockUpstream::with_script(move |seen| {
            let at = *current.lock().unwrap();
            match at.filter(|_| !is_request_of_runner(seen)) {
                Some(at) => (cases[at].script)(seen),
                None => {
                    let correct =
                        response_bytes(200, "Connection: close\r\n", assertions::NEXT_CLIENT_BODY);
                    vec![Step::Send(correct), Step::Close]
                }
            }
        })
    }

    fn start_gateway(&self, upstream: &MockUpstream, cases: usize) -> Gateway {
        let setup = Setup::new().with_upstreams(&[upstream.address]).append_toml(ROUTES_TOML);
        let setup =
            setup.set_text("upstream.deadline", "15s").set_text("listen.header_timeout", "5s");
        let setup = (self.settings)(setup);
        let mut keys = String::new();
        for at in 0..cases {
            let placeholders = self.placeholders_of_case(at, upstream.address);
            for (token, account, more) in [
                ("{key}", "{account}", self.key_settings),
                ("{other}", "{other-account}", self.key_settings),
                ("{long}", "{account}", self.key_settings),
                ("{strict}", "{account}", ORIGIN_REQUIRED_TOML),
                ("{revoked}", "{account}", "revoked = \"2026-01-01T00:00:00Z\"\n"),
                ("{expired}", "{account}", "expires = \"2026-01-01T00:00:00Z\"\n"),
            ] {
                let id = token.trim_matches(['{', '}']);
                let (hash, account) =
                    (sha256_hex(&placeholders.fill(token)), placeholders.fill(account));
                write!(
                    keys,
                    "[[key]]\nid = \"{account}-{id}\"\naccount = \"{account}\"\nplan = \"pro\"\n\
                     hash = \"sha256:{hash}\"\n{more}"
                )
                .unwrap();
            }
        }
        std::fs::write(setup.path("keys.toml"), keys).unwrap();
        let path = setup.path("keys.toml").display().to_string();
        setup.set_text("keys.file", &path).start()
    }

    fn placeholders_of_case(&self, at: usize, server: SocketAddr) -> Placeholders {
        let (group, name) = (self.address_octet, self.name);
        let address = IpAddr::V4(Ipv4Addr::new(127, group, (at / 200) as u8, (at % 200) as u8 + 1));
        let token = |kind: &str| format!("edge.{kind}.{name}.{at:04}");
        Placeholders::new(&[
            ("{account}", format!("{name}-{at}")),
            ("{other-account}", format!("{name}-{at}-other")),
            ("{key}", token("key")),
            ("{other}", token("other")),
            ("{strict}", token("strict")),
            ("{revoked}", token("revoked")),
            ("{expired}", token("expired")),
            ("{unknown}", token("unknown")),
            ("{shouted}", token("key").to_uppercase()),
            ("{long}", format!("{:x<256}", token("long"))),
            ("{address}", address.to_string()),
            ("{server}", server.to_string()),
        ])
    }
}

/// The names of the cases to run, one per line. All cases run if the variable is not set.
fn selected_cases() -> Option<Vec<String>> {
    let names = std::env::var("RISKGATE_TEST_CASES").ok()?;
    Some(names.lines().map(ToOwned::to_owned).collect())
}

/// A key that is restricted to one origin, and refuses requests without an origin.
const ORIGIN_REQUIRED_TOML: &str =
    "origins = [\"https://app.example.com\"]\nrequire_origin = true\n";

fn sha256_hex(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// Returns true for a request of the runner itself, which belongs to no case.
fn is_request_of_runner(seen: &ReceivedRequest) -> bool {
    seen.head.contains("probe-")
}

/// One case while it runs.
struct RunningCase<'g> {
    group: &'g CaseGroup,
    gateway: &'g Gateway,
    upstream: &'g MockUpstream,
    case_index: usize,
}

impl RunningCase<'_> {
    /// Checks everything that the case expects, and adds each difference to `faults`.
    fn check_case(&self, case: &Case, faults: &mut Vec<String>) {
        let placeholders = self.group.placeholders_of_case(self.case_index, self.upstream.address);
        let counted_before =
            ["{key}", "{other}"].map(|key| self.warm_up_account(&placeholders, key));
        let before = self.upstream.request_count();
        let log_start = self.gateway.access_log_length();
        let mut connection = self.open_connection(&placeholders);
        connection.try_send(&placeholders.fill_bytes(&case.request_bytes));
        let mut answers = Vec::new();
        for expected in &case.responses {
            let method = if expected.is_head { "HEAD" } else { "GET" };
            let Some(answer) = connection.read_response_to(method) else { break };
            assertions::check_response(&answer, expected, &placeholders, faults);
            answers.push(answer);
        }
        if answers.len() != case.responses.len() {
            let (received, wanted) = (answers.len(), case.responses.len());
            faults.push(format!("{received} answers, and not {wanted}"));
        }
        let kept = self.probe_month_count(&mut connection, &placeholders, "{key}").is_some();
        match (case.connection_outcome, kept) {
            (ConnectionOutcome::Kept, false) => faults.push("the connection was closed".to_owned()),
            (ConnectionOutcome::Closed, true) => faults.push("the connection was kept".to_owned()),
            (ConnectionOutcome::Kept, true) | (ConnectionOutcome::Closed, false) => {}
        }
        if case.checks_next_client {
            faults.extend(self.check_other_client_after_case(&placeholders));
        }
        let others = if case.counts[1] > 0 { 2 } else { 1 };
        for (at, key) in ["{key}", "{other}"].iter().enumerate().take(others) {
            let counted = self.probe_month_count(
                &mut self.open_connection(&placeholders),
                &placeholders,
                key,
            );
            let counted = counted.map(|counted| counted - counted_before[at]);
            if counted != Some(case.counts[at]) {
                faults.push(format!("counted {counted:?}, and not {} for {key}", case.counts[at]));
            }
        }
        let seen: Vec<ReceivedRequest> = self.upstream.received_requests().split_off(before);
        let seen = seen.into_iter().filter(|seen| !is_request_of_runner(seen)).collect::<Vec<_>>();
        assertions::check_forwarded_requests(
            &seen,
            &case.forwarded,
            &answers,
            &placeholders,
            faults,
        );
        self.check_log_lines(case, &placeholders, log_start, faults);
    }

    /// If the tests use the fast path, makes [`CALLS_TO_OBTAIN_LEASE`] calls, so that the next
    /// calls don't wait for the store. Returns the counted calls: 0 without the fast path.
    fn warm_up_account(&self, placeholders: &Placeholders, key: &str) -> u64 {
        if !is_fast_path_the_default() {
            return 0;
        }
        let id = self.probe_id("warm");
        let call = get("/v1/public/domain/first.test").key(&placeholders.fill(key));
        let call =
            call.with_header("X-Request-Id", &id).with_header("Origin", "https://app.example.com");
        let mut connection = self.open_connection(placeholders);
        (0..CALLS_TO_OBTAIN_LEASE)
            .filter(|_| connection.try_send_request(&call).is_some_and(|a| a.status == 200))
            .count() as u64
    }

    fn open_connection(&self, placeholders: &Placeholders) -> Connection {
        let address = placeholders.fill("{address}").parse().unwrap();
        (self.group.connector)(address, self.gateway.http)
    }

    fn probe_id(&self, what: &str) -> String {
        format!("probe-{what}-{}", self.case_index)
    }

    /// The count of a key, requested on this connection; `None` if the connection is closed.
    fn probe_month_count(
        &self,
        connection: &mut Connection,
        placeholders: &Placeholders,
        key: &str,
    ) -> Option<u64> {
        let id = self.probe_id("usage");
        let usage = get("/v1/usage").key(&placeholders.fill(key)).with_header("X-Request-Id", &id);
        // The request carries the origin that the keys of this group require.
        let answer =
            connection.try_send_request(&usage.with_header("Origin", "https://app.example.com"))?;
        let own = answer.status == 200 && answer.header("X-Request-Id") == Some(&id);
        assert!(own, "an unexpected response: {} {}", answer.status, answer.text());
        answer.json()["month_count"].as_u64()
    }

    /// Sends a request of another client after the case. Returns a fault if this client gets no
    /// response or a wrong response, or if riskgate reused an upstream connection for it.
    fn check_other_client_after_case(&self, placeholders: &Placeholders) -> Option<String> {
        let id = self.probe_id("next");
        let request = get("/v1/check/next")
            .key(&placeholders.fill("{other}"))
            .with_header("X-Request-Id", &id);
        let answer = self
            .open_connection(placeholders)
            .try_send_request(&request.with_header("Origin", "https://app.example.com"));
        let Some(answer) = answer else { return Some("the next client got no answer".to_owned()) };
        let seen = self.upstream.received_requests().into_iter().rfind(is_request_of_runner);
        let fresh = seen.is_some_and(|seen| seen.index_on_connection == 0);
        if (answer.status, &answer.body[..]) != (200, assertions::NEXT_CLIENT_BODY.as_bytes()) {
            return Some(format!("the next client got {}: {:?}", answer.status, answer.body));
        }
        (!fresh).then(|| "riskgate reused the upstream connection for the next client".to_owned())
    }

    fn check_log_lines(
        &self,
        case: &Case,
        placeholders: &Placeholders,
        log_start: usize,
        faults: &mut Vec<String>,
    ) {
        let address = placeholders.fill("{address}");
        let probe = self.probe_id("usage");
        let begun = Instant::now();
        loop {
            let log = self.gateway.read_access_log_from(log_start);
            let complete = log.iter().any(|line| line["request_id"] == probe.as_str());
            let own = log.iter().filter(|line| {
                let id = line["request_id"].as_str().unwrap_or_default();
                line["client"] == address.as_str() && !id.starts_with("probe-")
            });
            let own: Vec<_> = own
                .map(|line| {
                    let text = |name: &str| line[name].as_str().map(ToOwned::to_owned);
                    (line["status"].as_u64().unwrap(), text("outcome"), text("reason"))
                })
                .collect();
            let wanted = case.logs.iter().map(|(status, outcome, reason)| {
                let owned = |text: &&str| (*text).to_owned();
                (u64::from(*status), Some(owned(outcome)), reason.as_ref().map(owned))
            });
            let wanted: Vec<_> = wanted.collect();
            // The log line of a connection that closes may follow the probe's line.
            if complete && own == wanted {
                return;
            }
            if (complete && own.len() >= wanted.len()) || begun.elapsed() > Duration::from_secs(5) {
                faults.push(format!("logged {own:?}, and not {wanted:?}"));
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
