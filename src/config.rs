//! Reads the config and checks it completely.
//!
//! Three sources have settings: a TOML file, `RISKGATE__SECTION__KEY` variables and flags.
//! Variables override the file, and flags override both. This module owns the name, default and
//! range of every setting. Other modules read variables of the environment through
//! [`Config::env_var`] and [`Config::env_var_os`].

mod admin;
mod authz;
mod client_rates;
mod counterparts;
mod decisions;
mod description;
mod dns;
mod effective;
mod fault;
mod feeds;
mod file_setting_places;
mod hints;
mod idle;
mod judged_value;
mod keys;
mod listen;
mod locations;
mod logs;
mod plans;
mod raw_value;
mod read_at_start;
mod readable_name;
mod route_cors;
mod routes;
mod schema;
mod screening;
mod secret;
mod settings;
mod sources;
mod store;
mod syntax;
mod text_kind;
mod tls;
mod top;
mod traces;
mod unknown_keys;
mod unread_variables;
mod upstream;
mod variables;
mod warnings;
mod webhook;

use std::ffi::OsString;
use std::mem;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::decide::InboxSecret;
use crate::dns::DnsOptions;
use crate::downstream::{ConnectionLimits, DownstreamOptions};
use crate::feed::Feeds;
use crate::gate::authz_rules::AuthzRules;
use crate::gate::decisions::DecisionSettings;
use crate::gate::route::UpstreamRoute;
use crate::gate::{BodyOptions, CheckAnswer, ReloadableRules, StartupRules};
use crate::keys::Plans;
use crate::model::verdict::Score;
use crate::observe::access_log::{AccessLogOptions, LogTarget};
use crate::observe::process_log::ProcessLogOptions;
use crate::observe::top_domains::TopDomainsOptions;
use crate::observe::traces::TraceOptions;
use crate::proxy::upstream::UpstreamOptions;
use crate::quota::FailurePolicy;
use crate::support::certificates::CertificateFiles;
use crate::support::client_rates::Rate;
use crate::table::TableInputs;
use crate::webhook::WebhookOptions;

pub use admin::{AdminToken, TokenScope};
pub use decisions::list_deciding_routes;
pub use effective::{EffectiveSetting, EffectiveSettings, SettingOrigin, fingerprint_secret};
pub use fault::ConfigFault;
pub use file_setting_places::{FileSettingPlaces, hint_for_unopened};
pub use hints::{find_mistyped_name, find_nearest_name, guess_text};
pub use locations::{
    CONFIG_FILE_VARIABLE, ConfigFile, ConfigSources, DEFAULT_CONFIG_PATHS, FormerDefault,
    RelativePathBases,
};
pub use raw_value::{parse_duration, redact_if_url};
pub use routes::guess_path;
use settings::Settings;
pub use settings::hint_for_store;
pub use store::StoreOptions;
pub use text_kind::TextKind;

/// All settings, complete and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// The default paths of earlier versions at which something stands.
    pub former_defaults: Vec<FormerDefault>,
    /// Where in the config the setting of each file stands.
    pub file_setting_places: FileSettingPlaces,
    /// Faulty settings with which the gateway starts nevertheless, and of which it warns.
    pub doubtful_settings: Vec<ConfigFault>,
    /// What takes effect when a process starts.
    pub startup: StartupConfig,
    /// What a reload may change while a process runs.
    pub reloadable: ReloadableConfig,
}

/// The settings that take effect when a process starts. If one of them changes, a reload only
/// reports the change.
#[derive(Clone, Debug, PartialEq)]
pub struct StartupConfig {
    /// The address of the HTTP listener.
    pub http: SocketAddr,
    /// The address of the HTTPS listener, if any.
    pub https: Option<SocketAddr>,
    /// The address of the listener that sends clients to HTTPS, if any.
    pub redirect: Option<SocketAddr>,
    /// The address of the admin listener.
    pub admin: SocketAddr,
    /// Threads of each request listener.
    pub threads: usize,
    /// The rules of the gate that take effect at the start.
    pub startup_rules: StartupRules,
    /// Timeouts, sizes and protocols of client connections.
    pub downstream: DownstreamOptions,
    /// The limits on open connections.
    pub connection_limits: ConnectionLimits,
    /// Where the access log is written.
    pub log_target: LogTarget,
    /// Where traces are sent; `None` if they are off.
    pub traces: Option<TraceOptions>,
    /// The upstream servers.
    pub upstream: UpstreamOptions,
    /// The store and its connection settings.
    pub store: StoreOptions,
    /// Whether the nodes of the store share the rates of clients.
    pub shares_rates: bool,
    /// The directory with the pid file and the upgrade socket; None disables upgrades.
    pub runtime_dir: Option<PathBuf>,
    /// How long a draining process keeps accepting connections.
    pub drain_delay: Duration,
    /// How long a draining process waits for requests in flight, in whole seconds, because Pingora
    /// knows no shorter time.
    pub drain_grace: Duration,
    /// The file to which riskgate appends the records of the audit; None without such a file.
    pub audit_path: Option<PathBuf>,
    /// The secret of inbox ids; `None` if the store has the secret.
    pub inbox_secret: Option<InboxSecret>,
    /// Whether `/metrics` needs no token.
    pub metrics_need_no_token: bool,
}

/// The settings that a reload may change while a process runs.
#[derive(Clone, Debug)]
pub struct ReloadableConfig {
    /// The certificates of the HTTPS listener.
    pub certificates: Vec<CertificateFiles>,
    /// What riskgate checks for proxies that ask; `None` if no proxy may ask.
    pub authz: Option<Arc<AuthzRules>>,
    /// How sign-ups are decided and counted.
    pub decisions: Arc<DecisionSettings>,
    /// Whether and how requests are logged.
    pub access_log: AccessLogOptions,
    /// What the process log contains.
    pub process_log: ProcessLogOptions,
    /// The `[[upstream.route]]` entries: further paths that are forwarded to the upstream servers.
    pub upstream_routes: Vec<UpstreamRoute>,
    /// The sources of the table.
    pub table: TableInputs,
    /// Feeds that update lists of the table.
    pub feeds: Feeds,
    /// How riskgate queries the DNS for names that no list has.
    pub dns: DnsOptions,
    /// Who answers checks.
    pub check_answer: CheckAnswer,
    /// The score of domains that no list and no rule judges; `None` means the score that the table
    /// gives them.
    pub unknown_score: Option<Score>,
    /// Whether calls without a lease pass while the store is down.
    pub on_failure: FailurePolicy,
    /// The file that declares keys, if any.
    pub key_file: Option<PathBuf>,
    /// The rate of each client with one key, for requests that a browser may have sent; `None`
    /// without a rate.
    pub max_per_client_of_key: Option<Rate>,
    /// The prefix of new keys.
    pub key_prefix: String,
    /// Calls per month, by plan.
    pub plans: Plans,
    /// Options of the list of the most frequently flagged domains.
    pub top_domains: TopDomainsOptions,
    /// The receiver of quota webhooks, and how to reach it; None without webhooks.
    pub webhook: Option<WebhookOptions>,
    /// The tokens of the admin listener. At least one is required unless the listener is on
    /// loopback.
    pub admin_tokens: Vec<AdminToken>,
}

/// What was read of a config, and from which files.
pub struct ConfigReading {
    /// The config, with defaults in place of faulty settings; `None` if the file can't be read as
    /// TOML.
    pub config: Option<Config>,
    /// The same settings as people read them; `None` with a fault.
    pub settings: Option<EffectiveSettings>,
    /// Every fault. Each begins with its place, such as a file and a line.
    pub faults: Vec<ConfigFault>,
    /// The config file, and the files of secrets and of authorities that the settings name.
    pub files: Vec<PathBuf>,
    /// True if the system could not read one of these files for now. A later read may succeed,
    /// although no file changes.
    pub has_transient_fault: bool,
}

impl Config {
    /// Reads file, environment and flags.
    ///
    /// # Errors
    /// Returns every fault. Each begins with its place, such as a file and a line.
    pub fn read(sources: &ConfigSources) -> Result<Config, Vec<ConfigFault>> {
        match Config::read_collecting_faults(sources) {
            (Some(config), faults) if faults.is_empty() => Ok(config),
            (_, faults) => Err(faults),
        }
    }

    /// Like [`Config::read`], but for a command that needs only some secrets: passes over faulty
    /// files of other secrets. The config lacks these secrets. `needed` has the settings that name
    /// the files of the needed ones, such as `store.url_file`.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn read_with_secrets(
        sources: &ConfigSources,
        needed: &[&str],
    ) -> Result<Config, Vec<ConfigFault>> {
        let (config, mut faults) = Config::read_collecting_faults(sources);
        faults.retain(|fault| fault.faulty_secret().is_none_or(|file| needed.contains(&file)));
        config.filter(|_| faults.is_empty()).ok_or(faults)
    }

    /// Like [`Config::read`], but gives faulty settings their defaults, so that the caller can also
    /// check the files that the config names. Returns no config if the file can't be read as TOML.
    pub fn read_collecting_faults(sources: &ConfigSources) -> (Option<Config>, Vec<ConfigFault>) {
        let ConfigReading { config, faults, .. } = Config::read_and_list_files(sources);
        (config, faults)
    }

    /// Like [`Config::read_collecting_faults`], but also returns which files were read, so that the
    /// caller can read the config again when one of them changes.
    pub fn read_and_list_files(sources: &ConfigSources) -> ConfigReading {
        let mut settings = Settings::default();
        let config = match settings.read_sources(sources) {
            Ok(()) => {
                let config = Config::from_settings(sources.file_path(), &mut settings);
                settings.report_unknown_keys();
                settings.sort_faults();
                Some(config)
            }
            Err(faults) => {
                settings.faults = faults;
                None
            }
        };
        let is_good = config.is_some() && settings.faults.is_empty();
        let shown = is_good.then(|| EffectiveSettings::from_settings(&settings));
        let Settings { faults, files, has_transient_fault, .. } = settings;
        ConfigReading { config, settings: shown, faults, files, has_transient_fault }
    }

    /// Reads the settings as [`Config::read`] does, and returns each setting with its source.
    pub fn read_effective_settings(
        sources: &ConfigSources,
    ) -> Result<EffectiveSettings, Vec<ConfigFault>> {
        let ConfigReading { settings, faults, .. } = Config::read_and_list_files(sources);
        settings.ok_or(faults)
    }

    /// Reads the settings of the file alone, and lists them as [`Config::read_effective_settings`]
    /// does. Leaves out the environment and the command line, because they differ between
    /// processes. Ignores faulty settings, because the file alone may be incomplete.
    ///
    /// # Errors
    /// Returns the fault if the file can't be read as TOML.
    pub fn read_settings_of_file(file: &Path) -> Result<EffectiveSettings, Vec<ConfigFault>> {
        let mut settings = Settings::default();
        settings.read_config_file(file)?;
        Config::from_settings(Some(file.to_owned()), &mut settings);
        Ok(EffectiveSettings::from_settings(&settings))
    }

    /// Returns the JSON Schema (2020-12) of the config file, for editors.
    pub fn schema() -> serde_json::Value {
        // Faults of this config don't matter: only the descriptions of the settings count.
        let mut settings = Settings::of_each_section();
        Config::from_settings(None, &mut settings);
        schema::render_schema(&settings.descriptions)
    }

    fn from_settings(file: Option<PathBuf>, settings: &mut Settings) -> Config {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let addresses = settings.read_listen_addresses();
        let admin_tokens = settings.read_admin_tokens();
        let trusted_proxies = settings.read_networks("listen.trusted_proxies");
        let upstream_routes = settings.read_upstream_routes();
        let authz_path = settings.read_authz_path(&upstream_routes);
        let authz = settings.read_authz_rules(authz_path.as_ref());
        settings.report_admin_without_token(&addresses, &admin_tokens);
        let feeds = settings.read_feeds();
        let downstream = settings.read_downstream_options(&trusted_proxies, authz_path.as_ref());
        let bodies = settings.read_body_options(downstream.request_limits.body_bytes);
        let store = settings.read_store_options();
        let mut config = Config {
            file,
            former_defaults: Vec::new(),
            file_setting_places: FileSettingPlaces::default(),
            doubtful_settings: Vec::new(),
            startup: StartupConfig {
                http: addresses.http,
                https: addresses.https,
                redirect: addresses.redirect,
                admin: addresses.admin,
                threads: settings.read_integer("listen.threads", 1..=1024, cores as u64) as usize,
                downstream,
                connection_limits: settings.read_connection_limits(&trusted_proxies),
                upstream: settings.read_upstream_options(&trusted_proxies),
                startup_rules: settings.read_startup_rules(trusted_proxies, &authz_path, bodies),
                log_target: settings.read_log_target(),
                traces: settings.read_trace_options(),
                shares_rates: settings.read_shares_rates(&store),
                store,
                runtime_dir: settings.read_path_or_default("process.runtime_dir", "state/run"),
                drain_delay: settings.read_duration("drain.delay", Duration::ZERO),
                drain_grace: settings.read_whole_seconds("drain.grace", 30),
                audit_path: settings.read_path("audit.path"),
                inbox_secret: settings.read_inbox_secret(),
                metrics_need_no_token: settings.read_boolean("admin.metrics_public", false),
            },
            reloadable: ReloadableConfig {
                certificates: settings.read_certificate_files(),
                decisions: settings.read_decisions(&upstream_routes, authz.as_deref()),
                authz,
                access_log: settings.read_access_log_options(),
                process_log: settings.read_process_log_options(),
                upstream_routes,
                table: settings.read_table_inputs(&feeds),
                feeds,
                dns: settings.read_dns_options(),
                check_answer: settings.read_check_answer(),
                unknown_score: settings
                    .read_optional_integer("table.unknown_score", 0..=100)
                    .and_then(|n| Score::new(n as u8)),
                on_failure: settings.read_failure_policy(),
                key_file: settings.read_path("keys.file"),
                max_per_client_of_key: settings.read_rate("keys.max_per_client"),
                key_prefix: settings.read_key_prefix("keys.prefix", "rg_"),
                plans: settings.read_plans(),
                top_domains: settings.read_top_domains_options(),
                webhook: settings.read_webhook_options(),
                admin_tokens,
            },
        };
        settings.warn_of_own_servers(&config.startup);
        settings.report_idle_settings(&config.startup.store.url);
        config.doubtful_settings = mem::take(&mut settings.warnings);
        config.former_defaults = mem::take(&mut settings.former_defaults);
        config.file_setting_places = FileSettingPlaces::of_settings(settings);
        config
    }

    /// Reads an environment variable, such as the `env` of a declared key. Bytes that are not UTF-8
    /// become replacement characters, which no key contains.
    pub fn env_var(name: &str) -> Option<String> {
        Config::env_var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    /// Reads an environment variable without decoding it.
    pub fn env_var_os(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

impl StartupConfig {
    /// Lists the settings that `new` changes. These changes take effect at the next restart.
    pub fn list_changes(&self, new: &StartupConfig) -> Vec<&'static str> {
        // Each field is named, so that none is forgotten.
        let StartupConfig {
            http,
            https,
            redirect,
            admin,
            threads,
            startup_rules,
            downstream,
            connection_limits,
            log_target,
            traces,
            upstream,
            store,
            shares_rates,
            runtime_dir,
            drain_delay,
            drain_grace,
            audit_path,
            inbox_secret,
            metrics_need_no_token,
        } = self;
        let StartupRules { client_address, authz_path, key_header, hsts, bodies } = startup_rules;
        // The comparison of `downstream` leaves out its copy of `authz_path`.
        let mut new_downstream = new.downstream.clone();
        new_downstream.request_limits.authz_path.clone_from(authz_path);
        // The comparison of `bodies` leaves out its copy of `max_bytes`, which `downstream` has
        // too.
        let new_bodies = new.startup_rules.bodies.clone();
        let new_bodies = BodyOptions { max_bytes: bodies.max_bytes, ..new_bodies };
        [
            ("listen.http", *http == new.http),
            ("listen.https", *https == new.https),
            ("listen.redirect", *redirect == new.redirect),
            ("listen.admin", *admin == new.admin),
            ("listen.threads", *threads == new.threads),
            (
                "listen.trusted_proxies, listen.client_address",
                *client_address == new.startup_rules.client_address,
            ),
            ("authz.path", *authz_path == new.startup_rules.authz_path),
            ("keys.header", *key_header == new.startup_rules.key_header),
            ("listen.hsts", *hsts == new.startup_rules.hsts),
            ("listen (timeouts, sizes, fast_path)", *downstream == new_downstream),
            ("listen (body_timeout, max_held_bytes)", *bodies == new_bodies),
            ("listen (connections)", *connection_limits == new.connection_limits),
            ("log (path, max_bytes, kept_files)", *log_target == new.log_target),
            ("traces", *traces == new.traces),
            ("upstream", *upstream == new.upstream),
            ("store (but for on_failure)", *store == new.store),
            ("rates.shared", *shares_rates == new.shares_rates),
            ("process.runtime_dir", *runtime_dir == new.runtime_dir),
            ("drain.delay", *drain_delay == new.drain_delay),
            ("drain.grace", *drain_grace == new.drain_grace),
            ("audit.path", *audit_path == new.audit_path),
            ("inbox.secret_file", *inbox_secret == new.inbox_secret),
            ("admin.metrics_public", *metrics_need_no_token == new.metrics_need_no_token),
        ]
        .into_iter()
        .filter_map(|(setting, is_same)| (!is_same).then_some(setting))
        .collect()
    }

    /// The settings that name files which are read only when the process starts, each with its
    /// file.
    pub fn files_read_at_start(&self) -> Vec<(&'static str, PathBuf)> {
        let of_upstream = self.upstream.tls.as_ref().and_then(|tls| tls.ca_file.as_ref());
        let of_upstream = of_upstream.map(|path| ("upstream.tls_ca", PathBuf::from(path)));
        let of_traces = self.traces.as_ref().and_then(|traces| traces.tls_ca.clone());
        let of_traces = of_traces.map(|path| ("traces.tls_ca", path));
        let of_store = self.store.files_read_at_start();
        let of_store = of_store.map(|(setting, path)| (setting, path.clone()));
        of_store.chain(of_upstream).chain(of_traces).collect()
    }
}

impl ReloadableConfig {
    /// Returns those rules of the gate that a reload may change.
    pub fn rules(&self) -> ReloadableRules {
        ReloadableRules {
            upstream_routes: self.upstream_routes.clone(),
            unknown_score: self.unknown_score,
            check_answer: self.check_answer,
            max_per_client_of_key: self.max_per_client_of_key,
            authz: self.authz.clone(),
            decisions: Arc::clone(&self.decisions),
        }
    }
}

#[cfg(test)]
mod tests;
