//! What a store had acknowledged and lost: in a failover, or under a restored backup.
//!
//! Compares rows that were known with those that the store holds. Owns the rule of what stays in
//! force: keys, and their ends, as known; plans and limits as the store says. It reads no store.

use std::collections::{BTreeMap, HashSet};

use super::{AccountRow, KeyRow, LimitRow, RingChanges, RingRows};

/// How many losses are told by name.
const NAMED: usize = 5;

/// Rows that were known, and that the store does not hold as they were.
#[derive(Debug, Default)]
pub struct Lost {
    /// Keys that the store does not hold, or that end later there.
    keys: BTreeMap<String, KeyRow>,
    /// Accounts that the store does not hold.
    accounts: BTreeMap<String, AccountRow>,
    /// Accounts whose plan or limit the store replaced: as known, and as the store says.
    replaced: BTreeMap<String, [AccountRow; 2]>,
}

impl Lost {
    /// Adds to all rows of a store what was known and is not there, and remembers it.
    /// `is_other_history` is true if the store is known to have lost something; otherwise its
    /// plans and limits were only changed.
    pub fn keep(&mut self, known: &RingRows, now: &mut RingRows, is_other_history: bool) {
        self.keep_keys(known, now);
        self.accounts.clear();
        let old = known.accounts.iter().map(|row| (row.name.as_str(), row));
        let mut old: BTreeMap<&str, &AccountRow> = old.collect();
        for row in &now.accounts {
            match old.remove(row.name.as_str()) {
                Some(before) if before != row && is_other_history => {
                    let [before, row] = [before, row].map(Clone::clone);
                    self.replaced.entry(row.name.clone()).or_insert([before, row]);
                }
                // It was set since.
                Some(before) if before != row => drop(self.replaced.remove(&row.name)),
                _ => {}
            }
        }
        for (name, row) in old {
            if !now.damaged.accounts.contains(name) {
                self.accounts.insert(name.to_owned(), row.clone());
                now.accounts.push(row.clone());
            }
        }
    }

    fn keep_keys(&mut self, known: &RingRows, now: &mut RingRows) {
        self.keys.clear();
        let mut old: BTreeMap<&str, &KeyRow> =
            known.keys.iter().map(|row| (row.id.as_str(), row)).collect();
        for row in &mut now.keys {
            if let Some(before) = old.remove(row.id.as_str())
                && row.end_with(before)
            {
                self.keys.insert(row.id.clone(), before.clone());
            }
        }
        // One that was imported anew under another id is another key.
        let digests: HashSet<[u8; 32]> = now.keys.iter().map(|row| row.digest).collect();
        for (id, row) in old {
            if !digests.contains(&row.digest) && !now.damaged.keys.contains_key(id) {
                self.keys.insert(id.to_owned(), row.clone());
                now.keys.push(row.clone());
            }
        }
    }

    /// Adds to later changes of the store what they still lack, and forgets what they bring back.
    pub fn keep_in(&mut self, changes: &mut RingChanges) {
        for row in &mut changes.keys {
            let still_lost = self.keys.get(&row.id).is_some_and(|before| row.end_with(before));
            if !still_lost {
                self.keys.remove(&row.id);
            }
        }
        for id in changes.damaged.keys.keys() {
            self.keys.remove(id);
        }
        for row in &changes.accounts {
            self.accounts.remove(&row.name);
            // A new key names its account too, and changes nothing of it.
            let is_named = changes.keys.iter().any(|key| key.account == row.name);
            let is_same = self.replaced.get(&row.name).is_some_and(|[_, now]| now == row);
            if !(is_named && is_same) {
                self.replaced.remove(&row.name);
            }
        }
        for name in &changes.damaged.accounts {
            self.accounts.remove(name);
            self.replaced.remove(name);
        }
    }

    /// Whether nothing remains to be written back.
    pub fn is_written(&self) -> bool {
        self.keys.is_empty() && self.accounts.is_empty()
    }

    /// What is to be written back.
    pub fn rows(&self) -> (Vec<KeyRow>, Vec<AccountRow>) {
        (self.keys.values().cloned().collect(), self.accounts.values().cloned().collect())
    }

    /// A line for each loss that is not made good yet, and what to do; some by name.
    pub fn lines(&self) -> Vec<String> {
        let keys = self.keys.values().map(|row| {
            let (id, command) = (&row.id, format!("riskgate keys revoke {}", row.id));
            match row.revoked_at {
                Some(_) => format!("that key {id} was revoked; or run `{command}`"),
                None => format!("key {id}, or when it ends"),
            }
        });
        let accounts = self.accounts.keys().map(|name| format!("account {name}"));
        let of_keys = some(keys.chain(accounts)).map(|lost| {
            let what = "the store lost what it had acknowledged, which stays in force here and is";
            format!("{what} written back: {lost}")
        });
        of_keys.chain(some(self.replaced.values().map(replaced))).collect()
    }
}

fn some(lines: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut lines = lines;
    let mut some: Vec<String> = lines.by_ref().take(NAMED).collect();
    let more = lines.count();
    if more > 0 {
        some.push(format!("and {more} more"));
    }
    some.into_iter()
}

fn replaced([before, now]: &[AccountRow; 2]) -> String {
    let (mut lost, mut flags) = (Vec::new(), Vec::new());
    if before.plan != now.plan {
        let plan = before.plan.as_deref().unwrap_or("free");
        lost.push(format!("the plan {plan}"));
        flags.push(format!("--plan {plan}"));
    }
    if before.limit != now.limit {
        let limit = match before.limit {
            Some(LimitRow::Calls(calls)) => calls.to_string(),
            Some(LimitRow::Unlimited) => "unlimited".to_owned(),
            None => "plan".to_owned(),
        };
        lost.push(format!("the limit {limit}"));
        flags.push(format!("--limit {limit}"));
    }
    let (name, lost, flags) = (&before.name, lost.join(" and "), flags.join(" "));
    format!(
        "account {name}: the store lost {lost}, and what it says now is followed; run `riskgate \
         accounts set {name} {flags}`, or set what is right"
    )
}
