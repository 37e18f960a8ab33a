//! The connections to a Redis Cluster: one to each primary.
//!
//! A Cluster spreads 16,384 hash slots over its primaries. riskgate is connected to all of them or
//! to none, so that a node notices each primary that was replaced: the report of a lease needs a
//! probe of the servers first. If a slot moves to a primary that riskgate is connected to, riskgate
//! follows. If a slot moves to another server, a probe finds other primaries, or a slot moves
//! during a scan of all Redis keys, riskgate connects again to all primaries.

mod target;
mod topology;

use std::collections::HashMap;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use redis::cluster_routing::Slot;
use redis::{Cmd, Connection, ConnectionLike, Pipeline, TlsCertificates, Value};

use super::exchange::{Exchange, connect_to_member, describe_error};
use super::key_names::RING_META_KEY;
use crate::store::server_list_url::ClusterUrl;
use target::{Redirection, Target};
use topology::{Topology, read_topology};

/// How long riskgate waits until it sends a command again whose slot is just moving.
const MOVING_SLOT_PAUSE: Duration = Duration::from_millis(5);
/// How often servers may redirect a command. One move of a slot takes two redirections.
const MAX_REDIRECTIONS: u32 = 16;

/// Connections to all primaries of a Cluster.
pub(super) struct ClusterLink {
    servers: Vec<Primary>,
    /// The index of the primary that has the slot, for every slot.
    owners: HashMap<Slot, usize>,
    /// How often a server has redirected a command.
    redirections: u64,
}

struct Primary {
    /// `HOST:PORT`, as the Cluster names it.
    host: String,
    connection: Connection,
}

/// What has changed in a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopologyChange {
    None,
    /// Slots have moved between the primaries of the link.
    Owners,
    /// The Cluster has other primaries than the link.
    Primaries,
}

/// A command that is still to send.
struct Pending {
    /// The index of the command.
    command: usize,
    server: usize,
    /// The slot is moving to this server, which takes the command only after ASKING.
    is_asking: bool,
    redirections: u32,
}

impl ClusterLink {
    /// Asks servers of the Cluster for its primaries, one after another until an answer can be
    /// used, and connects to all primaries. Asks the servers of the address first: the addresses of
    /// `last_primaries` may belong to another Cluster by now. Sets `last_primaries` to those of
    /// this link. The error says why each asked server, or a connection to a primary, failed.
    pub fn connect(
        url: &ClusterUrl,
        tls: &Option<TlsCertificates>,
        last_primaries: &mut Vec<String>,
        timeout: Duration,
    ) -> Result<ClusterLink, String> {
        let deadline = Instant::now() + timeout;
        let time_left = || deadline.saturating_duration_since(Instant::now());
        let mut hosts = url.hosts().to_vec();
        hosts.extend(last_primaries.iter().filter(|host| !url.hosts().contains(host)).cloned());
        let mut faults = Vec::new();
        for host in hosts {
            // A server that hangs leaves time for another.
            let patience = time_left() / 2;
            if patience.is_zero() {
                break;
            }
            let answer_due = Instant::now() + patience;
            let asked = connect_to_member(&url.server_url(&host), tls, patience)
                .and_then(|mut asked| read_topology(&mut asked, &host, answer_due));
            match asked {
                Ok(Ok(topology)) => {
                    last_primaries.clone_from(&topology.hosts);
                    return ClusterLink::connect_to_all(url, tls, topology, time_left());
                }
                Ok(Err(fault)) => faults.push(format!("{host}: {fault}")),
                Err(error) => faults.push(format!("{host}: {}", describe_error(&error, patience))),
            }
        }
        Err(faults.join("; "))
    }

    fn connect_to_all(
        url: &ClusterUrl,
        tls: &Option<TlsCertificates>,
        topology: Topology,
        timeout: Duration,
    ) -> Result<ClusterLink, String> {
        let deadline = Instant::now() + timeout;
        let connect = |host: &String| {
            let time_left = deadline.saturating_duration_since(Instant::now());
            let connection = connect_to_member(&url.server_url(host), tls, time_left);
            connection
                .map_err(|error| format!("the primary {host}: {}", describe_error(&error, timeout)))
        };
        // All at once, because a handshake of TLS, or a server that hangs, takes long.
        let connections: Vec<Result<Connection, String>> = std::thread::scope(|scope| {
            let begin = |host| {
                let thread = std::thread::Builder::new();
                thread.spawn_scoped(scope, move || connect(host)).map_err(|_| host)
            };
            let begun: Vec<_> = topology.hosts.iter().map(begin).collect();
            let end = |thread: Result<ScopedJoinHandle<'_, _>, &String>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err("a panic".to_owned())),
                // The system gives no thread.
                Err(host) => connect(host),
            };
            begun.into_iter().map(end).collect()
        });
        let mut servers = Vec::with_capacity(connections.len());
        for (host, connection) in topology.hosts.into_iter().zip(connections) {
            servers.push(Primary { host, connection: connection? });
        }
        Ok(ClusterLink { servers, owners: topology.owners, redirections: 0 })
    }

    /// Returns false if a connection is known to be closed.
    pub fn is_open(&self) -> bool {
        self.servers.iter().all(|server| server.connection.is_open())
    }

    /// How many primaries have slots.
    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// The primaries, each as `HOST:PORT`.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().map(|server| server.host.as_str())
    }

    /// The primary that has the slot of a Redis key.
    pub fn find_server(&self, redis_key: &str) -> usize {
        self.owners.get(&Slot::for_key(redis_key)).copied().unwrap_or_default()
    }

    pub fn redirections(&self) -> u64 {
        self.redirections
    }

    /// Asks a primary for the slots, and notes their owners if the primaries are the same. Returns
    /// what has changed since this link knew them.
    pub fn update_owners(&mut self, timeout: Duration) -> Result<TopologyChange, String> {
        let Primary { host, connection } = &mut self.servers[0];
        let read = read_topology(connection, host, Instant::now() + timeout);
        let now = read.map_err(|error| describe_error(&error, timeout))??;
        let is_same_primaries = self.hosts().eq(now.hosts.iter().map(String::as_str));
        Ok(match is_same_primaries {
            false => TopologyChange::Primaries,
            true if now.owners == self.owners => TopologyChange::None,
            true => {
                self.owners = now.owners;
                TopologyChange::Owners
            }
        })
    }

    /// See [`Link::exchange`](super::link::Link::exchange). Follows slots that move.
    pub fn exchange(
        &mut self,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Value>, String> {
        let limit = TimeLimit { deadline: Instant::now() + timeout, timeout };
        let commands: Vec<&Cmd> = commands.cmd_iter().collect();
        let mut results = Results {
            replies: vec![Value::Nil; commands.len()],
            has_run_command: vec![false; self.servers.len()],
        };
        let mut pending: Vec<Pending> = Vec::new();
        let mut waits: Vec<usize> = Vec::new();
        for (index, command) in commands.iter().enumerate() {
            let server = match target::find_target(command) {
                Target::Slot(slot) => self.owners.get(&slot).copied().unwrap_or_default(),
                Target::Ring => self.find_server(RING_META_KEY),
                Target::ServersOfOthers => {
                    waits.push(index);
                    continue;
                }
            };
            pending.push(Pending { command: index, server, is_asking: false, redirections: 0 });
        }
        while !pending.is_empty() {
            let sent = self.send_pending(&commands, pending, limit)?;
            pending = self.receive_pending(sent, limit, &mut results)?;
        }
        for index in waits {
            let exchange = Exchange::of_commands(&commands[index..=index], limit.deadline);
            let servers = (0..self.servers.len()).filter(|server| results.has_run_command[*server]);
            let servers: Vec<usize> = servers.collect();
            let of_each = self.exchange_at_once(&servers, &exchange, limit)?;
            results.replies[index] = target::merge_wait_replies(of_each.into_iter().flatten());
        }
        Ok(results.replies)
    }

    /// See [`Link::exchange_with_servers`](super::link::Link::exchange_with_servers).
    pub fn exchange_with_servers(
        &mut self,
        servers: &[usize],
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Vec<Value>>, String> {
        let limit = TimeLimit { deadline: Instant::now() + timeout, timeout };
        self.exchange_at_once(servers, &Exchange::of_pipeline(commands, limit.deadline), limit)
    }

    /// Sends the same commands to several servers, before it reads a reply.
    fn exchange_at_once(
        &mut self,
        servers: &[usize],
        exchange: &Exchange,
        limit: TimeLimit,
    ) -> Result<Vec<Vec<Value>>, String> {
        servers.iter().try_for_each(|server| self.send(*server, exchange, limit))?;
        servers.iter().map(|server| self.receive(*server, exchange, limit)).collect()
    }

    /// Sends commands. Returns for each server what it was sent.
    fn send_pending(
        &mut self,
        commands: &[&Cmd],
        pending: Vec<Pending>,
        limit: TimeLimit,
    ) -> Result<Vec<(Vec<Pending>, Exchange)>, String> {
        let mut sent: Vec<(Vec<Pending>, Exchange)> = Vec::new();
        sent.resize_with(self.servers.len(), || (Vec::new(), Exchange::empty(limit.deadline)));
        for it in pending {
            let (of_server, exchange) = &mut sent[it.server];
            if it.is_asking {
                exchange.push(&redis::cmd("ASKING"));
            }
            exchange.push(commands[it.command]);
            of_server.push(it);
        }
        for (server, (_, exchange)) in sent.iter().enumerate().filter(|it| !it.1.0.is_empty()) {
            self.send(server, exchange, limit)?;
        }
        Ok(sent)
    }

    /// Reads the replies. Returns the commands that must be sent again.
    fn receive_pending(
        &mut self,
        sent: Vec<(Vec<Pending>, Exchange)>,
        limit: TimeLimit,
        results: &mut Results,
    ) -> Result<Vec<Pending>, String> {
        let (mut again, mut is_slot_moving) = (Vec::new(), false);
        for (server, (of_server, exchange)) in sent.into_iter().enumerate() {
            let mut received = self.receive(server, &exchange, limit)?.into_iter();
            for it in of_server {
                if it.is_asking {
                    // The reply to ASKING.
                    received.next();
                }
                let reply = received.next().unwrap_or(Value::Nil);
                match target::parse_redirection(&reply) {
                    Some(redirection) => again.push(self.follow(it, redirection)?),
                    None if target::must_try_again(&reply) && limit.may_wait_for_slot() => {
                        is_slot_moving = true;
                        again.push(it);
                    }
                    None => {
                        results.has_run_command[server] = true;
                        results.replies[it.command] = reply;
                    }
                }
            }
        }
        if is_slot_moving {
            std::thread::sleep(MOVING_SLOT_PAUSE);
        }
        Ok(again)
    }

    /// Finds the server to which a command must be sent again.
    fn follow(&mut self, it: Pending, redirection: Redirection) -> Result<Pending, String> {
        let Redirection { slot, host, is_asking } = redirection;
        if it.redirections == MAX_REDIRECTIONS {
            return Err(format!("slot {slot} was redirected {MAX_REDIRECTIONS} times"));
        }
        self.redirections += 1;
        // A server that does not know its own address leaves the name out.
        let host = match host.strip_prefix(':') {
            Some(port) => {
                let own = &self.servers[it.server].host;
                format!("{}:{port}", own.rsplit_once(':').map_or("", |(name, _)| name))
            }
            None => host,
        };
        let Some(server) = self.servers.iter().position(|known| known.host == host) else {
            return Err(format!("slot {slot} has moved to {host}, which had no slot before"));
        };
        if !is_asking && let Some(slot) = Slot::new(slot) {
            self.owners.insert(slot, server);
        }
        Ok(Pending { server, is_asking, redirections: it.redirections + 1, ..it })
    }

    fn send(&mut self, server: usize, exchange: &Exchange, limit: TimeLimit) -> Result<(), String> {
        let Primary { host, connection } = self.server(server)?;
        exchange.send(connection).map_err(|error| limit.describe(host, &error))
    }

    fn receive(
        &mut self,
        server: usize,
        exchange: &Exchange,
        limit: TimeLimit,
    ) -> Result<Vec<Value>, String> {
        let Primary { host, connection } = self.server(server)?;
        exchange.receive(connection).map_err(|error| limit.describe(host, &error))
    }

    /// Fails if the Cluster had more primaries when the caller counted them.
    fn server(&mut self, index: usize) -> Result<&mut Primary, String> {
        self.servers.get_mut(index).ok_or_else(|| "fewer primaries than before".to_owned())
    }
}

/// What has come back from the servers.
struct Results {
    /// The replies to the commands, in their order.
    replies: Vec<Value>,
    /// Whether each server has run a command.
    has_run_command: Vec<bool>,
}

/// How long an exchange may take.
#[derive(Clone, Copy)]
struct TimeLimit {
    deadline: Instant,
    timeout: Duration,
}

impl TimeLimit {
    /// Only a quarter of the time, because the other commands of the exchange wait as well.
    fn may_wait_for_slot(self) -> bool {
        Instant::now() + self.timeout * 3 / 4 < self.deadline
    }

    fn describe(self, host: &str, error: &redis::RedisError) -> String {
        format!("{host}: {}", describe_error(error, self.timeout))
    }
}

#[cfg(test)]
mod tests;
