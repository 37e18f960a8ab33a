//! `[store]`: the store and its connection settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::settings::Settings;
use crate::quota::FailurePolicy;
use crate::store::{
    ClientCertificatePaths, Redis, RedisOptions, RingStore, Store, StoreError, StoreUrl,
};
use crate::support::regular_file::{file_identity, parent_dir};

/// The store and its connection settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The address of the store.
    pub url: StoreUrl,
    /// Settings that apply to Redis only.
    pub redis: RedisOptions,
    /// The longest time that a call waits for the store.
    pub deadline: Duration,
    /// The most calls that this process admits without a lease while the store is down.
    pub max_unsettled: u64,
}

impl StoreOptions {
    /// The settings that name files which only a new process reads, each with its file. A server is
    /// asked with renewed certificates once a connection fails, but Sentinels are not.
    pub fn files_read_at_start(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let asks_sentinels = matches!(&self.url, StoreUrl::Redis(url) if url.names_sentinels());
        let certificates = self.redis.certificate_files().filter(move |_| asks_sentinels);
        let password = self.redis.sentinel_password_file.iter();
        certificates.chain(password.map(|path| ("store.sentinel_password_file", path)))
    }

    /// Opens the store. `timeout` limits each operation.
    pub fn open(&self, timeout: Duration) -> Result<Store, StoreError> {
        Store::open(&self.url, &self.redis, timeout)
    }

    /// The address of the store without credentials; of a file, its absolute path.
    pub fn shown_address(&self) -> String {
        match &self.url {
            StoreUrl::Sqlite(path) => {
                let folder = parent_dir(path);
                // Before the store is created, its folder may be missing.
                let folder = folder.canonicalize().or_else(|_| std::path::absolute(folder));
                let folder = folder.unwrap_or_else(|_| parent_dir(path).to_owned());
                let path = folder.join(path.file_name().unwrap_or_default());
                format!("sqlite:{}", path.display())
            }
            StoreUrl::Redis(url) => url.without_credentials(),
        }
    }

    /// The absolute paths of an SQLite file, each as `sqlite:PATH`: the path as written, and for
    /// each folder in it, the path with the symbolic links up to this folder resolved.
    ///
    /// The path as written stays the same, whatever somebody has moved or replaced. While nothing
    /// was moved, two spellings that differ only by links to folders have one of these paths in
    /// common. A link that is the file itself is not resolved.
    ///
    /// Empty for a server, because an operator may make a new store on a server that has lost its
    /// store.
    pub fn file_addresses(&self) -> Vec<String> {
        let StoreUrl::Sqlite(path) = &self.url else { return Vec::new() };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let resolve = |folder: &Path| {
            let rest = path.strip_prefix(folder).ok()?;
            Some(format!("sqlite:{}", folder.canonicalize().ok()?.join(rest).display()))
        };
        let mut addresses: Vec<String> = path.ancestors().skip(1).filter_map(resolve).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Device and inode of an SQLite file; `None` for a server, and if there is no file.
    pub fn file_identity(&self) -> Option<(u64, u64)> {
        match &self.url {
            StoreUrl::Sqlite(path) => file_identity(path),
            StoreUrl::Redis(_) => None,
        }
    }

    /// Returns true if `url` is the address of this store. The credentials may differ.
    pub fn is_at(&self, url: &StoreUrl) -> bool {
        let other = StoreOptions { url: url.clone(), ..self.clone() };
        other.shown_address() == self.shown_address()
    }

    /// Opens a store that is on a server. `timeout` limits each operation.
    pub fn open_server(&self, timeout: Duration) -> Result<Redis, StoreError> {
        match &self.url {
            StoreUrl::Redis(url) => Redis::new(url, &self.redis, timeout),
            StoreUrl::Sqlite(_) => Err(StoreError::Unusable {
                location: self.shown_address(),
                expected: "a Redis or Valkey server",
                found: "a file".to_owned(),
            }),
        }
    }

    /// Like [`StoreOptions::open`], but never creates a store.
    pub fn open_existing(&self, timeout: Duration) -> Result<Store, StoreError> {
        Store::open_existing(&self.url, &self.redis, timeout)
    }
}

impl Settings {
    /// Reads what a call gets while the store is down.
    pub(super) fn read_failure_policy(&mut self) -> FailurePolicy {
        match self.read_choice("store.on_failure", &["open", "closed"]) {
            "closed" => FailurePolicy::Closed,
            _ => FailurePolicy::Open,
        }
    }

    /// Reads whether the nodes of a store share the rates of clients.
    pub fn read_shares_rates(&mut self, store: &StoreOptions) -> bool {
        const KEY: &str = "rates.shared";
        let shares_rates = self.read_boolean(KEY, false);
        if shares_rates && matches!(store.url, StoreUrl::Sqlite(_)) {
            let problem = "expected a store.url of a Redis or Valkey server, because only nodes on \
                           one server share rates, but found a file";
            self.report_at_key(KEY, problem, Some("set store.url, or remove this line".to_owned()));
        }
        shares_rates
    }

    /// Reads the settings of the store.
    pub fn read_store_options(&mut self) -> StoreOptions {
        let url = self.read_store_url("store.url", "state/riskgate.db");
        let wait_replicas = self.read_integer("store.wait_replicas", 0..=8, 0) as usize;
        let deadline = match url {
            StoreUrl::Sqlite(_) => Duration::from_secs(1),
            StoreUrl::Redis(_) if wait_replicas == 0 => Duration::from_millis(50),
            // Redis checks only ten times a second whether the time of a WAIT is over.
            StoreUrl::Redis(_) => Duration::from_millis(500),
        };
        let redis = self.read_redis_options(&url, wait_replicas);
        StoreOptions {
            url,
            redis,
            deadline: self.read_nonzero_duration("store.deadline", deadline),
            max_unsettled: self.read_integer("store.max_unsettled", 0..=1_000_000_000, 100_000),
        }
    }

    fn read_redis_options(&mut self, url: &StoreUrl, wait_replicas: usize) -> RedisOptions {
        let options = RedisOptions {
            wait_replicas,
            tls_ca: self.read_path("store.tls_ca"),
            client_certificate: self.read_client_certificate(),
            sentinel_user: self.read_text("store.sentinel_user"),
            sentinel_password_file: self.read_path("store.sentinel_password_file"),
            ring_store: RingStore::default(),
        };
        // Without Sentinels, the user is a fault of its own.
        let has_sentinels = matches!(url, StoreUrl::Redis(url) if url.names_sentinels());
        let needs_password = has_sentinels && options.sentinel_user.is_some();
        if needs_password && options.sentinel_password_file.is_none() {
            self.report_required("store.sentinel_password_file", "the password of the user");
        }
        options
    }

    /// Reads `store.tls_certificate` and `store.tls_key`, which belong together.
    fn read_client_certificate(&mut self) -> Option<ClientCertificatePaths> {
        const KEYS: [&str; 2] = ["store.tls_certificate", "store.tls_key"];
        let [certificate, key] = KEYS.map(|key| self.read_path(key));
        for (key, other) in [(KEYS[0], KEYS[1]), (KEYS[1], KEYS[0])] {
            if self.has_value(key) && !self.has_value(other) {
                self.report_required(other, &format!("a path, since {key} is set"));
            }
        }
        Some(ClientCertificatePaths { certificate: certificate?, key: key? })
    }
}
