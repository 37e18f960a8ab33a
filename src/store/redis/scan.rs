//! Reads whole hashes and sets, and finds Redis keys by a pattern: a chunk at a time.

use std::collections::BTreeSet;

use redis::{FromRedisValue, Pipeline};

use super::connection::{CHUNK_ROWS, Redis};
use crate::store::error::StoreError;

impl Redis {
    /// Passes each field of a hash and its value to `visit_pair`. A field may come twice.
    pub(super) fn scan_hash_fields(
        &mut self,
        operation: &'static str,
        hash_key: &str,
        mut visit_pair: impl FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), StoreError> {
        let scan = |scan: &mut Pipeline, cursor| {
            scan.cmd("HSCAN").arg(hash_key).arg(cursor);
        };
        self.scan_elements(operation, scan, |(name, text)| visit_pair(name, text))
    }

    /// Passes each member of a set to `visit`. A member may come twice.
    pub(super) fn scan_set_members(
        &mut self,
        operation: &'static str,
        set_key: &str,
        visit: impl FnMut(Vec<u8>),
    ) -> Result<(), StoreError> {
        let scan = |scan: &mut Pipeline, cursor| {
            scan.cmd("SSCAN").arg(set_key).arg(cursor);
        };
        self.scan_elements(operation, scan, visit)
    }

    /// Finds the Redis keys whose names match a pattern.
    pub(super) fn find_redis_keys(
        &mut self,
        operation: &'static str,
        pattern: &str,
    ) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let scan = |scan: &mut Pipeline, cursor| {
            scan.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern);
        };
        let mut found = BTreeSet::new();
        self.scan_elements(operation, scan, |name| found.extend([name]))?;
        Ok(found)
    }

    /// Repeats a scan command until its cursor is 0 again, and passes each element to `visit`.
    /// `add_command` adds the command with a cursor.
    fn scan_elements<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        add_command: impl Fn(&mut Pipeline, u64),
        mut visit: impl FnMut(T),
    ) -> Result<(), StoreError> {
        let mut cursor = 0;
        loop {
            let mut scan = redis::pipe();
            add_command(&mut scan, cursor);
            scan.arg("COUNT").arg(CHUNK_ROWS);
            let (next, elements): (u64, Vec<T>) = self.query_last_reply(operation, &scan)?;
            elements.into_iter().for_each(&mut visit);
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}
