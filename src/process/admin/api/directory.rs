//! The keys and accounts in force, sorted for lists. It is built once for each change of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::request::ApiError;
use super::{AdminApi, lock};
use crate::management::{AccountEntry, KeyEntry, KeyState, list_accounts, list_keys};

/// The keys and accounts in force.
pub(super) struct Directory {
    /// The oldest first.
    pub(super) keys: Vec<KeyEntry>,
    /// The index of each key by its id.
    key_indexes: HashMap<String, usize>,
    /// The indexes of the keys of each account, the oldest first.
    keys_by_account: HashMap<String, Vec<usize>>,
    /// By name.
    pub(super) accounts: Vec<AccountEntry>,
}

impl Directory {
    pub(super) fn find_key(&self, id: &str) -> Option<&KeyEntry> {
        self.key_indexes.get(id).map(|at| &self.keys[*at])
    }

    pub(super) fn find_account(&self, name: &str) -> Option<&AccountEntry> {
        let at = self.accounts.binary_search_by(|account| account.name.as_str().cmp(name));
        at.ok().map(|at| &self.accounts[at])
    }

    /// The keys of an account, or all; the newest first.
    pub(super) fn newest_keys<'d>(
        &'d self,
        account: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'d KeyEntry> + 'd> {
        match account {
            None => Box::new(self.keys.iter().rev()),
            Some(account) => {
                let indexes = self.keys_by_account.get(account).map(Vec::as_slice);
                let indexes = indexes.unwrap_or_default().iter().rev();
                Box::new(indexes.map(|at| &self.keys[*at]))
            }
        }
    }

    pub(super) fn count_active_keys(&self, account: &str, unix_now: i64) -> usize {
        let keys = self.newest_keys(Some(account));
        keys.filter(|key| key.state_at(unix_now) == KeyState::Active).count()
    }
}

impl AdminApi {
    /// The keys and accounts that this node serves.
    pub(super) fn directory(&self) -> Result<Arc<Directory>, ApiError> {
        let mut known = lock(&self.directory);
        if let Some((generation, directory)) = known.as_ref()
            && *generation == self.inputs.generation()
        {
            return Ok(Arc::clone(directory));
        }
        let Some((generation, inputs)) = self.inputs.keys() else {
            // The reloader is changing the rows just now.
            return match known.as_ref() {
                Some((_, directory)) => Ok(Arc::clone(directory)),
                None => Err(ApiError::store_not_read()),
            };
        };
        let rows = &inputs.rows;
        let keys = list_keys(&rows.keys, &rows.accounts, &inputs.declared);
        let mut keys_by_account: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, key) in keys.iter().enumerate() {
            match keys_by_account.get_mut(&key.account) {
                Some(indexes) => indexes.push(at),
                None => drop(keys_by_account.insert(key.account.clone(), vec![at])),
            }
        }
        let config = self.config();
        let directory = Arc::new(Directory {
            key_indexes: keys.iter().enumerate().map(|(at, key)| (key.id.clone(), at)).collect(),
            keys_by_account,
            accounts: list_accounts(&rows.accounts, &inputs.declared, &config.plans),
            keys,
        });
        *known = Some((generation, Arc::clone(&directory)));
        Ok(directory)
    }
}
