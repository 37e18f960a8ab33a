//! Reads whole hashes and sets, and finds Redis keys by a pattern: a chunk at a time.

use std::collections::BTreeSet;

use redis::{FromRedisValue, ToRedisArgs};

use super::cluster::TopologyChange;
use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::link::Link;
use crate::store::error::StoreError;

/// How often riskgate scans at most, if slots move during each scan.
const MAX_SCANS: usize = 10;

impl Redis {
    /// Passes each field of a hash and its value to `visit_pair`. A field may come twice.
    pub(super) fn scan_hash_fields(
        &mut self,
        operation: &'static str,
        hash_key: impl ToRedisArgs + Copy,
        mut visit_pair: impl FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), StoreError> {
        let visit = |(name, text)| visit_pair(name, text);
        self.scan_redis_key(operation, "HSCAN", hash_key, visit)
    }

    /// Passes each member of a set to `visit`. A member may come twice.
    pub(super) fn scan_set_members(
        &mut self,
        operation: &'static str,
        set_key: &str,
        visit: impl FnMut(Vec<u8>),
    ) -> Result<(), StoreError> {
        self.scan_redis_key(operation, "SSCAN", set_key, visit)
    }

    /// Scans one Redis key. Begins again if another server may have answered meanwhile: a cursor
    /// is of use only to the server that has given it.
    fn scan_redis_key<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        command: &'static str,
        redis_key: impl ToRedisArgs + Copy,
        mut visit: impl FnMut(T),
    ) -> Result<(), StoreError> {
        for _ in 0..MAX_SCANS {
            self.connect_if_needed()?;
            let route = self.route();
            let scan = |redis: &mut Redis, cursor: u64| {
                redis.query(operation, command, (redis_key, cursor, "COUNT", CHUNK_ROWS))
            };
            self.scan_elements(scan, &mut visit)?;
            if self.route() == route {
                return Ok(());
            }
        }
        Err(self.unavailable_error(operation, "slots that moved during each scan"))
    }

    /// Changes if commands may go to other servers than before.
    fn route(&self) -> (u64, u64) {
        (self.link_number, self.link.as_ref().map_or(0, Link::redirections))
    }

    /// Finds the Redis keys whose names match a pattern, on all servers. If slots move from one
    /// server to another meanwhile, or the first scan fails, begins again.
    pub(super) fn find_redis_keys(
        &mut self,
        operation: &'static str,
        pattern: &str,
    ) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        for scans in 1..=MAX_SCANS {
            match self.scan_servers(operation, pattern) {
                Ok(Some(found)) => return Ok(found),
                Err(error) if scans > 1 => return Err(error),
                _ => {}
            }
        }
        Err(self.unavailable_error(operation, "slots that moved during each scan"))
    }

    /// Scans each server. `None` if slots have moved during the scan.
    fn scan_servers(
        &mut self,
        operation: &'static str,
        pattern: &str,
    ) -> Result<Option<BTreeSet<Vec<u8>>>, StoreError> {
        self.connect_if_needed()?;
        let mut found = BTreeSet::new();
        let servers = 0..self.link.as_ref().map_or(0, Link::server_count);
        // While a slot is moving, its Redis keys move one after another. What moves to a server
        // that was scanned already is found on the way back.
        let way_back = servers.clone().rev().skip(1);
        for server in servers.chain(way_back) {
            let scan = |redis: &mut Redis, cursor: u64| {
                let mut scan = redis::pipe();
                scan.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern);
                scan.arg("COUNT").arg(CHUNK_ROWS);
                let mut replies = redis.use_server(operation, server, &scan, BULK_TIMEOUT)?;
                redis.check_for_errors(operation, &replies)?;
                redis.parse_last_reply(operation, &mut replies)
            };
            self.scan_elements(scan, |name| found.extend([name]))?;
        }
        Ok(self.is_link_current(operation)?.then_some(found))
    }

    /// Returns false, and drops the link, if slots have moved since it was opened.
    fn is_link_current(&mut self, operation: &'static str) -> Result<bool, StoreError> {
        let Some(mut link) = self.link.take() else { return Ok(false) };
        let change = link.update_owners(BULK_TIMEOUT);
        match change.map_err(|found| self.unavailable_error(operation, found))? {
            TopologyChange::None => self.link = Some(link),
            TopologyChange::Owners | TopologyChange::Primaries => return Ok(false),
        }
        Ok(true)
    }

    /// Repeats a scan command until its cursor is 0 again, and passes each element to `visit`.
    /// `scan` sends the command with a cursor.
    fn scan_elements<T: FromRedisValue>(
        &mut self,
        scan: impl Fn(&mut Redis, u64) -> Result<(u64, Vec<T>), StoreError>,
        mut visit: impl FnMut(T),
    ) -> Result<(), StoreError> {
        let mut cursor = 0;
        loop {
            let (next, elements) = scan(self, cursor)?;
            elements.into_iter().for_each(&mut visit);
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}
