//! Runs scripts that write, and waits for imports that hold the same names.

use std::time::{Duration, Instant};

use redis::{Pipeline, Value};

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::{RING_KEYS, plans_key};
use super::reply::{reply_number, server_error, to_hex};
use super::scripts::Script;
use crate::store::error::{self, StoreError};

/// For so long somebody who meets names of an import waits for its end: longer than they are held.
const IMPORT_WAIT: Duration = Duration::from_secs(15);

const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// What is being done where keys are added.
pub(super) const ADDING: &str = "adding keys";

/// What a script says that met an import, or a key that is no new one.
enum WriteReply {
    Version(u64),
    Taken { id: String, known: String },
    Ended,
    Busy,
    Abandoned { import: String },
}

impl Redis {
    /// Runs a script that writes, and waits until as many replicas as are asked for have it.
    pub(super) fn run_write_script(
        &mut self,
        doing: &'static str,
        script: Script,
        names: &[&str],
        arguments: &[String],
    ) -> Result<Value, StoreError> {
        let (wait, timeout) = (self.wait_replicas, self.patience.max(BULK_TIMEOUT));
        let mut replies = self.run_scripts_within(doing, timeout, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("EVALSHA").arg(&scripts[script as usize]).arg(names.len());
            pipeline.arg(names).arg(arguments);
            if wait > 0 {
                pipeline.cmd("WAIT").arg(wait).arg(timeout.as_millis() as u64 / 2);
            }
            pipeline
        })?;
        if let Some(found) = replies.iter().find_map(server_error) {
            self.connection = None;
            return Err(self.unavailable(doing, found));
        }
        let reached = if wait > 0 { replies.pop().map_or(0, reply_number) } else { 0 };
        if reached < wait as u64 {
            let found = format!("it is done, but only {reached} of {wait} replicas have it");
            return Err(self.unavailable(doing, found));
        }
        Ok(replies.pop().unwrap_or(Value::Nil))
    }

    /// 128 random bits.
    pub(super) fn random_id(&self) -> Result<String, StoreError> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| self.unavailable("drawing an id", error.to_string()))?;
        Ok(to_hex(&bytes))
    }

    /// Runs a script that may meet names which an import holds: waits for its end, and clears it
    /// away if it was given up.
    pub(super) fn write_after_imports(
        &mut self,
        doing: &'static str,
        script: Script,
        names: &[&str],
        arguments: &[String],
    ) -> Result<u64, StoreError> {
        let begun = Instant::now();
        loop {
            let reply = self.run_write_script(doing, script, names, arguments)?;
            match self.parse_write_reply(doing, reply)? {
                WriteReply::Version(version) => return Ok(version),
                WriteReply::Taken { id, known } => {
                    return Err(error::key_exists_error(&id, &known));
                }
                WriteReply::Ended => return Err(error::key_ended_error()),
                _ if begun.elapsed() > IMPORT_WAIT => {
                    return Err(self
                        .unavailable(doing, "another import of the same keys that has not ended"));
                }
                WriteReply::Busy => {}
                WriteReply::Abandoned { import } => self.clear_import(&import)?,
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    fn parse_write_reply(
        &mut self,
        doing: &'static str,
        reply: Value,
    ) -> Result<WriteReply, StoreError> {
        if !matches!(reply, Value::Array(_)) {
            return self.parse_reply(doing, reply).map(WriteReply::Version);
        }
        let mut words = self.parse_reply::<Vec<String>>(doing, reply)?.into_iter();
        let mut next = || words.next().unwrap_or_default();
        Ok(match next().as_str() {
            "taken" => WriteReply::Taken { id: next(), known: next() },
            "ended" => WriteReply::Ended,
            "abandoned" => WriteReply::Abandoned { import: next() },
            _ => WriteReply::Busy,
        })
    }

    pub(super) fn clear_import(&mut self, import: &str) -> Result<(), StoreError> {
        while self.end_import(import, "clear")? > 0 {}
        Ok(())
    }

    pub(super) fn end_import(&mut self, import: &str, how: &str) -> Result<u64, StoreError> {
        let arguments =
            [self.random_id()?, import.to_owned(), how.to_owned(), CHUNK_ROWS.to_string()];
        let plans = plans_key(import);
        let names = [&RING_KEYS[..], &[&plans]].concat();
        let reply = self.run_write_script(ADDING, Script::EndImport, &names, &arguments)?;
        self.parse_reply(ADDING, reply)
    }
}
