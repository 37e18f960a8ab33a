//! Reads from a server of a Cluster which primary has which hash slot.

use std::collections::HashMap;
use std::time::Instant;

use redis::cluster_routing::Slot;
use redis::{Connection, RedisResult, Value};

use crate::store::redis::exchange::Exchange;
use crate::store::redis::reply::{error_reply_text, info_field, reply_text_or_empty};

/// The number of hash slots of every Cluster.
const SLOT_COUNT: u16 = 16_384;

/// Which primary has which slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Topology {
    /// The primaries that have slots, each as `HOST:PORT`, in alphabetical order.
    pub hosts: Vec<String>,
    /// The index of the primary in `hosts` for every slot.
    pub owners: HashMap<Slot, usize>,
}

/// Asks a server for the slots. The inner error says why its answer can't be used: the server
/// belongs to no Cluster, is cut off from most of it, or knows no owner of a slot. `host` is the
/// server's own address.
pub(super) fn read_topology(
    connection: &mut Connection,
    host: &str,
    deadline: Instant,
) -> RedisResult<Result<Topology, String>> {
    let mut ask = redis::pipe();
    ask.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
    let replies = Exchange::of_pipeline(&ask, deadline).run(connection)?;
    let [info, slots] = replies.try_into().unwrap_or([Value::Nil, Value::Nil]);
    if let Some(error) = [&info, &slots].into_iter().find_map(error_reply_text) {
        let advice = match error.contains("cluster support disabled") {
            true => "; write redis:// for a server outside a Cluster",
            false => "",
        };
        return Ok(Err(format!("{error}{advice}")));
    }
    Ok(match info_field(&reply_text_or_empty(info), "cluster_state") {
        Some("ok") => parse_slots(slots, host),
        state => Err(format!("cluster_state is {}", state.unwrap_or("unknown"))),
    })
}

/// Reads the reply to CLUSTER SLOTS.
fn parse_slots(reply: Value, answering_host: &str) -> Result<Topology, String> {
    let unreadable = || "a reply of another form to CLUSTER SLOTS".to_owned();
    let Value::Array(ranges) = reply else { return Err(unreadable()) };
    let mut read = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Value::Array(parts) = range else { return Err(unreadable()) };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..] else {
            return Err(unreadable());
        };
        let host = parse_address(primary, answering_host).ok_or_else(|| {
            format!("no address of the primary that has the slots {first} to {last}")
        })?;
        let [Ok(first), Ok(last)] = [first, last].map(|slot| u16::try_from(*slot)) else {
            return Err(unreadable());
        };
        read.push((first..=last.min(SLOT_COUNT - 1), host));
    }
    let mut hosts: Vec<String> = read.iter().map(|(_, host)| host.clone()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut owners = HashMap::with_capacity(usize::from(SLOT_COUNT));
    for (slots, host) in read {
        let Ok(server) = hosts.binary_search(&host) else { continue };
        owners.extend(slots.filter_map(Slot::new).map(|slot| (slot, server)));
    }
    let is_unowned = |slot: &u16| Slot::new(*slot).is_none_or(|slot| !owners.contains_key(&slot));
    match (0..SLOT_COUNT).find(is_unowned) {
        Some(slot) => Err(format!("slot {slot} has no owner")),
        None => Ok(Topology { hosts, owners }),
    }
}

/// Reads the address of a server: its host, which may be empty for the host that answered, and its
/// port.
fn parse_address(server: &[Value], answering_host: &str) -> Option<String> {
    let (host, port) = (server.first()?, server.get(1)?);
    let Value::Int(port) = port else { return None };
    let host = match host {
        Value::Nil => String::new(),
        host => redis::from_redis_value_ref(host).ok()?,
    };
    match host.as_str() {
        "?" => None,
        "" => Some(format!("{}:{port}", answering_host.rsplit_once(':')?.0)),
        host if host.contains(':') => Some(format!("[{host}]:{port}")),
        host => Some(format!("{host}:{port}")),
    }
}

#[cfg(test)]
mod tests;
