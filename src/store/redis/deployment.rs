//! What is wrong with a server before it hurts: `riskgate store check`.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use redis::{Pipeline, ServerErrorKind, Value};

use super::connection::Redis;
use super::incarnation::MARKS;
use super::link::Link;
use super::reply::{
    advise_on_write_refusal, error_kind, error_reply_text, info_field, plain_error_text,
    replica_lines, reply_text_or_empty,
};
use crate::store::error::StoreError;
use crate::store::finding::{Finding, MODE_SUBJECT};
use crate::store::operations::DeploymentBackend;

const OPERATION: &str = "checking the deployment";
/// The oldest version of Redis with all commands and options that riskgate uses. All versions of
/// Valkey have them.
const OLDEST_REDIS: (u32, u32) = (6, 2);
/// How many answers the latency check measures.
const LATENCY_SAMPLES: usize = 50;
/// If the server uses this share of `maxmemory` or more, in percent, the check warns.
const HIGH_MEMORY_PERCENT: u64 = 80;
/// A Redis key that the check sets for a few seconds. On a Cluster, the check sets another one on
/// each primary that has a mark.
const PROBE_KEY: &str = "riskgate:{check}:probe";
/// The SHA-1 digest of the script `return 1`.
const PROBE_SCRIPT_DIGEST: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";

/// The commands of a gateway and of commands that change keys. docs/redis.md lists them, and those
/// of rarer uses, such as an import. `KEY` stands for [`PROBE_KEY`]. The value of that Redis key is
/// a text, so commands for other types fail and change nothing. `SOURCE` stands for the script
/// `return 1`, and `DIGEST` for its SHA-1 digest.
const COMMANDS_BY_USE: [(&str, &str); 5] = [
    (
        "rights of a gateway",
        "INFO server, TIME, SCRIPT LOAD SOURCE, EVALSHA DIGEST 0, \
         SCAN 0 COUNT 1, PTTL KEY, EXPIRE KEY 10, HGET KEY f, HMGET KEY f, HSET KEY f v, \
         HDEL KEY f, HGETALL KEY, HLEN KEY, HSCAN KEY 0, SADD KEY m, SSCAN KEY 0, ZCARD KEY, \
         ZRANGEBYSCORE KEY 0 1, XADD KEY * f v, XRANGE KEY - +, XREVRANGE KEY + -",
    ),
    ("rights to change keys", "HINCRBY KEY f 1, HSETNX KEY f v, ZADD KEY 1 m"),
    ("rights of dns.learn and webhook.url", "ZADD KEY 1 m, ZREM KEY m"),
    ("rights to count sign-ups", "XDEL KEY 0-1, XINFO STREAM KEY"),
    ("rights of store.wait_replicas", "WAIT 0 1"),
];

/// The commands of [`COMMANDS_BY_USE`] that create a Redis key that does not exist. If SET fails,
/// the check does not send them: a user without EXPIRE and DEL could not remove the Redis key.
const CREATING_COMMANDS: [&str; 6] = ["HSET", "HINCRBY", "HSETNX", "SADD", "XADD", "ZADD"];

/// A Redis key of each kind that every gateway needs. None of them exists.
const NEEDED_KEYS: [&str; 4] = [
    "riskgate:{ring}:probe",
    "riskgate:ledger:{probe}",
    "riskgate:recovering:{probe}",
    "riskgate:usage:{probe}",
];

/// A Redis key of each kind that a gateway or a copy may use beside [`NEEDED_KEYS`]. None of them
/// exists.
const FURTHER_KEYS: [&str; 7] = [
    "riskgate:{top}:probe",
    "riskgate:{inbox}:probe",
    "riskgate:{sign_ups}:probe",
    "riskgate:{rates}:probe",
    "riskgate:{dns}:probe",
    "riskgate:{webhook}:probe",
    "riskgate:staged:probe",
];

/// Like [`COMMANDS_BY_USE`], for a gateway whose store is a Cluster.
const COMMANDS_ON_A_CLUSTER: (&str, &str) =
    ("rights on a Cluster", "CLUSTER INFO, CLUSTER SLOTS, ASKING, GET KEY");

impl DeploymentBackend for Redis {
    fn check_deployment(&mut self, deadline: Duration) -> Result<Vec<Finding>, StoreError> {
        let mut findings = self.connector.check_sentinels(self.timeout);
        // The sections of INFO that a server offers: managed services leave some out.
        let mut read_info = redis::pipe();
        for section in ["server", "memory", "persistence", "replication"] {
            read_info.cmd("INFO").arg(section);
        }
        let info_of_each = self.send_to_each_server(OPERATION, &read_info, self.timeout)?;
        if let Some(Link::Cluster(cluster)) = &self.link {
            findings.push(check_cluster(cluster.server_count()));
        }
        let hosts = self.list_hosts();
        let mut of_servers = Vec::with_capacity(hosts.len());
        for (server, (host, info)) in hosts.into_iter().zip(info_of_each).enumerate() {
            let info: Vec<String> = info.into_iter().map(reply_text_or_empty).collect();
            let of_server = self.check_server(server, &info.concat(), deadline)?;
            of_servers.push((host, of_server));
        }
        findings.extend(merge_findings(of_servers));
        Ok(findings)
    }

    /// A user who may not write passes: the check of the rights tells this.
    fn check_takes_writes(&mut self) -> Result<(), StoreError> {
        self.connect_if_needed()?;
        let hosts = self.list_hosts();
        for (server, host) in hosts.iter().enumerate() {
            let link = self.link.as_ref();
            let probe_key = link.and_then(|link| find_probe_key(link, server));
            let Some(probe_key) = probe_key else { continue };
            if let Some((found, advice)) = self.try_to_write(server, &probe_key)? {
                let host = if hosts.len() > 1 { format!("{host}: ") } else { String::new() };
                return Err(self.unavailable_error("writing", format!("{host}{found}; {advice}")));
            }
        }
        Ok(())
    }
}

impl Redis {
    /// Checks one server of a Cluster, or the only server of the store.
    fn check_server(
        &mut self,
        server: usize,
        info: &str,
        deadline: Duration,
    ) -> Result<Vec<Finding>, StoreError> {
        let mut findings = vec![check_version(info)];
        if let Some((found, advice)) = self.find_wrong_mode(info)? {
            findings.push(Finding::fault(MODE_SUBJECT, found, advice));
            return Ok(findings);
        }
        findings.extend(check_memory(info));
        findings.push(check_persistence(info));
        let is_primary_of_cluster = matches!(self.link, Some(Link::Cluster(_)));
        findings.push(check_replicas(info, self.wait_replicas, is_primary_of_cluster));
        let link = self.link.as_ref();
        let Some(probe_key) = link.and_then(|link| find_probe_key(link, server)) else {
            let advice = "give it 512 slots in a row: else riskgate may not notice that it has lost \
                          its data, and can't check the rights on it";
            findings.push(Finding::warning("slots", "too few or scattered", advice));
            return Ok(findings);
        };
        findings.push(self.check_writes(server, &probe_key)?);
        findings.push(self.measure_latency(server, &probe_key, deadline)?);
        for (subject, commands) in COMMANDS_BY_USE {
            findings.push(self.check_rights(server, &probe_key, subject, commands)?);
        }
        if is_primary_of_cluster {
            let (subject, commands) = COMMANDS_ON_A_CLUSTER;
            findings.push(self.check_rights(server, &probe_key, subject, commands)?);
        }
        findings.push(self.check_key_rights(server, &probe_key)?);
        Ok(findings)
    }

    /// Lists the servers of the store, as messages name them.
    fn list_hosts(&self) -> Vec<String> {
        match &self.link {
            Some(Link::Cluster(cluster)) => cluster.hosts().map(str::to_owned).collect(),
            _ => vec![self.location.clone()],
        }
    }

    fn check_writes(&mut self, server: usize, probe_key: &str) -> Result<Finding, StoreError> {
        const SUBJECT: &str = "writes";
        Ok(match self.try_to_write(server, probe_key)? {
            Some((found, advice)) => Finding::fault(SUBJECT, found, advice),
            None => Finding::good(SUBJECT, "taken"),
        })
    }

    /// Sets the Redis key of the check. If the server refuses writes, returns its error and what to
    /// do. A user who may not write is told so elsewhere.
    fn try_to_write(
        &mut self,
        server: usize,
        probe_key: &str,
    ) -> Result<Option<(String, &'static str)>, StoreError> {
        let reply = self.set_probe_key(server, probe_key)?;
        Ok(Some(reply).filter(|it| !is_unpermitted(it)).as_ref().and_then(describe_write_refusal))
    }

    /// Sets the Redis key of the check for ten seconds. Returns the reply of the server.
    fn set_probe_key(&mut self, server: usize, probe_key: &str) -> Result<Value, StoreError> {
        let mut write = Pipeline::new();
        write.cmd("SET").arg(probe_key).arg(1).arg("EX").arg(10);
        let replies = self.use_server(OPERATION, server, &write, self.timeout)?;
        Ok(replies.into_iter().next().unwrap_or(Value::Nil))
    }

    fn measure_latency(
        &mut self,
        server: usize,
        probe_key: &str,
        deadline: Duration,
    ) -> Result<Finding, StoreError> {
        let mut ask = Pipeline::new();
        ask.cmd("PTTL").arg(probe_key);
        let mut times = [Duration::ZERO; LATENCY_SAMPLES];
        // A replica that refused a write has cost the connection.
        self.connect_if_needed()?;
        for time in &mut times {
            let begun = Instant::now();
            self.use_server(OPERATION, server, &ask, self.timeout)?;
            *time = begun.elapsed();
        }
        Ok(check_latency(times, deadline))
    }

    /// Sends SET, and then commands that change nothing that the store keeps. Reports those that
    /// the server does not run for this user.
    fn check_rights(
        &mut self,
        server: usize,
        probe_key: &str,
        subject: &'static str,
        commands: &str,
    ) -> Result<Finding, StoreError> {
        let mut commands: Vec<Vec<&str>> =
            commands.split(", ").map(|command| command.split(' ').collect()).collect();
        // A replica that refused a write has cost the connection.
        self.connect_if_needed()?;
        let set = self.set_probe_key(server, probe_key)?;
        let is_set = !matches!(set, Value::ServerError(_));
        commands.retain(|command| is_set || !CREATING_COMMANDS.contains(&command[0]));
        let mut send = Pipeline::new();
        for command in &commands {
            send.cmd(command[0]);
            for word in &command[1..] {
                send.arg(match *word {
                    "KEY" => probe_key,
                    "SOURCE" => "return 1",
                    "DIGEST" => PROBE_SCRIPT_DIGEST,
                    word => word,
                });
            }
        }
        let mut replies = Vec::new();
        if !commands.is_empty() {
            // A replica that refused a write has cost the connection.
            self.connect_if_needed()?;
            replies = self.use_server(OPERATION, server, &send, self.timeout)?;
        }
        // `check_key_rights` tells of a user who may not access the Redis key.
        let is_refused = |reply: &Value| is_unpermitted(reply) && !is_key_unpermitted(reply);
        let set_command = vec!["SET"];
        let sent = std::iter::once((&set_command, &set)).chain(commands.iter().zip(&replies));
        let refused = sent.filter(|(_, reply)| is_refused(reply));
        let name = |command: &[&str]| match command {
            ["SCRIPT", "LOAD", ..] => "script|load".to_owned(),
            ["CLUSTER", subcommand, ..] => format!("cluster|{}", subcommand.to_ascii_lowercase()),
            command => command[0].to_ascii_lowercase(),
        };
        let refused: Vec<String> = refused.map(|(command, _)| name(command)).collect();
        Ok(match refused.is_empty() {
            true => Finding::good(subject, "all"),
            false => {
                let rights: Vec<String> = refused.iter().map(|name| format!("+{name}")).collect();
                let advice = format!("ACL SETUSER … {}, unless it is renamed", rights.join(" "));
                let found = format!("the server does not run {}", refused.join(", "));
                match [COMMANDS_BY_USE[0].0, COMMANDS_ON_A_CLUSTER.0].contains(&subject) {
                    true => Finding::fault(subject, found, advice),
                    false => Finding::warning(subject, found, advice),
                }
            }
        })
    }

    /// Writes to those of [`NEEDED_KEYS`] and [`FURTHER_KEYS`] that the server has, and to the
    /// Redis key that the check sets, without a change. Reports those that the user may not write.
    fn check_key_rights(&mut self, server: usize, probe_key: &str) -> Result<Finding, StoreError> {
        const SUBJECT: &str = "rights to Redis keys";
        self.connect_if_needed()?;
        let is_here =
            |key: &&&str| self.link.as_ref().is_some_and(|it| it.find_server(key) == server);
        let keys = NEEDED_KEYS.iter().chain(&FURTHER_KEYS).filter(is_here).copied();
        let keys: Vec<&str> = keys.chain([probe_key]).collect();
        let mut send = Pipeline::new();
        for key in &keys {
            send.cmd("HDEL").arg(key).arg("probe");
        }
        let replies = self.use_server(OPERATION, server, &send, self.timeout)?;
        // A user who may not run HDEL at all is told so elsewhere.
        let refused = keys.iter().zip(&replies).filter(|(_, reply)| is_key_unpermitted(reply));
        let refused: Vec<&str> = refused.map(|(key, _)| *key).collect();
        let names: Vec<String> = refused.iter().map(|key| key.replace("probe", "*")).collect();
        let found = format!("the user may not write {}", names.join(", "));
        let advice = "ACL SETUSER … ~riskgate:*";
        Ok(match refused.iter().find(|key| NEEDED_KEYS.contains(key)) {
            _ if refused.is_empty() => Finding::good(SUBJECT, "all"),
            Some(_) => Finding::fault(SUBJECT, found, advice),
            None => Finding::warning(SUBJECT, found, advice),
        })
    }
}

/// Returns the Redis key that the check sets on a server; `None` if the server has none of the
/// slots that the check knows keys of.
fn find_probe_key(link: &Link, server: usize) -> Option<String> {
    match link {
        Link::Server(_) => Some(PROBE_KEY.to_owned()),
        Link::Cluster(cluster) => {
            // The marks are spread over all slots.
            let mark = MARKS.iter().find(|mark| cluster.find_server(mark) == server)?;
            Some(mark.replace(":mark", ":probe"))
        }
    }
}

fn check_cluster(primary_count: usize) -> Finding {
    let found = format!("{primary_count} primaries have all slots");
    match primary_count {
        ..3 => {
            let advice = "use three primaries or more: fewer can't agree on a failover";
            Finding::warning("cluster", found, advice)
        }
        _ => Finding::good("cluster", found),
    }
}

/// Makes one finding of those about the same subject on several servers: the worst. What was found
/// is told for each server, unless it is the same everywhere.
fn merge_findings(of_servers: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    // The server with the most findings has the usual order. Another may lack some of these
    // subjects, and have one of its own.
    let most = of_servers.iter().max_by_key(|it| it.1.len()).into_iter();
    let mut subjects: Vec<Cow<'static, str>> = Vec::new();
    for finding in most.chain(&of_servers).flat_map(|(_, findings)| findings) {
        if !subjects.contains(&finding.subject) {
            subjects.push(finding.subject.clone());
        }
    }
    let about = |subject: &Cow<'static, str>| -> Option<Finding> {
        let of_subject = of_servers.iter().filter_map(|(host, findings)| {
            Some((host, findings.iter().find(|finding| finding.subject == *subject)?))
        });
        let of_subject: Vec<(&String, &Finding)> = of_subject.collect();
        let (_, worst) = of_subject.iter().max_by_key(|(_, finding)| finding.level)?;
        let is_same = of_subject.iter().all(|(_, finding)| finding.found == worst.found);
        let of_each = of_subject.iter().map(|(host, finding)| format!("{host}: {}", finding.found));
        let found = match is_same {
            true => worst.found.clone(),
            false => of_each.collect::<Vec<_>>().join(", "),
        };
        Some(Finding { found, ..(*worst).clone() })
    };
    subjects.iter().filter_map(about).collect()
}

fn check_latency(mut times: [Duration; LATENCY_SAMPLES], deadline: Duration) -> Finding {
    times.sort_unstable();
    let [median, longest] =
        [times[LATENCY_SAMPLES / 2], times[LATENCY_SAMPLES - 1]].map(|it| it.as_secs_f64() * 1e3);
    let found = format!("an answer takes {median:.1} ms, at most {longest:.1} ms");
    let deadline = deadline.as_secs_f64() * 1e3;
    match longest * 2.0 > deadline {
        false => Finding::good("latency", found),
        true => {
            let advice = format!(
                "store.deadline is {deadline} ms: raise it, or put the server nearer, because calls \
                 without a lease get 500 after that time"
            );
            Finding::warning("latency", found, advice)
        }
    }
}

fn check_version(info: &str) -> Finding {
    const SUBJECT: &str = "version";
    if let Some(version) = info_field(info, "valkey_version") {
        return Finding::good(SUBJECT, format!("Valkey {version}"));
    }
    let Some(version) = info_field(info, "redis_version") else {
        return Finding::warning(SUBJECT, "the server does not tell it", "use Redis 6.2 or later");
    };
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match (major, minor) >= OLDEST_REDIS {
        true => Finding::good(SUBJECT, format!("Redis {version}")),
        false => Finding::fault(SUBJECT, format!("Redis {version}"), "use Redis 6.2 or later"),
    }
}

fn check_memory(info: &str) -> Vec<Finding> {
    let policy = info_field(info, "maxmemory_policy");
    let eviction = match policy {
        Some("noeviction") => Finding::good("eviction", "noeviction"),
        found => Finding::fault(
            "eviction",
            found.unwrap_or("no maxmemory_policy in INFO"),
            "maxmemory-policy noeviction: an evicted count lets an account exceed its limit",
        ),
    };
    let number = |name| info_field(info, name).and_then(|text| text.parse::<u64>().ok());
    let memory = match (number("used_memory"), number("maxmemory")) {
        (None, _) | (_, None) => {
            Finding::warning("memory", "the server does not tell it", "watch it yourself")
        }
        (Some(used), Some(0)) => Finding::good("memory", format!("{used} bytes used, no limit")),
        (Some(used), Some(max)) => {
            let found = format!("{used} of {max} bytes used");
            let advice = "raise maxmemory: a full server refuses writes";
            match used.saturating_mul(100) / max {
                // Some of the memory does not count, so the server may still take writes.
                100.. => Finding::tolerated_fault("memory", found, advice),
                HIGH_MEMORY_PERCENT.. => Finding::warning("memory", found, advice),
                _ => Finding::good("memory", found),
            }
        }
    };
    vec![eviction, memory]
}

fn check_persistence(info: &str) -> Finding {
    const SUBJECT: &str = "persistence";
    let Some(is_on) = info_field(info, "aof_enabled").map(|field| field == "1") else {
        let advice = "make sure that a restart of the server loses no data";
        return Finding::warning(SUBJECT, "the server does not tell it", advice);
    };
    let has_failed = |name| info_field(info, name) == Some("err");
    let advice = "look into the log of the server";
    match is_on {
        true if has_failed("aof_last_write_status") => {
            Finding::fault(SUBJECT, "aof_last_write_status is err", advice)
        }
        true if has_failed("aof_last_bgrewrite_status") => {
            Finding::tolerated_fault(SUBJECT, "aof_last_bgrewrite_status is err", advice)
        }
        true => Finding::good(SUBJECT, "appendonly yes"),
        false => Finding::warning(
            SUBJECT,
            "appendonly no",
            "appendonly yes: else a restart of the server loses keys and counts",
        ),
    }
}

fn check_replicas(info: &str, wait_replicas: usize, is_primary_of_cluster: bool) -> Finding {
    const SUBJECT: &str = "replicas";
    let role = info_field(info, "role");
    if role.is_none() {
        let advice = "make sure that store.wait_replicas of them are in sync";
        return Finding::warning(SUBJECT, "the server does not tell them", advice);
    }
    if role == Some("slave") {
        let advice = "set store.url to the primary server";
        return Finding::fault(SUBJECT, "the server is a replica itself", advice);
    }
    let online = replica_lines(info).filter(|line| line.contains("state=online")).count();
    let found = format!("{online} in sync, store.wait_replicas = {wait_replicas}");
    match (online < wait_replicas, online > 0 && wait_replicas == 0) {
        (true, _) => {
            let advice = "add replicas: without them, store.on_failure decides about new leases";
            Finding::tolerated_fault(SUBJECT, found, advice)
        }
        (false, true) => Finding::warning(
            SUBJECT,
            found,
            "store.wait_replicas = 1: else a failover loses the last writes",
        ),
        (false, false) if is_primary_of_cluster && online == 0 => {
            let advice = "add a replica: without it, the store is down while this primary is down";
            Finding::warning(SUBJECT, found, advice)
        }
        (false, false) => Finding::good(SUBJECT, found),
    }
}

/// The error of a reply, and what to do; `None` if the server took the write.
fn describe_write_refusal(reply: &Value) -> Option<(String, &'static str)> {
    let Value::ServerError(error) = reply else { return None };
    let found = plain_error_text(reply)?;
    Some((found.trim_end_matches('.').to_owned(), advise_on_write_refusal(error)))
}

/// Returns true for an error reply to a user without the right to the command, or of a server that
/// does not have the command.
fn is_unpermitted(reply: &Value) -> bool {
    error_kind(reply) == Some(ServerErrorKind::NoPerm)
        || error_reply_text(reply).is_some_and(|text| text.contains("unknown command"))
}

/// Returns true for an error reply to a user who may run the command, but not with this Redis key.
fn is_key_unpermitted(reply: &Value) -> bool {
    is_unpermitted(reply) && error_reply_text(reply).is_some_and(|text| text.contains("to access"))
}

#[cfg(test)]
mod tests;
