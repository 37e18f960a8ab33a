//! Tells whether the servers of the store were restarted, replaced or emptied.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::cluster_routing::Slot;
use redis::{Pipeline, Value};
use sha2::{Digest, Sha256};

use super::cluster::TopologyChange;
use super::connection::Redis;
use super::key_names::RING_META_KEY;
use super::link::Link;
use super::reply::{error_reply_text, info_field, replica_lines, reply_text_or_empty};
use crate::store::error::StoreError;

/// How many Redis keys mark the data of a Cluster: one in each part of 256 slots. So a primary with
/// 511 slots in a row has at least one.
const MARK_COUNT: usize = 64;
const SLOT_COUNT: usize = 16_384;
/// Replicas acknowledge their offset once a second. A replica that has acknowledged nothing for
/// more than this many seconds counts as missing.
const MAX_REPLICA_LAG_SECONDS: i64 = 2;

/// The names of the marks. If a primary loses its data, it loses its marks. If slots move to
/// another primary, the marks move with them.
pub(super) static MARKS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let part_of: HashMap<Slot, usize> = (0..SLOT_COUNT)
        .filter_map(|slot| Some((Slot::new(slot as u16)?, slot * MARK_COUNT / SLOT_COUNT)))
        .collect();
    let mut names = vec![String::new(); MARK_COUNT];
    let mut missing = MARK_COUNT;
    // Of the tags m0, m1, m2 and so on, the first in each part of the slots.
    for number in 0.. {
        let tag = format!("m{number}");
        let part = part_of.get(&Slot::for_key(&tag)).copied().unwrap_or_default();
        if names[part].is_empty() {
            names[part] = format!("riskgate:{{{tag}}}:mark");
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    names
});

/// What a probe reads from the servers of a store.
pub(super) struct ServerStates {
    /// Changes if a server is restarted or replaced, or if a primary of a Cluster loses its data.
    pub incarnation: String,
    /// An id of the data, for data that have none.
    pub new_beginning: String,
    /// The clock of the server that has the keys and accounts.
    pub unix_now: i64,
    /// How many replicas of each server have acknowledged recently: the fewest of a server.
    pub live_replicas: usize,
    /// Which primary of a Cluster refuses writes, and why.
    pub write_refusal: Option<String>,
    /// The number of the link over which all of this was read.
    pub link_number: u64,
}

impl Redis {
    pub(super) fn read_server_states(
        &mut self,
        operation: &'static str,
    ) -> Result<ServerStates, StoreError> {
        self.connect_if_needed()?;
        self.leave_outdated_primaries(operation)?;
        let mut ask = redis::pipe();
        ask.cmd("INFO").arg("server").cmd("INFO").arg("replication").cmd("TIME");
        let of_each = self.query_each_server_with_retry(operation, &ask)?;
        let link_number = self.link_number;
        let ring_server = self.link.as_ref().map_or(0, |link| link.find_server(RING_META_KEY));
        let mut incarnations = Vec::with_capacity(of_each.len());
        let (mut ring_state, mut live_replicas) = (None, usize::MAX);
        for (server, replies) in of_each.into_iter().enumerate() {
            let [info, replication, time] = replies.try_into().unwrap_or_default();
            let (info, replication) = (reply_text_or_empty(info), reply_text_or_empty(replication));
            let (Some(run_id), Some(replication_id)) =
                (info_field(&info, "run_id"), info_field(&replication, "master_replid"))
            else {
                return Err(self.unavailable_error(operation, "no run_id or master_replid in INFO"));
            };
            incarnations.push(format!("{run_id}/{replication_id}"));
            live_replicas = live_replicas.min(count_live_replicas(&replication));
            if server == ring_server {
                let time: (i64, i64) = self.parse_reply(operation, time)?;
                ring_state = Some((format!("{run_id}@{}.{:06}", time.0, time.1), time.0));
            }
        }
        let Some((new_beginning, unix_now)) = ring_state else {
            return Err(self.unavailable_error(operation, "no reply"));
        };
        let mut write_refusal = None;
        let incarnation = match self.link {
            Some(Link::Cluster(_)) => {
                incarnations.sort_unstable();
                incarnations.extend(self.read_marks(operation, &new_beginning)?);
                write_refusal = self.find_write_refusal(operation)?;
                hex::encode(&Sha256::digest(incarnations.join(" "))[..16])
            }
            _ => incarnations.concat(),
        };
        Ok(ServerStates {
            incarnation,
            new_beginning,
            unix_now,
            live_replicas,
            write_refusal,
            link_number,
        })
    }

    /// Connects again if the Cluster has other primaries now: a primary that has lost its last slot
    /// must not count, and one that has got its first slot must.
    fn leave_outdated_primaries(&mut self, operation: &'static str) -> Result<(), StoreError> {
        let Some(mut link) = self.link.take() else { return Ok(()) };
        let change = link.update_owners(self.timeout);
        // If the server that was asked does not answer, another may.
        if matches!(change, Ok(TopologyChange::None | TopologyChange::Owners)) {
            self.link = Some(link);
            return Ok(());
        }
        log::debug!("{operation}: connecting again to the primaries: {change:?}");
        self.connect_if_needed()
    }

    /// Tries on each primary of a Cluster with a mark to set a mark that exists, which changes
    /// nothing.
    fn find_write_refusal(
        &mut self,
        operation: &'static str,
    ) -> Result<Option<String>, StoreError> {
        let Some(Link::Cluster(cluster)) = &self.link else { return Ok(None) };
        let (mut write, mut hosts) = (Pipeline::new(), Vec::new());
        for (server, host) in cluster.hosts().enumerate() {
            if let Some(mark) = MARKS.iter().find(|mark| cluster.find_server(mark) == server) {
                write.cmd("SET").arg(mark).arg("").arg("NX");
                hosts.push(host.to_owned());
            }
        }
        let replies = self.send_once_and_read_replies(operation, &write, self.timeout)?;
        let refused = hosts.iter().zip(&replies);
        let refused = refused.filter_map(|(host, reply)| Some((host, error_reply_text(reply)?)));
        Ok(refused.map(|(host, error)| format!("{host}: {error}")).next())
    }

    /// Reads the marks of a Cluster, and sets those that are missing to `new_mark`.
    fn read_marks(
        &mut self,
        operation: &'static str,
        new_mark: &str,
    ) -> Result<Vec<String>, StoreError> {
        let mut read = Pipeline::new();
        for mark in MARKS.iter() {
            read.cmd("GET").arg(mark);
        }
        let found = self.query_with_retry(operation, self.timeout, &read)?;
        let is_missing = |reply: &&Value| matches!(reply, Value::Nil);
        if found.iter().find(is_missing).is_none() {
            return Ok(found.into_iter().map(reply_text_or_empty).collect());
        }
        // Another node may set the same marks at the same time.
        let mut set = Pipeline::new();
        for (mark, _) in MARKS.iter().zip(&found).filter(|it| is_missing(&it.1)) {
            set.cmd("SET").arg(mark).arg(new_mark).arg("NX");
        }
        self.query_with_retry(operation, self.timeout, &set)?;
        let found = self.query_with_retry(operation, self.timeout, &read)?;
        Ok(found.into_iter().map(reply_text_or_empty).collect())
    }
}

/// Counts the connected replicas that acknowledged recently, from `INFO replication`.
fn count_live_replicas(replication_info: &str) -> usize {
    let is_connected = |line: &&str| {
        let fields = line.split_once(':').map_or("", |(_, fields)| fields);
        let field = |name: &str| {
            fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let lag = field("lag").and_then(|lag| lag.parse::<i64>().ok());
        field("state") == Some("online")
            && lag.is_some_and(|lag| (0..=MAX_REPLICA_LAG_SECONDS).contains(&lag))
    };
    replica_lines(replication_info).filter(is_connected).count()
}

#[cfg(test)]
mod tests;
