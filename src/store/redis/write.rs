//! Runs scripts that write, and waits for imports that reserve the same names.

use std::time::{Duration, Instant};

use redis::{FromRedisValue, Pipeline, ToRedisArgs, Value};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::RING_REDIS_KEYS;
use super::reply::reply_number_or_zero;
use super::scripts::Script;
use crate::model::believed_time::TimeTrust;
use crate::store::audit::{Change, ChangeAuthor};
use crate::store::error::{self, StoreError};

/// How long a writer waits for an import that reserves the same names. If the process of an import
/// was killed, the import counts as abandoned after ten seconds.
const MAX_IMPORT_WAIT: Duration = Duration::from_secs(15);

const IMPORT_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The operation in errors about adding keys.
pub(super) const ADD_KEYS_OPERATION: &str = "adding keys";

/// How an import ends.
pub(super) enum ImportEnd<'c> {
    /// The rows of the import take effect, with this record.
    Commit(&'c ChangeAuthor, &'c Change),
    /// A page of the import's rows is deleted.
    Clear,
}

impl Redis {
    /// Runs a script that writes, and waits until `wait_replicas` replicas have the changes. If too
    /// few replicas get the changes in time, the call fails, although the server keeps the changes.
    pub(super) fn run_write_script<T: FromRedisValue>(
        &mut self,
        operation: &'static str,
        script: Script,
        redis_keys: &[&str],
        arguments: &[impl ToRedisArgs],
    ) -> Result<T, StoreError> {
        let (replicas, timeout) = (self.wait_replicas, self.timeout.max(BULK_TIMEOUT));
        let time_arguments = self.time_arguments();
        let mut replies = self.run_scripts(operation, timeout, |scripts| {
            let mut pipeline = Pipeline::new();
            script.push_call(&mut pipeline, scripts, redis_keys);
            pipeline.arg(arguments).arg(&time_arguments);
            if replicas > 0 {
                pipeline.cmd("WAIT").arg(replicas).arg(timeout.as_millis() as u64 / 2);
            }
            pipeline
        })?;
        self.check_for_errors(operation, &replies)?;
        let reached = if replicas > 0 { replies.pop().map_or(0, reply_number_or_zero) } else { 0 };
        self.check_replicas_have_it(operation, reached)?;
        self.parse_last_reply(operation, &mut replies)
    }

    /// Fails if fewer than `wait_replicas` replicas have a write that the server has made.
    /// `reached` is the reply to WAIT.
    pub(super) fn check_replicas_have_it(
        &self,
        operation: &'static str,
        reached: u64,
    ) -> Result<(), StoreError> {
        let replicas = self.wait_replicas;
        match reached < replicas as u64 {
            true => {
                let found =
                    format!("it is done, but only {reached} of {replicas} replicas have it");
                Err(self.unavailable_error(operation, found))
            }
            false => Ok(()),
        }
    }

    /// The last two arguments of scripts that begin with `ring_common.lua`: the believed time, and
    /// how far to trust it.
    pub(super) fn time_arguments(&self) -> [String; 2] {
        let now = self.told_time.now();
        let trust = match now.trust {
            TimeTrust::Settled => "settled",
            TimeTrust::Known => "known",
            TimeTrust::LowerBound => "bound",
        };
        [now.unix_now.to_string(), trust.to_owned()]
    }

    /// 128 random bits in hexadecimal.
    pub(super) fn random_id(&self) -> Result<String, StoreError> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| self.unavailable_error("drawing an id", error.to_string()))?;
        Ok(hex::encode(bytes))
    }

    /// Runs a script that writes keys or accounts, and returns the number that the script returns:
    /// the version, or 0 in the cases that the script names. If an import reserves one of their
    /// names, waits until the import ends, at most [`MAX_IMPORT_WAIT`]. Clears an abandoned import.
    pub(super) fn run_write_script_after_imports(
        &mut self,
        operation: &'static str,
        script: Script,
        redis_keys: &[&str],
        arguments: &[String],
    ) -> Result<u64, StoreError> {
        let started = Instant::now();
        loop {
            let reply: Value = self.run_write_script(operation, script, redis_keys, arguments)?;
            if !matches!(reply, Value::Array(_)) {
                return self.parse_reply(operation, reply);
            }
            let mut parts = self.parse_reply::<Vec<String>>(operation, reply)?.into_iter();
            let mut next = || parts.next().unwrap_or_default();
            match next().as_str() {
                "taken" => return Err(error::key_exists_error(&next(), &next())),
                "other_plan" => {
                    let (account, plans) = (next(), [next(), next()]);
                    let [present, found] = plans.map(parse_plan);
                    return Err(StoreError::OtherPlan { account, present, found });
                }
                "ended" => return Err(error::key_ended_error()),
                "repeated" => return Err(error::repeated_request_error()),
                _ if started.elapsed() > MAX_IMPORT_WAIT => {
                    let found = "another import of the same keys that has not ended";
                    return Err(self.unavailable_error(operation, found));
                }
                "abandoned" => self.clear_uncommitted_import(&next())?,
                // An import that may still be running reserves one of the names.
                _ => {}
            }
            std::thread::sleep(IMPORT_RETRY_INTERVAL);
        }
    }

    /// Deletes the rows of an import that was not committed, in pages. A committed import stays.
    pub(super) fn clear_uncommitted_import(&mut self, import_id: &str) -> Result<(), StoreError> {
        while self.run_end_import_script(import_id, ImportEnd::Clear)? > 0 {}
        Ok(())
    }

    /// Ends an import.
    /// - [`ImportEnd::Commit`]: the rows take effect. Returns the new version.
    /// - [`ImportEnd::Clear`]: deletes at most [`CHUNK_ROWS`] rows of the import. Returns how many
    ///   were deleted: 0 once no row is left, or if the import was committed.
    pub(super) fn run_end_import_script(
        &mut self,
        import_id: &str,
        end: ImportEnd<'_>,
    ) -> Result<u64, StoreError> {
        let (step, author, target, after) = match end {
            ImportEnd::Commit(author, Change { target, after, .. }) => {
                ("commit", author.to_json().to_string(), target.clone(), after.to_string())
            }
            ImportEnd::Clear => ("clear", String::new(), String::new(), String::new()),
        };
        let (import_id, rows) = (import_id.to_owned(), CHUNK_ROWS.to_string());
        let arguments =
            [self.random_id()?, author, import_id, step.to_owned(), rows, target, after];
        let script = Script::EndImport;
        self.run_write_script(ADD_KEYS_OPERATION, script, &RING_REDIS_KEYS, &arguments)
    }
}

/// Parses a plan in JSON, as rows have it.
fn parse_plan(json: String) -> String {
    serde_json::from_str(&json).unwrap_or(json)
}
