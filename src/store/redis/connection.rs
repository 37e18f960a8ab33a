//! The store's link to its servers, and its timeouts.
//!
//! If sending or receiving fails in any way, riskgate drops the link, because its connections may
//! still deliver replies to earlier commands.

use std::time::{Duration, Instant};

use redis::{FromRedisValue, Pipeline, ServerErrorKind, ToRedisArgs, Value};

use super::connector::{CertificateWatch, Connector, OpenLink};
use super::foreign::ForeignEntries;
use super::link::Link;
use super::options::RedisOptions;
use super::rate_charge_state::RateChargeState;
use super::reply::{error_kind, error_reply_text, info_field, reply_text_or_empty};
use super::ring_store::RingStore;
use super::scripts::Script;
use super::sentinels::NamedServer;
use crate::store::error::StoreError;
use crate::store::operations::{ConnectionBackend, ToldTime};
use crate::store::url::RedisUrl;

/// The timeout for connecting, with TLS and authentication, unless the timeout of operations is
/// longer. A second try to connect only has the time that is left.
pub(super) const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// The timeout for an exchange of many rows.
pub(super) const BULK_TIMEOUT: Duration = Duration::from_secs(5);
/// How many rows riskgate reads or writes at most at a time, where there may be many. A scan asks
/// for as many.
pub(super) const CHUNK_ROWS: usize = 1_000;

/// How often riskgate tries to run scripts that a server has forgotten: somebody may flush the
/// scripts again after riskgate has loaded them.
const MAX_SCRIPT_TRIES: usize = 5;

/// A server or a Cluster, and the link to it if there is one.
pub struct Redis {
    pub(super) connector: Connector,
    certificate_watch: CertificateWatch,
    /// The address without user and password, for errors.
    pub(super) location: String,
    /// The timeout of a short exchange.
    pub(super) timeout: Duration,
    /// See [`RedisOptions::wait_replicas`].
    pub(super) wait_replicas: usize,
    /// `None` until the first operation, and after a failure.
    pub(super) link: Option<Link>,
    /// How many links there were. A cursor of a scan, and what a probe has found, belong to a link.
    pub(super) link_number: u64,
    /// The number of the link over which the last probe was made, if it has succeeded.
    pub(super) probed_link: Option<u64>,
    /// The server that Sentinels named for the link.
    connected_to: Option<NamedServer>,
    /// See [`RedisOptions::ring_store`].
    pub(super) ring_store: RingStore,
    /// `RingStore::probes_of_other_stores` when the link was opened.
    pub(super) probes_of_other_stores: u64,
    /// Whether the keys of this process are read over this connection.
    pub(super) reads_keys: bool,
    /// Whether the server was found to be of the kind that the address says.
    has_checked_mode: bool,
    /// The SHA-1 digests of the scripts for EVALSHA, indexed by `Script`; empty until loaded.
    pub(super) script_digests: Vec<String>,
    /// How many of `wait_replicas` lack the latest report, as the last report or probe found.
    pub(super) missing_replicas: usize,
    /// Entries that riskgate did not write, among those of the keys and accounts.
    pub(super) foreign_entries: ForeignEntries,
    /// What the next charge of shared rates needs.
    pub(super) rate_charge_state: RateChargeState,
    pub(in crate::store) told_time: ToldTime,
}

impl ConnectionBackend for Redis {
    fn is_server(&self) -> bool {
        true
    }

    fn told_time(&mut self) -> &mut ToldTime {
        &mut self.told_time
    }

    fn name_store_of_keys(&mut self, store_id: &str) {
        self.reads_keys = true;
        self.ring_store.set_id(store_id);
    }

    fn check_still_safe(&mut self) -> Result<(), StoreError> {
        self.check_safe_if_reachable()
    }

    /// Fails if the server may evict keys when its memory is full, or is of another kind than the
    /// address says. A server that does not answer the first question passes.
    fn check_safe_if_reachable(&mut self) -> Result<(), StoreError> {
        let mut ask = redis::pipe();
        ask.cmd("INFO").arg("memory");
        if !self.has_checked_mode {
            ask.cmd("INFO").arg("server");
        }
        let of_each = match self.query_each_server_with_retry("reading its settings", &ask) {
            Ok(of_each) => of_each,
            Err(StoreError::Unavailable { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        for info in of_each {
            let info: String = info.into_iter().map(reply_text_or_empty).collect();
            if let Some((found, advice)) = self.find_wrong_mode(&info)? {
                let expected = "a server that is no Sentinel and no part of a Cluster";
                return Err(self.unusable_error(expected, format!("{found}; {advice}")));
            }
            let policy = info_field(&info, "maxmemory_policy");
            if policy != Some("noeviction") {
                let expected = "maxmemory-policy noeviction, because other policies evict counts";
                let found = policy.unwrap_or("no maxmemory_policy in INFO");
                return Err(self.unusable_error(expected, found));
            }
        }
        self.has_checked_mode = true;
        Ok(())
    }
}

impl Redis {
    /// Prepares a connection. The server need not be reachable yet.
    pub fn new(
        url: &RedisUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Redis, StoreError> {
        let (certificate_watch, connector) = CertificateWatch::begin(url, options)?;
        Ok(Redis {
            connector,
            certificate_watch,
            location: url.without_credentials(),
            timeout,
            wait_replicas: options.wait_replicas,
            link: None,
            link_number: 0,
            probed_link: None,
            connected_to: None,
            ring_store: options.ring_store.clone(),
            probes_of_other_stores: 0,
            reads_keys: false,
            has_checked_mode: false,
            script_digests: Vec::new(),
            missing_replicas: 0,
            foreign_entries: ForeignEntries::default(),
            rate_charge_state: RateChargeState::default(),
            told_time: ToldTime::unknown(),
        })
    }

    /// The error of a store that must not be used as it is.
    pub(super) fn unusable_error(
        &self,
        expected: &'static str,
        found: impl Into<String>,
    ) -> StoreError {
        StoreError::Unusable { location: self.location.clone(), expected, found: found.into() }
    }

    pub(super) fn unavailable_error(
        &self,
        operation: &'static str,
        found: impl Into<String>,
    ) -> StoreError {
        StoreError::Unavailable { location: self.location.clone(), operation, found: found.into() }
    }

    /// Returns what is wrong, and what to do, if `INFO server` is of a Sentinel, or of a server of
    /// a Cluster that has only some of the slots, but the address is that of one data server.
    pub(super) fn find_wrong_mode(
        &mut self,
        info: &str,
    ) -> Result<Option<(&'static str, &'static str)>, StoreError> {
        if !matches!(self.link, Some(Link::Server(_))) {
            return Ok(None);
        }
        // Valkey has another name for this field.
        let mode = info_field(info, "redis_mode").or_else(|| info_field(info, "server_mode"));
        Ok(match mode {
            Some("cluster") if self.lacks_slots()? => {
                Some(("a part of a Cluster", "write redis+cluster://HOST:PORT in store.url"))
            }
            Some("sentinel") => {
                let advice = "write redis+sentinel://HOST:PORT/SERVICE in store.url";
                Some(("a Sentinel", advice))
            }
            _ => None,
        })
    }

    /// Returns true if a server of a Cluster does not have the slot of one of 32 accounts. A server
    /// with all slots serves as a server of its own does.
    fn lacks_slots(&mut self) -> Result<bool, StoreError> {
        let mut read = redis::pipe();
        for account in 0..32 {
            read.cmd("HGET").arg(format!("riskgate:ledger:{{{account}}}")).arg("leased");
        }
        let replies = self.use_server("reading its slots", 0, &read, self.timeout)?;
        let count = |kind| replies.iter().filter(|reply| error_kind(reply) == Some(kind)).count();
        // Some slots have no server. While the whole Cluster is down, all replies are such errors.
        let is_some_slot_down = (1..replies.len()).contains(&count(ServerErrorKind::ClusterDown));
        Ok(count(ServerErrorKind::Moved) > 0 || is_some_slot_down)
    }

    /// Connects if there is no connection.
    pub(super) fn connect_if_needed(&mut self) -> Result<(), StoreError> {
        self.connect_if_needed_within(self.timeout.max(MIN_CONNECT_TIMEOUT))
    }

    pub(super) fn connect_if_needed_within(&mut self, timeout: Duration) -> Result<(), StoreError> {
        if self.is_connected() {
            return Ok(());
        }
        self.link = None;
        let deadline = Instant::now() + timeout;
        let mut connected = self.connector.connect(timeout);
        let time_left = deadline.saturating_duration_since(Instant::now());
        if connected.is_err()
            && !time_left.is_zero()
            && self.certificate_watch.renew(&mut self.connector)
        {
            connected = self.connector.connect(time_left);
        }
        let OpenLink { link, named } =
            connected.map_err(|error| self.unavailable_error("connecting", error))?;
        if named != self.connected_to {
            // Another server may not have the scripts.
            self.script_digests.clear();
        }
        (self.link, self.connected_to) = (Some(link), named);
        self.link_number += 1;
        let time_left = deadline.saturating_duration_since(Instant::now());
        self.check_store_of_new_link(time_left.max(self.timeout))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_open)
            && !self.connector.is_outdated(self.connected_to.as_ref())
            && (self.reads_keys
                || self.probes_of_other_stores == self.ring_store.probes_of_other_stores())
    }

    pub(super) fn load_scripts(&mut self, timeout: Duration) -> Result<(), StoreError> {
        const OPERATION: &str = "loading its scripts";
        let mut load = redis::pipe();
        for source in Script::sources() {
            load.cmd("SCRIPT").arg("LOAD").arg(source);
        }
        let mut loaded = self.send_to_each_server(OPERATION, &load, timeout)?;
        if let Some(found) = loaded.iter().flatten().find_map(error_reply_text) {
            return Err(self.drop_link(OPERATION, found));
        }
        // All servers have the same digests.
        let digests = loaded.pop().unwrap_or_default();
        self.script_digests = digests.into_iter().map(reply_text_or_empty).collect();
        Ok(())
    }

    /// Sends idempotent commands and returns their replies; connects first if needed. If the
    /// connection fails, connects again and sends the commands once more, within the time that is
    /// left. If one reply is an error, the whole query fails.
    pub(super) fn query_with_retry(
        &mut self,
        operation: &'static str,
        timeout: Duration,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        let replies = self.try_twice(timeout, |redis, time_left| {
            redis.send_once_and_read_replies(operation, commands, time_left)
        })?;
        self.check_for_errors(operation, &replies)?;
        Ok(replies)
    }

    /// Sends idempotent commands to each server, and returns the replies by server. Else like
    /// [`Redis::query_with_retry`].
    pub(super) fn query_each_server_with_retry(
        &mut self,
        operation: &'static str,
        commands: &Pipeline,
    ) -> Result<Vec<Vec<Value>>, StoreError> {
        let of_each = self.try_twice(self.timeout, |redis, time_left| {
            redis.send_to_each_server(operation, commands, time_left)
        })?;
        of_each.iter().try_for_each(|replies| self.check_for_errors(operation, replies))?;
        Ok(of_each)
    }

    /// Connects if needed, and exchanges idempotent commands. If the exchange fails, connects again
    /// and repeats it once, within the time that is left.
    fn try_twice<R>(
        &mut self,
        timeout: Duration,
        exchange: impl Fn(&mut Redis, Duration) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let deadline = Instant::now() + timeout;
        self.connect_if_needed()?;
        let exchanged = exchange(self, timeout);
        let time_left = || deadline.saturating_duration_since(Instant::now());
        if exchanged.is_ok() || time_left().is_zero() {
            return exchanged;
        }
        self.connect_if_needed_within(time_left())?;
        exchange(self, time_left())
    }

    /// Fails and drops the link if a reply is an error.
    pub(super) fn check_for_errors(
        &mut self,
        operation: &'static str,
        replies: &[Value],
    ) -> Result<(), StoreError> {
        match replies.iter().find_map(error_reply_text) {
            Some(found) => Err(self.drop_link(operation, found)),
            None => Ok(()),
        }
    }

    /// Drops the link, and makes the error that says why.
    pub(super) fn drop_link(
        &mut self,
        operation: &'static str,
        found: impl Into<String>,
    ) -> StoreError {
        self.link = None;
        self.unavailable_error(operation, found)
    }

    /// Sends one idempotent command as [`Redis::query_with_retry`] does, within [`BULK_TIMEOUT`],
    /// and parses its reply as `T`.
    pub(super) fn query<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        command: &str,
        arguments: impl ToRedisArgs,
    ) -> Result<T, StoreError> {
        self.query_within(operation, BULK_TIMEOUT, command, arguments)
    }

    /// Like [`Redis::query`], with another timeout.
    pub(super) fn query_within<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        timeout: Duration,
        command: &str,
        arguments: impl ToRedisArgs,
    ) -> Result<T, StoreError> {
        let mut commands = Pipeline::new();
        commands.cmd(command).arg(arguments);
        let mut replies = self.query_with_retry(operation, timeout, &commands)?;
        self.parse_last_reply(operation, &mut replies)
    }

    /// Parses the last reply as `T`. If it has another form, drops the connection, because further
    /// replies on it may belong to other commands. The error does not quote the reply, because
    /// errors are logged and the reply may hold secrets.
    pub(super) fn parse_last_reply<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        replies: &mut Vec<Value>,
    ) -> Result<T, StoreError> {
        self.parse_reply(operation, replies.pop().unwrap_or(Value::Nil))
    }

    /// Like [`Redis::parse_last_reply`], for one reply.
    pub(super) fn parse_reply<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        reply: Value,
    ) -> Result<T, StoreError> {
        redis::from_redis_value(reply)
            .map_err(|_| self.drop_link(operation, "a reply of another form"))
    }

    /// Runs scripts; connects first if needed. `build_pipeline` gets the digests of the scripts and
    /// returns the commands. If the server does not have a script, riskgate loads all scripts and
    /// sends all commands again. Scripts that ran already then run again, so several scripts in one
    /// pipeline must be idempotent.
    pub(super) fn run_scripts(
        &mut self,
        operation: &'static str,
        timeout: Duration,
        build_pipeline: impl Fn(&[String]) -> Pipeline,
    ) -> Result<Vec<Value>, StoreError> {
        self.connect_if_needed()?;
        if self.script_digests.is_empty() {
            self.load_scripts(timeout)?;
        }
        let mut tries = 1;
        loop {
            let replies = self.send_once_and_read_replies(
                operation,
                &build_pipeline(&self.script_digests),
                timeout,
            )?;
            let is_missing = |it: &Value| error_kind(it) == Some(ServerErrorKind::NoScript);
            if tries == MAX_SCRIPT_TRIES || !replies.iter().any(is_missing) {
                return Ok(replies);
            }
            self.load_scripts(timeout)?;
            tries += 1;
        }
    }

    /// Runs one script, without waiting for replicas, and parses its reply as `T`. `add_arguments`
    /// adds the script's arguments. If the reply is an error, drops the connection.
    pub(super) fn run_script<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        timeout: Duration,
        (script, redis_keys): (Script, &[&str]),
        add_arguments: impl Fn(&mut Pipeline),
    ) -> Result<T, StoreError> {
        let mut replies = self.run_scripts(operation, timeout, |scripts| {
            let mut pipeline = Pipeline::new();
            script.push_call(&mut pipeline, scripts, redis_keys);
            add_arguments(&mut pipeline);
            pipeline
        })?;
        self.check_for_errors(operation, &replies)?;
        self.parse_last_reply(operation, &mut replies)
    }

    /// Runs one script that only reads, as [`Redis::query_with_retry`] sends commands, and parses
    /// its reply as `T`. A server whose memory is full runs such a script.
    pub(super) fn run_read_script<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        timeout: Duration,
        (script, redis_keys): (Script, &[&str]),
        arguments: &[u64],
    ) -> Result<T, StoreError> {
        let mut replies = self.try_twice(timeout, |redis, time_left| {
            redis.run_scripts(operation, time_left, |scripts| {
                let mut pipeline = Pipeline::new();
                script.push_call(&mut pipeline, scripts, redis_keys);
                pipeline.arg(arguments);
                pipeline
            })
        })?;
        self.check_for_errors(operation, &replies)?;
        self.parse_last_reply(operation, &mut replies)
    }

    /// Sends all commands and reads all replies within `timeout`, without a retry. Any failure
    /// drops the connection.
    pub(super) fn send_once_and_read_replies(
        &mut self,
        operation: &'static str,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Value>, StoreError> {
        let exchanged =
            self.use_link(operation, |link| Ok(vec![link.exchange(commands, timeout)?]))?;
        Ok(exchanged.into_iter().flatten().collect())
    }

    /// Sends all commands to each server, and reads all replies within `timeout`, without a retry.
    /// Connects first if needed. Returns the replies by server. Any failure drops the link.
    pub(super) fn send_to_each_server(
        &mut self,
        operation: &'static str,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Vec<Value>>, StoreError> {
        self.connect_if_needed()?;
        self.use_link(operation, |link| {
            let servers: Vec<usize> = (0..link.server_count()).collect();
            link.exchange_with_servers(&servers, commands, timeout)
        })
    }

    /// Sends all commands to one server, and reads all replies within `timeout`, without a retry.
    /// Any failure drops the link.
    pub(super) fn use_server(
        &mut self,
        operation: &'static str,
        server: usize,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Value>, StoreError> {
        let exchange = |link: &mut Link| link.exchange_with_servers(&[server], commands, timeout);
        Ok(self.use_link(operation, exchange)?.into_iter().flatten().collect())
    }

    /// Exchanges commands and replies over the link. Any failure drops the link.
    fn use_link(
        &mut self,
        operation: &'static str,
        exchange: impl FnOnce(&mut Link) -> Result<Vec<Vec<Value>>, String>,
    ) -> Result<Vec<Vec<Value>>, StoreError> {
        let Some(mut link) = self.link.take() else {
            return Err(self.unavailable_error(operation, "no connection"));
        };
        let exchanged = exchange(&mut link);
        let replies = exchanged.map_err(|found| self.unavailable_error(operation, found))?;
        // If the server has become a replica, riskgate connects again: the host name of the store,
        // or the Sentinels, may lead to another server by now.
        let is_read_only = |it: &Value| error_kind(it) == Some(ServerErrorKind::ReadOnly);
        if !replies.iter().flatten().any(is_read_only) {
            self.link = Some(link);
        }
        Ok(replies)
    }
}
