//! The config: what people write, checked whole, as what the program needs.
//!
//! One TOML file, then `RISKGATE__SECTION__KEY`, then flags; each overrides what stands before.
//! Owns every setting's name, default and range. The environment is read here and nowhere else.

mod dns;
mod feeds;
mod raw_value;
mod routes;
mod secret;
mod settings;
mod tls;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dns::DnsOptions;
use crate::downstream::{ConnectionLimits, DownstreamOptions};
use crate::feed::Feeds;
use crate::gate::Policy;
use crate::gate::route::UpstreamRoute;
use crate::keys::{DEFAULT_PLAN, Plans};
use crate::message::request_head::RequestLimits;
use crate::model::network::Networks;
use crate::model::verdict::Score;
use crate::observe::access_log::LogTarget;
use crate::observe::top_domains::TopOptions;
use crate::proxy::upstream::UpstreamOptions;
use crate::quota::FailurePolicy;
use crate::store::{MAX_TOP_ACCOUNTS, MonthlyLimit, RedisOptions, Store, StoreError, StoreUrl};
use crate::support::certificates::CertificateFiles;
use crate::table::TableInputs;

pub use raw_value::parse_duration;
pub use secret::Secret;
use settings::Settings;

/// Where the config is looked for when nobody says where.
pub const DEFAULT_PATH: &str = "conf/riskgate.toml";

/// Everything the program needs to know, complete and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from, if there was one.
    pub file: Option<PathBuf>,
    /// Where requests come in.
    pub http: SocketAddr,
    /// Where requests come in by TLS, if anywhere.
    pub https: Option<SocketAddr>,
    /// What is shown there.
    pub certificates: Vec<CertificateFiles>,
    /// Where the operator looks in.
    pub admin: SocketAddr,
    /// Threads that serve.
    pub threads: usize,
    /// Peers whose forwarding headers are believed.
    pub trusted_proxies: Networks,
    /// Time and number at the door.
    pub downstream: DownstreamOptions,
    /// Connections at the same time.
    pub connection_limits: ConnectionLimits,
    /// Whether each request is logged.
    pub access_log: bool,
    /// Where to.
    pub log_target: LogTarget,
    /// The servers behind us.
    pub upstream: UpstreamOptions,
    /// Further prefixes that are passed to them.
    pub prefixes: Vec<UpstreamRoute>,
    /// The table.
    pub table: TableInputs,
    /// What keeps lists of the table fresh.
    pub feeds: Feeds,
    /// How the DNS is asked about names that no list has.
    pub dns: DnsOptions,
    /// The score of a domain in no list, if not the table's own.
    pub unknown_score: Option<Score>,
    /// The store, and how it is spoken to.
    pub store: StoreOptions,
    /// What to do while it is down.
    pub on_failure: FailurePolicy,
    /// Keys declared in a file.
    pub key_file: Option<PathBuf>,
    /// What new keys begin with.
    pub key_prefix: String,
    /// Calls in a month, by plan.
    pub plans: Plans,
    /// The top list.
    pub top: TopOptions,
    /// Where the process says who it is, and meets its successor.
    pub runtime_dir: Option<PathBuf>,
    /// How long a process that ends still accepts.
    pub drain_delay: Duration,
    /// How long it waits for what is in flight.
    pub drain_grace: Duration,
    /// What opens the admin pages from elsewhere than the host.
    pub admin_token: Option<Secret>,
    /// Whether `/metrics` needs no token.
    pub is_metrics_public: bool,
}

/// The store, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Where it is.
    pub url: StoreUrl,
    /// What holds for a server.
    pub redis: RedisOptions,
    /// How long a call waits for it at most.
    pub deadline: Duration,
    /// The most calls that this process admits while it is down.
    pub max_unsettled: u64,
}

impl StoreOptions {
    /// Opens the store; `patience` is how long one operation may take.
    pub fn open(&self, timeout: Duration) -> Result<Store, StoreError> {
        Store::open(&self.url, &self.redis, timeout)
    }
}

/// Which file the config is read from.
#[derive(Clone, Debug, Default)]
pub enum ConfigFile {
    /// This one: it must be there.
    Path(PathBuf),
    /// None, wherever we are.
    #[default]
    None,
}

impl ConfigFile {
    /// `conf/riskgate.toml` if anything of that name is there, else none. What is found now is
    /// looked for ever after: a file that goes away is not the same as none.
    pub fn find_default() -> ConfigFile {
        let default = Path::new(DEFAULT_PATH);
        match default.symlink_metadata() {
            Ok(_) => ConfigFile::Path(default.to_owned()),
            Err(_) => ConfigFile::None,
        }
    }
}

/// What the command line says about the config.
#[derive(Clone, Debug, Default)]
pub struct ConfigOverrides {
    /// Which file to read.
    pub file: ConfigFile,
    /// Flags, as setting and value.
    pub flags: Vec<(String, String)>,
}

impl Config {
    /// Reads file, environment and flags; or every fault, each as
    /// `file:line: key: expected …, but found …`.
    pub fn read(overrides: &ConfigOverrides) -> Result<Config, Vec<String>> {
        match Config::read_collecting_faults(overrides) {
            (Some(config), faults) if faults.is_empty() => Ok(config),
            (_, faults) => Err(faults),
        }
    }

    /// As [`Config::read`], with defaults where there are faults, so that what the config names
    /// can be looked at too; nothing at all when the file can't be read.
    pub fn read_collecting_faults(overrides: &ConfigOverrides) -> (Option<Config>, Vec<String>) {
        let file = match &overrides.file {
            ConfigFile::Path(file) => Some(file.clone()),
            ConfigFile::None => None,
        };
        let mut settings = Settings::default();
        if let Some(Err(faults)) = file.as_deref().map(|file| settings.read_file(file)) {
            return (None, faults);
        }
        settings.read_environment(std::env::vars_os());
        for (key, value) in &overrides.flags {
            settings.set_command_line_flag(key, value);
        }
        let config = Config::from_settings(file, &mut settings);
        settings.reject_unknown_keys();
        (Some(config), settings.faults)
    }

    fn from_settings(file: Option<PathBuf>, settings: &mut Settings) -> Config {
        let seconds = Duration::from_secs;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let admin = settings.address("listen.admin", "127.0.0.1:9090");
        let http = settings.address("listen.http", "127.0.0.1:8080");
        let https = settings.optional_address("listen.https");
        settings.reject_address_conflicts(&[
            ("listen.http", Some(http)),
            ("listen.https", https),
            ("listen.admin", Some(admin)),
        ]);
        let admin_token = settings.read_admin_token();
        let trusted_proxies = settings.networks("listen.trusted_proxies");
        if !admin.ip().is_loopback() && admin_token.is_none() {
            settings.report_missing(
                "admin.token",
                "a token of 16 characters or more, since listen.admin is not loopback",
            );
        }
        let feeds = settings.read_feeds();
        Config {
            file,
            http,
            https,
            certificates: settings.read_certificate_files(),
            admin,
            threads: settings.integer("listen.threads", 1..=1024, cores as u64) as usize,
            downstream: read_downstream_options(settings, &trusted_proxies),
            connection_limits: read_connection_limits(settings, &trusted_proxies),
            upstream: read_upstream_options(settings, &trusted_proxies),
            trusted_proxies,
            access_log: settings.boolean("log.access", true),
            log_target: match settings.text("log.path") {
                Some(path) => LogTarget::File(PathBuf::from(path)),
                None => LogTarget::Stdout,
            },
            prefixes: settings.read_prefixes(),
            table: settings.read_table_sources(&feeds),
            feeds,
            dns: settings.read_dns_options(),
            unknown_score: settings
                .optional_integer("table.unknown_score", 0..=100)
                .and_then(|n| Score::new(n as u8)),
            store: read_store_options(settings),
            on_failure: match settings.choice("store.on_failure", &["open", "closed"]) {
                "closed" => FailurePolicy::Closed,
                _ => FailurePolicy::Open,
            },
            key_file: settings.text("keys.file").map(PathBuf::from),
            key_prefix: settings.key_prefix("keys.prefix", "rg_"),
            plans: read_plans(settings),
            top: read_top_options(settings),
            runtime_dir: settings.path_or_default("process.runtime_dir", "state/run"),
            drain_delay: settings.duration("drain.delay", Duration::ZERO),
            drain_grace: settings.duration("drain.grace", seconds(30)),
            admin_token,
            is_metrics_public: settings.boolean("admin.metrics_public", false),
        }
    }

    /// The part that requests are judged by.
    pub fn gate_policy(&self) -> Policy {
        Policy { upstream_routes: self.prefixes.clone(), unknown_score: self.unknown_score }
    }

    /// What differs from `serving` and takes a restart, by setting.
    pub fn settings_needing_restart(&self, serving: &Config) -> Vec<&'static str> {
        let same =
            |a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| format!("{a:?}") == format!("{b:?}");
        [
            ("listen.http", same(&self.http, &serving.http)),
            ("listen.https", same(&self.https, &serving.https)),
            ("listen.admin", same(&self.admin, &serving.admin)),
            ("listen.threads", same(&self.threads, &serving.threads)),
            ("listen.trusted_proxies", same(&self.trusted_proxies, &serving.trusted_proxies)),
            ("listen (timeouts, sizes, fast_path)", same(&self.downstream, &serving.downstream)),
            (
                "listen (connection limits)",
                same(&self.connection_limits, &serving.connection_limits),
            ),
            ("log.path", same(&self.log_target, &serving.log_target)),
            ("upstream", same(&self.upstream, &serving.upstream)),
            ("store (but for on_failure)", same(&self.store, &serving.store)),
            ("process.runtime_dir", same(&self.runtime_dir, &serving.runtime_dir)),
            ("drain.delay", same(&self.drain_delay, &serving.drain_delay)),
            ("drain.grace", same(&self.drain_grace, &serving.drain_grace)),
            ("admin.token", self.admin_token == serving.admin_token),
            ("admin.metrics_public", self.is_metrics_public == serving.is_metrics_public),
        ]
        .into_iter()
        .filter_map(|(setting, same)| (!same).then_some(setting))
        .collect()
    }

    /// An environment variable, for keys that are declared with `env`. What is no UTF-8 is no key
    /// either: it comes with replacement characters.
    pub fn env_var(name: &str) -> Option<String> {
        Config::env_var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    /// An environment variable as it is.
    pub fn env_var_os(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

fn read_connection_limits(settings: &mut Settings, trusted_proxies: &Networks) -> ConnectionLimits {
    let mut limit =
        |key: &str, default: u64| settings.integer(key, 1..=10_000_000, default) as usize;
    ConnectionLimits {
        connections: limit("listen.max_connections", 10_000),
        per_address: limit("listen.max_connections_per_address", 1_000),
        exempt: trusted_proxies.clone(),
    }
}

fn read_top_options(settings: &mut Settings) -> TopOptions {
    let week = Duration::from_secs(7 * 86_400);
    TopOptions {
        limit: settings.integer("top.limit", 1..=1_000, 100) as usize,
        min_accounts: settings.integer("top.min_accounts", 1..=MAX_TOP_ACCOUNTS as u64, 1) as usize,
        half_life: settings.nonzero_duration("top.half_life", week).as_secs_f64().max(1.0),
    }
}

fn read_downstream_options(
    settings: &mut Settings,
    trusted_proxies: &Networks,
) -> DownstreamOptions {
    let seconds = Duration::from_secs;
    DownstreamOptions {
        header_timeout: settings.nonzero_duration("listen.header_timeout", seconds(10)),
        keepalive_timeout: settings.nonzero_duration("listen.keepalive_timeout", seconds(60)),
        write_timeout: settings.nonzero_duration("listen.write_timeout", seconds(30)),
        max_streams: settings.integer("listen.max_streams", 1..=10_000, 100) as u32,
        sizes: RequestLimits {
            header_bytes: settings.integer("listen.max_header_bytes", 512..=1_000_000, 16_384)
                as usize,
            header_fields: settings.integer("listen.max_header_fields", 8..=250, 64) as usize,
            target_bytes: settings.integer("listen.max_target_bytes", 64..=65_536, 2_048) as usize,
            body_bytes: settings.integer("listen.max_body_bytes", 0..=1 << 30, 1 << 20) as usize,
        },
        h2c: settings.boolean("listen.h2c", false),
        fast_path: settings.boolean("listen.fast_path", false),
        proxy_protocol: settings
            .boolean("listen.proxy_protocol", false)
            .then(|| trusted_proxies.clone()),
    }
}

fn read_upstream_options(settings: &mut Settings, trusted_proxies: &Networks) -> UpstreamOptions {
    let servers = settings.servers("upstream.servers", "127.0.0.1:9000");
    let host = settings.text("upstream.host");
    let max_in_flight = settings.integer("upstream.max_in_flight", 1..=1_000_000, 1_000);
    let half = max_in_flight.div_ceil(2);
    UpstreamOptions {
        tls: settings.read_upstream_tls(&servers, host.as_deref()),
        max_in_flight: max_in_flight as usize,
        max_in_flight_per_address: settings.integer(
            "upstream.max_in_flight_per_address",
            1..=1_000_000,
            half,
        ) as usize,
        exempt_networks: trusted_proxies.clone(),
        servers,
        host,
        connect_timeout: settings
            .nonzero_duration("upstream.connect_timeout", Duration::from_millis(500)),
        deadline: settings.nonzero_duration("upstream.deadline", Duration::from_millis(2_500)),
        idle_timeout: settings.nonzero_duration("upstream.idle_timeout", Duration::from_secs(60)),
        health_interval: settings.duration("upstream.health_interval", Duration::from_secs(5)),
        health_path: settings.text("upstream.health_path"),
        eject_for: settings.duration("upstream.eject_for", Duration::from_secs(2)),
    }
}

fn read_store_options(settings: &mut Settings) -> StoreOptions {
    let url = settings.store_url("store.url", "sqlite:state/riskgate.db");
    let wait_replicas = settings.integer("store.wait_replicas", 0..=8, 0) as usize;
    let deadline = match url {
        StoreUrl::Sqlite(_) => Duration::from_secs(1),
        StoreUrl::Redis(_) if wait_replicas == 0 => Duration::from_millis(50),
        // Redis looks ten times a second whether a WAIT has ended.
        StoreUrl::Redis(_) => Duration::from_millis(500),
    };
    StoreOptions {
        url,
        redis: RedisOptions {
            wait_replicas,
            tls_ca: settings.text("store.tls_ca").map(PathBuf::from),
        },
        deadline: settings.nonzero_duration("store.deadline", deadline),
        max_unsettled: settings.integer("store.max_unsettled", 0..=1_000_000_000, 100_000),
    }
}

/// The plans as shipped, unless the config names its own.
fn read_plans(settings: &mut Settings) -> Plans {
    let mut plans = settings.read_plan_limits("plans");
    if plans.is_empty() {
        let shipped = [("free", 100), ("starter", 1_000), ("pro", 10_000), ("business", 100_000)];
        plans = BTreeMap::from(
            shipped.map(|(name, calls)| (name.to_owned(), MonthlyLimit::Calls(calls))),
        );
    }
    if !plans.contains_key(DEFAULT_PLAN) {
        settings.report_missing("plans.free", "a limit for accounts without a plan");
    }
    plans
}

#[cfg(test)]
mod tests;
