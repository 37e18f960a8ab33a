//! Adding keys to a server: a page in one script, more as an import.
//!
//! An import of many keys goes in pages, so that none of its steps holds the server up. Its rows
//! name it, and are there for everybody once it was committed, in one short step. What failed is
//! undone; what was given up without a word, such as by a process that was killed, holds its names
//! for some seconds and is then cleared away by whoever meets it.

use std::time::{Duration, Instant};

use redis::Value;

use super::super::{KeyRow, StoreError, operations};
use super::ring::RING;
use super::rows::{key_text, plan_text};
use super::{CHUNK, Redis, Script, hex};

/// Seconds for which an import holds its names after each of its steps.
const HELD_FOR: u64 = 10;
/// For so long somebody who meets names of an import waits for its end: longer than they are held.
const WAIT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);
const DOING: &str = "adding keys";

/// What a script says that met an import, or a key that is no new one.
enum Word {
    Version(u64),
    Taken { id: String, known: String },
    Ended,
    Busy,
    Dead { import: String },
}

impl Redis {
    pub(in super::super) fn add_keys(
        &mut self,
        keys: &[(KeyRow, Option<String>)],
    ) -> Result<(), StoreError> {
        match keys.len() {
            0 => return self.init(),
            1..=CHUNK => return self.add_page("-", keys, true),
            _ => {}
        }
        let import = self.draw_id()?;
        let mut begins = true;
        let done = keys.chunks(CHUNK).try_for_each(|page| {
            let added = self.add_page(&import, page, begins);
            begins = false;
            added
        });
        let done = done.and_then(|()| self.end_import(&import, "commit").map(drop));
        if done.is_err() {
            // Else it is cleared away by whoever meets it. One that was committed stays.
            let _ = self.clear_import(&import);
        }
        done
    }

    fn add_page(
        &mut self,
        import: &str,
        keys: &[(KeyRow, Option<String>)],
        begins: bool,
    ) -> Result<(), StoreError> {
        let mut arguments = Vec::with_capacity(4 + 5 * keys.len());
        arguments.extend([self.draw_id()?, import.to_owned()]);
        arguments.extend([u8::from(begins).to_string(), HELD_FOR.to_string()]);
        for (key, plan) in keys {
            arguments.extend([key.id.clone(), hex(&key.digest), key_text(key)]);
            arguments.extend([key.account.clone(), plan_text(plan.as_deref())]);
        }
        let plans = plans_name(import);
        let names = [&RING[..], &[&plans]].concat();
        self.write_beside_imports(DOING, Script::Add, &names, &arguments).map(drop)
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
                Word::Taken { id, known } => return Err(operations::not_new(&id, &known)),
                Word::Ended => return Err(operations::has_ended()),
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

    fn clear_import(&mut self, import: &str) -> Result<(), StoreError> {
        while self.end_import(import, "clear")? > 0 {}
        Ok(())
    }

    fn end_import(&mut self, import: &str, how: &str) -> Result<u64, StoreError> {
        let arguments = [self.draw_id()?, import.to_owned(), how.to_owned(), CHUNK.to_string()];
        let plans = plans_name(import);
        let names = [&RING[..], &[&plans]].concat();
        let reply = self.write_by(DOING, Script::Commit, &names, &arguments)?;
        self.understand(DOING, reply)
    }
}

/// What an import changes of accounts that are there already, when it is committed.
fn plans_name(import: &str) -> String {
    format!("riskgate:{{ring}}:plans:{import}")
}
