//! The runner: one gateway and one upstream for a group of cases, and all five checks for each.
//!
//! Cases run one after the other, so that what the upstream sees belongs to the one that runs.
//! None stops the group: all red ones are told at its end.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::case::{Case, Ends};
use super::check::{self, Words};
use crate::harness::{
    Connection, Gateway, Seen, Setup, StandIn, Step, USED, answer, get, has_lane,
};

/// How a case's bytes get to the gateway: from this client.
type Open = dyn Fn(IpAddr, SocketAddr) -> Connection;

pub struct Group {
    name: &'static str,
    /// Tells the addresses of this group's clients from those of others.
    number: u8,
    settings: fn(Setup) -> Setup,
    /// What stands with the key of every case.
    key: &'static str,
    open: Box<Open>,
}

/// Prefixes beside the routes that are always there, in every group.
const ROUTES: &str = "
[[upstream.route]]
prefix = \"/v1/signup\"
methods = [\"GET\", \"POST\"]

[[upstream.route]]
prefix = \"/open\"
key = false
";

impl Group {
    pub fn new(name: &'static str, number: u8) -> Group {
        Group {
            name,
            number,
            settings: |setup| setup,
            key: "",
            open: Box::new(Connection::open_from),
        }
    }

    pub fn settings(self, settings: fn(Setup) -> Setup) -> Group {
        Group { settings, ..self }
    }

    pub fn key(self, key: &'static str) -> Group {
        Group { key, ..self }
    }

    /// Sends another way than over plain TCP.
    pub fn over(self, open: impl Fn(IpAddr, SocketAddr) -> Connection + 'static) -> Group {
        Group { open: Box::new(open), ..self }
    }

    /// Runs all cases and says which are red.
    pub fn run(&self, cases: Vec<Case>) {
        let (green, red) = self.judge(cases);
        green.iter().for_each(|name| println!("edge GREEN {name}"));
        let red: String = red.iter().map(|line| format!("edge RED {line}\n")).collect();
        assert!(red.is_empty(), "\n{red}");
    }

    /// The names of the green cases, and those of the red ones with what is wrong.
    pub fn judge(&self, cases: Vec<Case>) -> (Vec<String>, Vec<String>) {
        let name = |case: &Case| format!("{}: {}", self.name, case.name);
        let chosen = chosen();
        let chosen = |case: &&Case| chosen.as_ref().is_none_or(|some| some.contains(&name(case)));
        let cases: Vec<Case> = cases.iter().filter(chosen).cloned().collect();
        if cases.is_empty() {
            return Default::default();
        }
        let now: Arc<Mutex<Option<usize>>> = Arc::default();
        let cases = Arc::new(cases);
        let stand_in = self.upstream(&now, &cases);
        let gateway = self.start(&stand_in, cases.len());
        let (mut green, mut red) = (Vec::new(), Vec::new());
        for (at, case) in cases.iter().enumerate() {
            *now.lock().unwrap() = Some(at);
            let running = Running { group: self, gateway: &gateway, stand_in: &stand_in, at };
            let mut faults = Vec::new();
            let held = AssertUnwindSafe(|| running.hold(case, &mut faults));
            if catch_unwind(held).is_err() {
                faults.push("an answer that nobody expected".to_owned());
            }
            let name = name(case);
            match faults.is_empty() {
                true => green.push(name),
                false => red.push(format!("{name} | {}", faults.join("; "))),
            }
        }
        (green, red)
    }

    /// Plays what the running case wants; the client who comes next is answered honestly.
    fn upstream(&self, now: &Arc<Mutex<Option<usize>>>, cases: &Arc<Vec<Case>>) -> StandIn {
        let (now, cases) = (Arc::clone(now), Arc::clone(cases));
        StandIn::playing(move |seen| {
            let at = *now.lock().unwrap();
            match at.filter(|_| !is_next(seen)) {
                Some(at) => (cases[at].play)(seen),
                None => {
                    let honest = answer(200, "Connection: close\r\n", check::HONEST);
                    vec![Step::Send(honest), Step::Close]
                }
            }
        })
    }

    fn start(&self, stand_in: &StandIn, cases: usize) -> Gateway {
        let setup = Setup::new().upstream(&[stand_in.address]).tail(ROUTES);
        let setup = setup.text("upstream.deadline", "15s").text("listen.header_timeout", "5s");
        let setup = (self.settings)(setup);
        let mut keys = String::new();
        for at in 0..cases {
            let words = self.words(at, stand_in.address);
            for (token, account, more) in [
                ("{key}", "{account}", self.key),
                ("{other}", "{other-account}", self.key),
                ("{long}", "{account}", self.key),
                ("{strict}", "{account}", STRICT),
                ("{revoked}", "{account}", "revoked = \"2026-01-01T00:00:00Z\"\n"),
                ("{expired}", "{account}", "expires = \"2026-01-01T00:00:00Z\"\n"),
            ] {
                let id = token.trim_matches(['{', '}']);
                let (hash, account) = (sha256(&words.fill(token)), words.fill(account));
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
        setup.text("keys.file", &path).start()
    }

    fn words(&self, at: usize, server: SocketAddr) -> Words {
        let (group, name) = (self.number, self.name);
        let address = IpAddr::V4(Ipv4Addr::new(127, group, (at / 200) as u8, (at % 200) as u8 + 1));
        let token = |kind: &str| format!("edge.{kind}.{name}.{at:04}");
        Words::new(&[
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

/// The names of the only cases to run, a line each; all if it is not set.
fn chosen() -> Option<Vec<String>> {
    let names = std::env::var("RISKGATE_CASES").ok()?;
    Some(names.lines().map(ToOwned::to_owned).collect())
}

/// A key that answers one origin, and nobody who has none.
const STRICT: &str = "origins = [\"https://app.example.com\"]\nrequire_origin = true\n";

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_next(seen: &Seen) -> bool {
    seen.head.contains("probe-")
}

/// One case while it runs.
struct Running<'g> {
    group: &'g Group,
    gateway: &'g Gateway,
    stand_in: &'g StandIn,
    at: usize,
}

impl Running<'_> {
    /// Holds a case to all that it expects; what is wrong is added to the faults.
    fn hold(&self, case: &Case, faults: &mut Vec<String>) {
        let words = self.group.words(self.at, self.stand_in.address);
        let counted_before = ["{key}", "{other}"].map(|key| self.warm(&words, key));
        let before = self.stand_in.count();
        let mut connection = self.open(&words);
        connection.try_send(&words.fill_bytes(&case.sends));
        let mut answers = Vec::new();
        for expected in &case.answers {
            let method = if expected.to_head { "HEAD" } else { "GET" };
            let Some(answer) = connection.read_to(method) else { break };
            check::answer(&answer, expected, &words, faults);
            answers.push(answer);
        }
        if answers.len() != case.answers.len() {
            let (came, wanted) = (answers.len(), case.answers.len());
            faults.push(format!("{came} answers, and not {wanted}"));
        }
        let kept = self.probe(&mut connection, &words, "{key}").is_some();
        match (case.ends, kept) {
            (Ends::Kept, false) => faults.push("the connection was closed".to_owned()),
            (Ends::Closed, true) => faults.push("the connection was kept".to_owned()),
            (Ends::Kept, true) | (Ends::Closed, false) => {}
        }
        if case.next {
            faults.extend(self.who_comes_next(&words));
        }
        let others = if case.counts[1] > 0 { 2 } else { 1 };
        for (at, key) in ["{key}", "{other}"].iter().enumerate().take(others) {
            let counted = self.probe(&mut self.open(&words), &words, key);
            let counted = counted.map(|counted| counted - counted_before[at]);
            if counted != Some(case.counts[at]) {
                faults.push(format!("counted {counted:?}, and not {} for {key}", case.counts[at]));
            }
        }
        let seen: Vec<Seen> = self.stand_in.seen().split_off(before);
        let seen = seen.into_iter().filter(|seen| !is_next(seen)).collect::<Vec<_>>();
        check::seen(&seen, &case.saw, &answers, &words, faults);
        self.check_log(case, &words, faults);
    }

    /// Brings calls in hand, without which the lane hands a request over; how many that cost.
    fn warm(&self, words: &Words, key: &str) -> u64 {
        if !has_lane() {
            return 0;
        }
        let id = self.probe_id("warm");
        let call = get("/v1/public/domain/first.test").key(&words.fill(key));
        let call = call.with("X-Request-Id", &id).with("Origin", "https://app.example.com");
        let mut connection = self.open(words);
        (0..USED).filter(|_| connection.try_ask(&call).is_some_and(|a| a.status == 200)).count()
            as u64
    }

    fn open(&self, words: &Words) -> Connection {
        let address = words.fill("{address}").parse().unwrap();
        (self.group.open)(address, self.gateway.http)
    }

    fn probe_id(&self, what: &str) -> String {
        format!("probe-{what}-{}", self.at)
    }

    /// What was counted for a key, asked on this connection; `None` when it is closed.
    fn probe(&self, connection: &mut Connection, words: &Words, key: &str) -> Option<u64> {
        let id = self.probe_id("usage");
        let usage = get("/v1/usage").key(&words.fill(key)).with("X-Request-Id", &id);
        // Whatever the key of the group wants of a browser.
        let answer = connection.try_ask(&usage.with("Origin", "https://app.example.com"))?;
        let mine = answer.status == 200 && answer.header("X-Request-Id") == Some(&id);
        assert!(mine, "an answer that nobody expected: {} {}", answer.status, answer.text());
        answer.json()["month_count"].as_u64()
    }

    /// Another client, behind a case whose upstream misbehaved.
    fn who_comes_next(&self, words: &Words) -> Option<String> {
        let id = self.probe_id("next");
        let request = get("/v1/check/next").key(&words.fill("{other}")).with("X-Request-Id", &id);
        let answer = self.open(words).try_ask(&request.with("Origin", "https://app.example.com"));
        let Some(answer) = answer else { return Some("the next client got no answer".to_owned()) };
        let seen = self.stand_in.seen().into_iter().rfind(is_next);
        let fresh = seen.is_some_and(|seen| seen.number == 0);
        if (answer.status, &answer.body[..]) != (200, check::HONEST.as_bytes()) {
            return Some(format!("the next client got {}: {:?}", answer.status, answer.body));
        }
        (!fresh).then(|| "the next client was served over the same connection".to_owned())
    }

    fn check_log(&self, case: &Case, words: &Words, faults: &mut Vec<String>) {
        let address = words.fill("{address}");
        let probe = self.probe_id("usage");
        let begun = Instant::now();
        loop {
            let log = self.gateway.log();
            let complete = log.iter().any(|line| line["request_id"] == probe.as_str());
            let mine = log.iter().filter(|line| {
                let id = line["request_id"].as_str().unwrap_or_default();
                line["client"] == address.as_str() && !id.starts_with("probe-")
            });
            let mine: Vec<_> = mine
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
            // The line of a connection that closes may be written behind the probe's.
            if complete && mine == wanted {
                return;
            }
            if (complete && mine.len() >= wanted.len()) || begun.elapsed() > Duration::from_secs(5)
            {
                faults.push(format!("logged {mine:?}, and not {wanted:?}"));
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
