//! The keys and accounts that this node knows, sorted and indexed for lists.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::keys::Plans;
use crate::management::{AccountEntry, KeyEntry, KeyState, list_accounts, list_keys};
use crate::process::reload::KeyInputs;

/// The keys and accounts that this node knows at one moment, sorted and indexed. Expired and
/// revoked keys are among them.
pub(super) struct RingIndex {
    /// The keys, the oldest first.
    pub(super) keys: Vec<KeyEntry>,
    /// For each key, the text that a search looks through: id, account and label in lower case. The
    /// first search fills these texts.
    search_texts: OnceLock<Vec<Box<str>>>,
    /// The indexes of the keys of each account, the oldest first.
    keys_by_account: HashMap<String, Vec<usize>>,
    /// The accounts by name.
    pub(super) accounts: Vec<AccountEntry>,
}

impl RingIndex {
    /// Sorts and indexes these rows. `plans` has the limits of accounts that have no own limit.
    pub(super) fn build(inputs: &KeyInputs, plans: &Plans) -> RingIndex {
        let rows = &inputs.rows;
        let keys = list_keys(&rows.keys, &rows.accounts, &inputs.declared);
        let mut keys_by_account: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, key) in keys.iter().enumerate() {
            match keys_by_account.get_mut(&key.account) {
                Some(indexes) => indexes.push(at),
                None => drop(keys_by_account.insert(key.account.clone(), vec![at])),
            }
        }
        RingIndex {
            search_texts: OnceLock::new(),
            keys_by_account,
            accounts: list_accounts(&rows.accounts, &inputs.declared, plans),
            keys,
        }
    }

    pub(super) fn find_key(&self, id: &str) -> Option<&KeyEntry> {
        self.keys.iter().find(|key| key.id == id)
    }

    pub(super) fn find_account(&self, name: &str) -> Option<&AccountEntry> {
        let at = self.accounts.binary_search_by(|account| account.name.as_str().cmp(name));
        at.ok().map(|at| &self.accounts[at])
    }

    /// Iterates over the keys of an account, or over all keys, the newest first. `search` is a text
    /// in lower case: keys whose id, account and label do not contain this text are left out.
    pub(super) fn iter_keys_newest_first<'d>(
        &'d self,
        account: Option<&str>,
        search: Option<&'d str>,
    ) -> impl Iterator<Item = &'d KeyEntry> + 'd {
        let indexes: Box<dyn Iterator<Item = usize> + 'd> = match account {
            None => Box::new((0..self.keys.len()).rev()),
            Some(account) => {
                let indexes = self.keys_by_account.get(account).map(Vec::as_slice);
                Box::new(indexes.unwrap_or_default().iter().rev().copied())
            }
        };
        let search = search.map(|text| (text, self.search_texts()));
        let is_match =
            move |at: &usize| search.is_none_or(|(text, texts)| texts[*at].contains(text));
        indexes.filter(is_match).map(|at| &self.keys[at])
    }

    fn search_texts(&self) -> &[Box<str>] {
        let search_text = |key: &KeyEntry| {
            let label = key.label.as_deref().unwrap_or_default();
            format!("{}\n{}\n{label}", key.id, key.account).to_lowercase().into_boxed_str()
        };
        self.search_texts.get_or_init(|| self.keys.iter().map(search_text).collect())
    }

    pub(super) fn count_active_keys(&self, account: &str, unix_now: i64) -> usize {
        let keys = self.iter_keys_newest_first(Some(account), None);
        keys.filter(|key| key.state_at(unix_now) == KeyState::Active).count()
    }
}
