//! The key ring, kept fresh from the store and the key file.
//!
//! Follows the store in small steps: what changed there is read, and makes a new ring of the one
//! that serves. A whole ring is built when the key file or the plans changed, on request, and
//! where there is none yet. Another store than the one that serves is not taken. Of one that lost
//! what it had acknowledged, keys and their ends stay in force, and are written back.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::watch::Watch;
use super::write_back::WriteBack;
use crate::config::Config;
use crate::gate::State;
use crate::keys::{DeclaredKey, KeyRing, Plans, RingError, read_key_file};
use crate::quota::Ledger;
use crate::store::{Lost, RingChanges, RingMark, RingRows, Store, StoreError};

/// How often the store is asked whether it is still one that we can use.
const RECHECK: Duration = Duration::from_secs(1);
/// So many faults of single keys and accounts are told by name.
const NAMED: usize = 8;

/// Where keys come from, and what was read of them.
pub struct Keys {
    store: Store,
    /// What the store held last, with what it lost; none before it was read.
    rows: Option<RingRows>,
    lost: Lost,
    write_back: WriteBack,
    /// The keys of the key file that serve.
    declared: Vec<DeclaredKey>,
    watch: Watch,
    rechecked: Instant,
    /// Why the store is not followed.
    astray: Option<String>,
    /// Which keys and accounts can't be served, and why.
    faults: Vec<String>,
    /// Why the key file is not taken.
    unread: Option<String>,
    /// Why the store does not answer, or should not be used.
    unwell: Option<String>,
    unfit: Option<String>,
}

impl Keys {
    /// Reads keys for the first time; a server may come, or come back, while we serve. Without a
    /// ring there must be a reason: a fault of the file, the rows or an embedded store is an error.
    pub fn load(
        mut store: Store,
        declared: Vec<DeclaredKey>,
        config: &Config,
        ledger: &Ledger,
    ) -> Result<(Keys, Option<KeyRing>), String> {
        let may_come = matches!(store, Store::Redis(_));
        let (rows, astray) = match store.ring_rows() {
            Ok(Some(rows)) => (Some(rows), None),
            Ok(None) => (None, Some(Astray::Nowhere.to_string())),
            Err(error) => (None, Some(error.to_string())),
        };
        if let Some(problem) = astray.as_ref().filter(|_| !may_come) {
            return Err(problem.clone());
        }
        if let Some(rows) = &rows {
            let checked = KeyRing::check_file(rows, &declared, &config.plans);
            checked.map_err(|error| error.to_string())?;
        }
        let build = |rows| KeyRing::build(rows, &declared, &config.plans, ledger);
        let ring = rows.as_ref().map(build);
        let keys = Keys {
            store,
            rows,
            lost: Lost::default(),
            write_back: WriteBack::default(),
            declared,
            watch: Watch::new(config.key_file.clone()),
            rechecked: Instant::now(),
            astray,
            faults: ring.as_ref().map_or(Vec::new(), faults),
            unread: None,
            unwell: None,
            unfit: None,
        };
        Ok((keys, ring))
    }

    /// What keeps keys from being as they should.
    pub(super) fn problem(&self) -> Option<String> {
        // A store that does not answer is not followed either.
        let unfollowed = self.astray.as_ref().or(self.unwell.as_ref());
        let mut problems: Vec<String> =
            [unfollowed, self.unread.as_ref()].into_iter().flatten().cloned().collect();
        problems.extend_from_slice(&self.faults);
        problems.extend(self.store.foreign_entries());
        problems.extend(self.lost.lines());
        problems.extend(self.write_back.problem().map(str::to_owned));
        (!problems.is_empty()).then(|| problems.join("\n"))
    }

    /// What is wrong with the store itself.
    pub(super) fn store_problem(&self) -> Option<&str> {
        self.unwell.as_deref().or(self.unfit.as_deref())
    }

    /// Takes what changed; true if there was something to take.
    pub(super) fn look(&mut self, state: &State, plans: &Plans) -> bool {
        let followed = self.follow(state, plans, false);
        let file_changed = self.watch.is_due();
        if file_changed {
            self.read_file(state, plans);
        }
        followed || file_changed
    }

    /// Reads everything anew.
    pub(super) fn reload(&mut self, state: &State, plans: &Plans) {
        self.follow(state, plans, true);
        self.read_file(state, plans);
    }

    /// From now on another key file.
    pub(super) fn watch(&mut self, key_file: Option<PathBuf>) {
        self.watch = Watch::new(key_file);
    }

    /// Builds the ring anew, with other plans.
    pub(super) fn take_plans(&mut self, state: &State, plans: &Plans) {
        if let Some(rows) = &self.rows {
            let ring = KeyRing::build(rows, &self.declared, plans, &state.ledger);
            self.publish(state, ring);
        }
        self.try_file_again(state, plans);
    }

    /// Reads the key file. A broken one holds nothing back that changes in the store.
    pub(super) fn read_file(&mut self, state: &State, plans: &Plans) {
        self.watch.mark();
        let read = |path| read_key_file(path, &Config::variable);
        let declared = self.watch.path().map_or(Ok(Vec::new()), read).map_err(|faults| {
            faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        });
        let made = declared.and_then(|declared| match &self.rows {
            Some(rows) => KeyRing::check_file(rows, &declared, plans)
                .map(|()| KeyRing::build(rows, &declared, plans, &state.ledger))
                .map(|ring| (declared, Some(ring)))
                .map_err(|error| error.to_string()),
            None => Ok((declared, None)),
        });
        self.unread = match made {
            Ok((declared, ring)) => {
                self.declared = declared;
                if let Some(ring) = ring {
                    self.publish(state, ring);
                }
                None
            }
            Err(problem) => Some(problem),
        };
    }

    /// Looks where the store stands and goes there; `anew` reads all of it. True if it moved.
    fn follow(&mut self, state: &State, plans: &Plans, anew: bool) -> bool {
        let outcome = self.step(state, plans, anew);
        (self.unwell, self.astray) = match &outcome {
            Ok(_) => (None, None),
            Err(Astray::Store(error)) if !matches!(error, StoreError::Unusable { .. }) => {
                let error = error.to_string();
                (Some(error.clone()), self.rows.is_none().then_some(error))
            }
            Err(astray) => (None, Some(astray.to_string())),
        };
        if outcome.is_ok() {
            self.write_back.offer(&self.lost, &mut self.store, Instant::now());
        }
        let moved = outcome.unwrap_or(false);
        if moved {
            self.try_file_again(state, plans);
        }
        moved
    }

    /// It may have been the rows or the plans that a key file did not go with.
    fn try_file_again(&mut self, state: &State, plans: &Plans) {
        if self.unread.is_some() {
            self.read_file(state, plans);
        }
    }

    fn step(&mut self, state: &State, plans: &Plans, anew: bool) -> Result<bool, Astray> {
        let mark = self.store.ring_mark()?;
        if self.rechecked.elapsed() >= RECHECK {
            self.rechecked = Instant::now();
            self.unfit = self.store.recheck().err().map(|error| error.to_string());
        }
        let serving = state.keys.snapshot();
        if let Some(ring) = serving.as_ref() {
            ring.may_become(mark.as_ref())?;
        }
        let mark = mark.ok_or(Astray::Nowhere)?;
        let known = self.rows.as_ref().map(RingRows::mark);
        match known {
            None => self.take_all(state, plans, false),
            Some(known) if known.store_id != mark.store_id => self.take_all(state, plans, false),
            Some(known) if known == mark && !anew => Ok(false),
            // The same number of another history, or an older state.
            Some(known) if known.version >= mark.version => {
                self.take_all(state, plans, known != mark)
            }
            Some(known) if !anew => self.take_changes(state, plans, &known),
            Some(known) => {
                let changes = self.store.ring_changes(known.version)?;
                self.take_all_beside(state, plans, &changes, &known)
            }
        }
    }

    fn take_changes(
        &mut self,
        state: &State,
        plans: &Plans,
        known: &RingMark,
    ) -> Result<bool, Astray> {
        let mut changes = self.store.ring_changes(known.version)?;
        let serving = state.keys.snapshot();
        let Some(rows) = self.rows.as_mut().filter(|_| changes.follow(known)) else {
            return self.take_all_beside(state, plans, &changes, known);
        };
        self.lost.keep_in(&mut changes);
        let next = serving.as_ref().as_ref();
        let next = next.and_then(|ring| ring.after(&changes, &self.declared, plans, &state.ledger));
        rows.apply(changes);
        let ring =
            next.unwrap_or_else(|| KeyRing::build(rows, &self.declared, plans, &state.ledger));
        self.publish(state, ring);
        Ok(true)
    }

    /// Takes all rows where what changed since those that are known does not lead on from them,
    /// or not alone.
    fn take_all_beside(
        &mut self,
        state: &State,
        plans: &Plans,
        changes: &RingChanges,
        known: &RingMark,
    ) -> Result<bool, Astray> {
        let has_lost = changes.show_loss(known);
        let taken = self.take_all(state, plans, has_lost)?;
        if has_lost {
            self.lost.forget_set(changes);
        }
        Ok(taken)
    }

    /// `has_lost` is true if the store is known not to hold what was read of it before.
    fn take_all(&mut self, state: &State, plans: &Plans, has_lost: bool) -> Result<bool, Astray> {
        let mut rows = self.store.ring_rows()?.ok_or(Astray::Nowhere)?;
        if let Some(ring) = state.keys.snapshot().as_ref() {
            ring.may_become(Some(&rows.mark()))?;
        }
        if let Some(known) = self.rows.as_ref().filter(|it| it.store_id == rows.store_id) {
            if has_lost {
                let (before, now) = (known.version, rows.version);
                log::warn!(
                    "the store lost changes of keys or accounts: version {before} was known, and \
                     it holds version {now} of another history"
                );
                self.write_back.hurry();
            }
            self.lost.keep(known, &mut rows, has_lost);
        }
        let ring = KeyRing::build(&rows, &self.declared, plans, &state.ledger);
        self.rows = Some(rows);
        self.publish(state, ring);
        Ok(true)
    }

    fn publish(&mut self, state: &State, ring: KeyRing) {
        if state.keys.peek().is_none() {
            log::info!("{} keys serve", ring.len());
        }
        self.faults = faults(&ring);
        state.keys.publish(Some(ring));
    }
}

/// What is wrong with single keys and accounts, in words.
fn faults(ring: &KeyRing) -> Vec<String> {
    let faults = ring.faults();
    let mut lines: Vec<String> = faults.iter().take(NAMED).map(ToString::to_string).collect();
    if faults.len() > NAMED {
        lines.push(format!("and {} more keys and accounts", faults.len() - NAMED));
    }
    lines
}

/// Why the store is not followed.
#[derive(Debug, thiserror::Error)]
enum Astray {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lost(#[from] RingError),
    #[error(
        "expected a store, but found an empty server; `riskgate keys create` or `riskgate store \
         init` makes it one"
    )]
    Nowhere,
}
