//! Deletes rows that are past their time from a server, in pages. The dedup hashes of the top list
//! are sets of one day each, which expire by themselves.

use super::connection::{BULK_TIMEOUT, Redis};
use super::key_names::REPEATABLE_REQUESTS;
use super::learned::{DNS_FACTS_KEY, DNS_NAMES_BY_VERSION_KEY};
use super::scripts::Script;
use crate::store::error::StoreError;
use crate::store::operations::ExpiredRowBackend;
use crate::store::rows::{
    EXPIRED_ROWS_PER_PAGE, MAX_PAGES_OF_EXPIRED_ROWS, latest_forgotten_request_time,
};

impl ExpiredRowBackend for Redis {
    fn delete_expired_rows(&mut self, latest_useless_dns_expiry: i64) -> Result<(), StoreError> {
        let now = self.told_time.now();
        if !now.allows_deletion() {
            return Ok(());
        }
        let forgotten = latest_forgotten_request_time(now.unix_now);
        self.delete_expired_fields(&[REPEATABLE_REQUESTS], forgotten)?;
        let dns_keys = [DNS_FACTS_KEY, DNS_NAMES_BY_VERSION_KEY];
        self.delete_expired_fields(&dns_keys, latest_useless_dns_expiry)
    }
}

impl Redis {
    /// Deletes the fields of a hash that have this time or an earlier one. `redis_keys` are those
    /// of `delete_expired.lua`. If another server answers meanwhile, its cursors differ, and some
    /// fields stay until the next call.
    fn delete_expired_fields(
        &mut self,
        redis_keys: &[&str],
        latest: i64,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "deleting expired rows";
        let mut cursor = "0".to_owned();
        for _ in 0..MAX_PAGES_OF_EXPIRED_ROWS {
            let script = (Script::DeleteExpired, redis_keys);
            cursor = self.run_script(OPERATION, BULK_TIMEOUT, script, |pipeline| {
                pipeline.arg(&cursor).arg(latest).arg(EXPIRED_ROWS_PER_PAGE);
            })?;
            if cursor == "0" {
                break;
            }
        }
        Ok(())
    }
}
