//! Runs scripts that write, and waits for imports that hold the same names.

use std::time::{Duration, Instant};

use redis::{Pipeline, Value};

use super::connection::{BULK, CHUNK, Redis};
use super::key_names::{RING, plans_name};
use super::reply::{error_of, hex, number};
use super::scripts::Script;
use crate::store::error::{self, StoreError};

/// For so long somebody who meets names of an import waits for its end: longer than they are held.
const WAIT: Duration = Duration::from_secs(15);

const PAUSE: Duration = Duration::from_millis(20);

/// What is being done where keys are added.
pub(super) const ADDING: &str = "adding keys";

/// What a script says that met an import, or a key that is no new one.
enum Word {
    Version(u64),
    Taken { id: String, known: String },
    Ended,
    Busy,
    Dead { import: String },
}

impl Redis {
    /// Runs a script that writes, and waits until as many replicas as are asked for have it.
    pub(super) fn write_by(
        &mut self,
        doing: &'static str,
        script: Script,
        names: &[&str],
        arguments: &[String],
    ) -> Result<Value, StoreError> {
        let (wait, patience) = (self.wait_replicas, self.patience.max(BULK));
        let mut replies = self.run_within(doing, patience, |scripts| {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("EVALSHA").arg(&scripts[script as usize]).arg(names.len());
            pipeline.arg(names).arg(arguments);
            if wait > 0 {
                pipeline.cmd("WAIT").arg(wait).arg(patience.as_millis() as u64 / 2);
            }
            pipeline
        })?;
        if let Some(found) = replies.iter().find_map(error_of) {
            self.connection = None;
            return Err(self.unanswered(doing, found));
        }
        let reached = if wait > 0 { replies.pop().map_or(0, number) } else { 0 };
        if reached < wait as u64 {
            let found = format!("it is done, but only {reached} of {wait} replicas have it");
            return Err(self.unanswered(doing, found));
        }
        Ok(replies.pop().unwrap_or(Value::Nil))
    }

    /// 128 random bits.
    pub(super) fn draw_id(&self) -> Result<String, StoreError> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| self.unanswered("drawing an id", error.to_string()))?;
        Ok(hex(&bytes))
    }

    /// Runs a script that may meet names which an import holds: waits for its end, and clears it
    /// away if it was given up.
    pub(super) fn write_beside_imports(
        &mut self,
        doing: &'static str,
        script: Script,
        names: &[&str],
        arguments: &[String],
    ) -> Result<u64, StoreError> {
        let begun = Instant::now();
        loop {
            let reply = self.write_by(doing, script, names, arguments)?;
            match self.word(doing, reply)? {
                Word::Version(version) => return Ok(version),
                Word::Taken { id, known } => return Err(error::not_new(&id, &known)),
                Word::Ended => return Err(error::has_ended()),
                _ if begun.elapsed() > WAIT => {
                    return Err(
                        self.unanswered(doing, "an import that goes on with the same names")
                    );
                }
                Word::Busy => {}
                Word::Dead { import } => self.clear_import(&import)?,
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn word(&mut self, doing: &'static str, reply: Value) -> Result<Word, StoreError> {
        if !matches!(reply, Value::Array(_)) {
            return self.understand(doing, reply).map(Word::Version);
        }
        let mut words = self.understand::<Vec<String>>(doing, reply)?.into_iter();
        let mut next = || words.next().unwrap_or_default();
        Ok(match next().as_str() {
            "taken" => Word::Taken { id: next(), known: next() },
            "ended" => Word::Ended,
            "dead" => Word::Dead { import: next() },
            _ => Word::Busy,
        })
    }

    pub(super) fn clear_import(&mut self, import: &str) -> Result<(), StoreError> {
        while self.end_import(import, "clear")? > 0 {}
        Ok(())
    }

    pub(super) fn end_import(&mut self, import: &str, how: &str) -> Result<u64, StoreError> {
        let arguments = [self.draw_id()?, import.to_owned(), how.to_owned(), CHUNK.to_string()];
        let plans = plans_name(import);
        let names = [&RING[..], &[&plans]].concat();
        let reply = self.write_by(ADDING, Script::Commit, &names, &arguments)?;
        self.understand(ADDING, reply)
    }
}
