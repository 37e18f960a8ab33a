//! Asks Sentinels which server is the primary of a service.
//!
//! riskgate asks all Sentinels of an address at once. If more than half of all Sentinels name one
//! server, riskgate takes this server. Else, after all answers or a timeout, the answer of the
//! latest failover counts: a Sentinel that was cut off from the others names an old server. While
//! the process has a store with this address, it asks the Sentinels each second, so that a node
//! leaves a server that nobody else can reach.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant};

use redis::{Client, Connection, Value};

use super::exchange::describe_error;
use super::options::RedisOptions;
use super::reply::plain_error_text;
use crate::store::finding::Finding;
use crate::store::server_list_url::SentinelUrl;
use crate::store::url::RedisUrl;
use crate::support::lock::lock;

/// How often riskgate asks the Sentinels.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the answers may take when riskgate asks each second.
const WATCH_TIMEOUT: Duration = Duration::from_millis(500);

/// The most threads that wait for one Sentinel.
const MAX_WAITING_THREADS: usize = 8;

/// The server that the Sentinels name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedServer {
    /// `HOST:PORT`.
    pub host: String,
    /// How many failovers the Sentinels have agreed on.
    epoch: u64,
    /// How many Sentinels watch the service, as the one that answered knows.
    sentinel_count: usize,
}

/// The Sentinels of one address.
pub(super) struct Sentinels {
    service: String,
    members: Vec<Arc<Sentinel>>,
    /// How often this process has asked.
    question_count: AtomicU64,
    latest: Mutex<LatestAnswer>,
}

/// The answer that riskgate took last.
#[derive(Default)]
struct LatestAnswer {
    /// The number of the question.
    question: u64,
    /// `None` before the first answer.
    server: Option<NamedServer>,
}

struct Sentinel {
    host: String,
    client: Client,
    /// `None` until the first question, and after a failure.
    connection: Mutex<Option<Connection>>,
    /// How many threads wait for this Sentinel's answer.
    waiting_threads: AtomicUsize,
}

/// The Sentinels that riskgate asks each second. All stores of a process with the same address and
/// options share them.
static WATCHED: LazyLock<Mutex<Vec<WatchedSentinels>>> = LazyLock::new(Mutex::default);

struct WatchedSentinels {
    url: RedisUrl,
    options: RedisOptions,
    sentinels: Weak<Sentinels>,
}

impl Sentinels {
    /// Returns the Sentinels of this address. If no store of this process asks them yet, starts a
    /// thread that asks them each second. `clients` has one client for each host.
    pub fn find_or_watch(
        url: &RedisUrl,
        parts: &SentinelUrl,
        options: &RedisOptions,
        clients: Vec<Client>,
    ) -> Arc<Sentinels> {
        let mut watched = lock(&WATCHED);
        watched.retain(|it| it.sentinels.strong_count() > 0);
        let same = watched.iter().find(|it| it.url == *url && it.options == *options);
        if let Some(sentinels) = same.and_then(|it| it.sentinels.upgrade()) {
            return sentinels;
        }
        let members = parts.hosts().iter().zip(clients).map(|(host, client)| {
            let connection = Mutex::default();
            let (host, waiting_threads) = (host.clone(), 0.into());
            Arc::new(Sentinel { host, client, connection, waiting_threads })
        });
        let sentinels = Arc::new(Sentinels {
            service: parts.service().to_owned(),
            members: members.collect(),
            question_count: 0.into(),
            latest: Mutex::default(),
        });
        let weak = Arc::downgrade(&sentinels);
        watched.push(WatchedSentinels {
            url: url.clone(),
            options: options.clone(),
            sentinels: Weak::clone(&weak),
        });
        let watch = std::thread::Builder::new().name("sentinels".to_owned());
        let spawned = watch.spawn(move || {
            loop {
                std::thread::sleep(ASK_INTERVAL);
                let Some(sentinels) = weak.upgrade() else { return };
                // The next connection asks again. If that fails, it gives the reason.
                let _ = sentinels.ask(WATCH_TIMEOUT);
            }
        });
        if let Err(error) = spawned {
            log::error!("the Sentinels can't be asked each second: {error}");
        }
        sentinels
    }

    /// Asks all Sentinels at once, and waits for their answers at most this long. If none names a
    /// server, the error says what each answered.
    pub fn ask(&self, timeout: Duration) -> Result<NamedServer, String> {
        let question = self.question_count.fetch_add(1, Ordering::Relaxed) + 1;
        let answers = self.ask_each(timeout, |answers| find_agreed(answers).is_some());
        let Some(named) = choose_server(&answers).cloned() else {
            let of_each = self.members.iter().zip(&answers).filter_map(|(member, answer)| {
                Some(format!("{}: {}", member.host, answer.as_ref().err()?))
            });
            let of_each: Vec<String> = of_each.collect();
            return Err(format!("no Sentinel names a primary: {}", of_each.join("; ")));
        };
        let is_agreed = find_agreed(&answers).is_some();
        let mut latest = lock(&self.latest);
        match &latest.server {
            // The answer to a later question came first.
            Some(known) if latest.question > question => return Ok(known.clone()),
            // Perhaps only Sentinels that were cut off have answered.
            Some(known) if !is_agreed && known.epoch > named.epoch => return Ok(known.clone()),
            Some(known) if known.host != named.host => {
                let service = &self.service;
                log::warn!("primary of {service}: {} → {}", known.host, named.host);
            }
            _ => {}
        }
        *latest = LatestAnswer { question, server: Some(named.clone()) };
        Ok(named)
    }

    /// Asks all Sentinels at once. Returns their answers in the order of the address: once all have
    /// answered, once `is_enough` says so, or after this time.
    fn ask_each(
        &self,
        timeout: Duration,
        is_enough: impl Fn(&[Result<NamedServer, String>]) -> bool,
    ) -> Vec<Result<NamedServer, String>> {
        let deadline = Instant::now() + timeout;
        let (sender, received) = channel();
        let late = format!("no answer within {} ms", timeout.as_millis());
        let mut answers = vec![Err(late); self.members.len()];
        for (index, member) in self.members.iter().enumerate() {
            let (member, service) = (Arc::clone(member), self.service.clone());
            let sender = sender.clone();
            // Each Sentinel gets a thread, so that one that hangs holds up no other.
            let spawned = std::thread::Builder::new().spawn(move || {
                let _ = sender.send((index, member.ask(&service, timeout)));
            });
            if let Err(error) = spawned {
                answers[index] = Err(error.to_string());
            }
        }
        drop(sender);
        while !is_enough(&answers) {
            let time_left = deadline.saturating_duration_since(Instant::now());
            match received.recv_timeout(time_left) {
                Ok((index, answer)) => answers[index] = answer,
                Err(_) => break,
            }
        }
        answers
    }

    /// Asks all Sentinels, and says what is wrong with their answers.
    pub fn collect_findings(&self, timeout: Duration) -> Vec<Finding> {
        const SUBJECT: &str = "sentinels";
        let answers = self.ask_each(timeout, |_| false);
        let chosen = choose_server(&answers);
        let mut findings = Vec::new();
        for (member, answer) in self.members.iter().zip(&answers) {
            let host = &member.host;
            match answer {
                Err(error) => {
                    let advice = "start it again, or remove it from store.url";
                    findings.push(Finding::warning(SUBJECT, format!("{host}: {error}"), advice));
                }
                Ok(named) if chosen.is_some_and(|chosen| chosen.host != named.host) => {
                    let found = format!("{host} names {}, others do not", named.host);
                    let advice = "look into its log: it may be wrong, or cut off from the others";
                    findings.push(Finding::warning(SUBJECT, found, advice));
                }
                Ok(_) => {}
            }
        }
        let named = answers.iter().filter(|answer| answer.is_ok()).count();
        let found = format!("{named} of {} name a primary", self.members.len());
        findings.push(match (named, self.members.len()) {
            (0, _) => Finding::fault(SUBJECT, found, "check store.url and the service in it"),
            (_, ..=2) => {
                let advice = "use three Sentinels or more: fewer can't agree on a failover";
                Finding::warning(SUBJECT, found, advice)
            }
            _ => Finding::good(SUBJECT, found),
        });
        findings
    }

    /// Returns true if the Sentinels name another server now than this one, which they named
    /// before.
    pub fn is_outdated(&self, server: &NamedServer) -> bool {
        let latest = lock(&self.latest);
        latest.server.as_ref().is_some_and(|it| it.host != server.host)
    }
}

/// Returns the server that riskgate takes from the answers of all Sentinels, which have an error
/// each where there is no answer. `None` if nobody names a server.
fn choose_server(answers: &[Result<NamedServer, String>]) -> Option<&NamedServer> {
    find_agreed(answers).or_else(|| answers.iter().flatten().max_by_key(|server| server.epoch))
}

/// Returns the server that more than half of all Sentinels name. Sentinels that the address does
/// not list count as well. Sentinels that were set up again count failovers from 0, so their number
/// says nothing then.
fn find_agreed(answers: &[Result<NamedServer, String>]) -> Option<&NamedServer> {
    let named = || answers.iter().flatten();
    let known_count = named().map(|server| server.sentinel_count).max().unwrap_or_default();
    let all_count = known_count.max(answers.len());
    let votes = |host: &str| named().filter(|server| server.host == host).count();
    named().filter(|server| votes(&server.host) > all_count / 2).max_by_key(|server| server.epoch)
}

impl Sentinel {
    /// Asks this Sentinel. The error says what it answered, or why there is no answer.
    fn ask(&self, service: &str, timeout: Duration) -> Result<NamedServer, String> {
        if self.waiting_threads.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING_THREADS {
            self.waiting_threads.fetch_sub(1, Ordering::Relaxed);
            return Err("earlier questions have no answer yet".to_owned());
        }
        let answer = self.ask_once_or_twice(service, timeout);
        self.waiting_threads.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    fn ask_once_or_twice(&self, service: &str, timeout: Duration) -> Result<NamedServer, String> {
        let deadline = Instant::now() + timeout;
        // A thread that asks at the same time opens a connection of its own, and does not wait.
        let kept = self.connection.try_lock().ok().and_then(|mut kept| kept.take());
        let answered = match kept {
            Some(kept) => {
                let answered = self.ask_on(Some(kept), service, timeout / 2);
                // The Sentinel may have been restarted since the last question.
                let time_left = deadline.saturating_duration_since(Instant::now());
                answered.or_else(|_| self.ask_on(None, service, time_left))
            }
            None => self.ask_on(None, service, timeout),
        };
        let (connection, reply) = answered.map_err(|error| describe_error(&error, timeout))?;
        if let Ok(mut kept) = self.connection.try_lock() {
            *kept = Some(connection);
        }
        match plain_error_text(&reply) {
            Some(error) if error.to_ascii_lowercase().contains("unknown command") => {
                return Err(format!(
                    "{error}; it is no Sentinel: write redis:// for a data server"
                ));
            }
            Some(error) => return Err(error),
            None => {}
        }
        parse_reply(reply).ok_or_else(|| "a reply of another form".to_owned())
    }

    fn ask_on(
        &self,
        connection: Option<Connection>,
        service: &str,
        timeout: Duration,
    ) -> redis::RedisResult<(Connection, Value)> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.client.get_connection_with_timeout(timeout)?,
        };
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        let question = redis::cmd("SENTINEL").arg("MASTER").arg(service).get_packed_command();
        let reply = redis::ConnectionLike::req_packed_command(&mut connection, &question)?;
        Ok((connection, reply))
    }
}

/// Reads the reply of a Sentinel: fields, each followed by its value.
fn parse_reply(reply: Value) -> Option<NamedServer> {
    let parts: Vec<String> = redis::from_redis_value(reply).ok()?;
    let field = |name: &str| {
        let at = parts.chunks(2).position(|pair| pair[0] == name)?;
        parts.get(2 * at + 1)
    };
    let (host, port) = (field("ip")?, field("port")?);
    let host = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    // A server that is no Sentinel of this kind may not have the field.
    let others = field("num-other-sentinels").and_then(|others| others.parse().ok()).unwrap_or(0);
    let epoch = field("config-epoch")?.parse().ok()?;
    Some(NamedServer { host, epoch, sentinel_count: others + 1 })
}

#[cfg(test)]
mod tests;
