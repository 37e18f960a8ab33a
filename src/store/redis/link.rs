//! The open connections to a store: one to a single server, or one to each primary of a Cluster.

use std::time::{Duration, Instant};

use redis::{Connection, ConnectionLike, Pipeline, Value};

use super::cluster::{ClusterLink, TopologyChange};
use super::exchange::{Exchange, describe_error};

/// The open connections to a store.
pub(super) enum Link {
    /// To one server.
    Server(Connection),
    /// To all primaries of a Cluster.
    Cluster(ClusterLink),
}

impl Link {
    /// Returns false if a connection is known to be closed.
    pub fn is_open(&self) -> bool {
        match self {
            Link::Server(connection) => connection.is_open(),
            Link::Cluster(cluster) => cluster.is_open(),
        }
    }

    /// The server that has a Redis key.
    pub fn find_server(&self, redis_key: &str) -> usize {
        match self {
            Link::Server(_) => 0,
            Link::Cluster(cluster) => cluster.find_server(redis_key),
        }
    }

    /// Reads again which servers hold the store. Returns what has changed since the link knew them.
    pub fn update_owners(&mut self, timeout: Duration) -> Result<TopologyChange, String> {
        match self {
            Link::Server(_) => Ok(TopologyChange::None),
            Link::Cluster(cluster) => cluster.update_owners(timeout),
        }
    }

    /// How often a server of a Cluster has redirected a command.
    pub fn redirections(&self) -> u64 {
        match self {
            Link::Server(_) => 0,
            Link::Cluster(cluster) => cluster.redirections(),
        }
    }

    /// How many servers hold the store.
    pub fn server_count(&self) -> usize {
        match self {
            Link::Server(_) => 1,
            Link::Cluster(cluster) => cluster.server_count(),
        }
    }

    /// Sends all commands, each to the server that has its Redis key, and reads all replies within
    /// `timeout`. After an error, replies may be left on a connection, so the link must be dropped.
    pub fn exchange(
        &mut self,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Value>, String> {
        match self {
            Link::Server(connection) => {
                let exchange = Exchange::of_pipeline(commands, Instant::now() + timeout);
                exchange.run(connection).map_err(|error| describe_error(&error, timeout))
            }
            Link::Cluster(cluster) => cluster.exchange(commands, timeout),
        }
    }

    /// Sends all commands to each of these servers, whatever Redis keys they have. Returns the
    /// replies by server. Else like [`Link::exchange`].
    pub fn exchange_with_servers(
        &mut self,
        servers: &[usize],
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Vec<Value>>, String> {
        match self {
            Link::Server(_) => Ok(vec![self.exchange(commands, timeout)?]),
            Link::Cluster(cluster) => cluster.exchange_with_servers(servers, commands, timeout),
        }
    }
}
