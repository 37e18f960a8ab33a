//! Reads config, overrides, table, key file and certificates before the process serves.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{Config, ConfigFault, ConfigSources};
use crate::feed::FeedLocation;
use crate::keys::{KeyFileError, find_unknown_plans, read_key_file};
use crate::management::KnownOverrides;
use crate::process::reload::{InputWatches, check_audit_file, path_of_written_records_log};
use crate::proxy::upstream::{UpstreamTls, check_connector_authorities};
use crate::store::StoreUrl;
use crate::support::certificates::{
    CertificateDescription, CertificateFault, CertificateSet, read_authorities,
};
use crate::support::regular_file::PathTarget;
use crate::table::{Table, TableLocation};

/// Why riskgate did not start. If a start fails, riskgate has served no request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The config, or a file or store that the config names, is faulty or missing. Each text has
    /// one or more faults, one a line. A fault of a file has the form `file:line: key: expected …,
    /// but found …`. `riskgate run` ends with exit code 78.
    #[error("{}", .0.join("\n"))]
    Config(Vec<String>),
    /// Anything else failed, for example because the system refused a socket. `riskgate run` ends
    /// with exit code 1.
    #[error("{0}")]
    Failed(String),
}

/// The longest timeout with which a start opens the store to read its time and overrides. If a
/// Redis server does not answer by then, riskgate asks it again once the process serves.
const MAX_OVERRIDES_WAIT: Duration = Duration::from_secs(1);

/// The config and what it names, as `riskgate run` and `riskgate check` read both at their start.
pub struct StartupInputs {
    /// The config.
    pub config: Config,
    /// The table.
    pub table: Table,
    /// The overrides of the store.
    pub overrides: KnownOverrides,
    /// The keys that the key file declares.
    pub declared_keys: Vec<crate::keys::DeclaredKey>,
    /// The certificates of the HTTPS listener; `None` if the config has no such listener.
    pub certificates: Option<CertificateSet>,
    /// The watches that notice whether a file has changed since it was read.
    pub(in crate::process) watches: InputWatches,
}

impl StartupInputs {
    /// Reads the config, and what the config names: the overrides of the store, the table, the key
    /// file and the certificates. Checks the authorities of `upstream.tls_ca`.
    ///
    /// # Errors
    /// Returns every fault of the config and of these files. If the config is so faulty that it
    /// names no files, returns only its own faults. A store that can't be read is no fault here.
    pub fn read(config_sources: &ConfigSources) -> Result<StartupInputs, Vec<String>> {
        let (watches, config, faults) = InputWatches::begin(config_sources);
        let mut faults: Vec<String> = faults.iter().map(ConfigFault::to_text).collect();
        let Some(config) = config else { return Err(faults) };
        let deadline = config.startup.store.deadline.min(MAX_OVERRIDES_WAIT);
        let inputs = &config.reloadable.table;
        let (now, overrides) =
            KnownOverrides::read_with_time(&config.startup.store, deadline, inputs);
        let table = Table::build(&overrides.add_to_copy_of(inputs), now);
        let declared = match &config.reloadable.key_file {
            Some(path) => read_key_file(path, &Config::env_var),
            None => Ok(Vec::new()),
        };
        if let Err(error) = &table {
            let texts = error.faults_as_text().into_iter();
            faults.extend(texts.map(|fault| place_table_fault(&config, fault)));
        }
        if let Err(errors) = &declared {
            faults.extend(errors.iter().map(KeyFileError::to_text));
            // Good keys are checked against the plans with the rows of the store.
            let plans: Vec<String> = config.reloadable.plans.keys().cloned().collect();
            let path = config.reloadable.key_file.iter();
            let unknown = path.flat_map(|it| find_unknown_plans(it, &plans));
            faults.extend(unknown.map(|fault| KeyFileError::to_text(&fault)));
        }
        let certificates = CertificateSet::load(&config.reloadable.certificates);
        if let Err(errors) = &certificates {
            let place = |error: &CertificateFault| {
                config.file_setting_places.place_certificate_fault(error)
            };
            faults.extend(errors.iter().map(place));
        }
        let fault = config.startup.upstream.tls.as_ref().and_then(find_authorities_fault);
        let place = |fault| config.file_setting_places.place_fault(fault, "upstream.tls_ca");
        faults.extend(fault.map(place));
        match (table, declared, certificates) {
            (Ok(table), Ok(declared), Ok(certificates)) if faults.is_empty() => {
                let declared_keys = declared;
                Ok(StartupInputs { config, table, overrides, declared_keys, certificates, watches })
            }
            _ => {
                let place = |fault| config.file_setting_places.place_fault_of_missing_file(fault);
                Err(faults.into_iter().map(place).collect())
            }
        }
    }
}

/// Warns of certificates that are not valid at a time in Unix seconds, each at its setting.
pub fn warnings_of_invalid_certificates(
    config: &Config,
    certificates: &[CertificateDescription],
    now: i64,
) -> Vec<String> {
    let warning = |certificate: &CertificateDescription| {
        let validity = certificate.judge(now);
        let problem = validity.problem()?;
        Some(warn_of_certificate(config, certificate, &problem, validity.advice()?))
    };
    certificates.iter().filter_map(warning).collect()
}

/// Warns of certificates that no client gets, each at its setting.
pub fn warnings_of_unreachable_certificates(
    config: &Config,
    certificates: &[CertificateDescription],
) -> Vec<String> {
    let warning = |certificate: &CertificateDescription| {
        let advice = "no client gets this certificate; remove it, or put another one there";
        Some(warn_of_certificate(config, certificate, certificate.unreachable?, advice))
    };
    certificates.iter().filter_map(warning).collect()
}

fn warn_of_certificate(
    config: &Config,
    certificate: &CertificateDescription,
    problem: &str,
    advice: &str,
) -> String {
    let (places, chain) = (&config.file_setting_places, Path::new(&certificate.chain));
    let fault = places.fault_at_setting(chain, "listen.certificate.chain", problem);
    fault.with_hint(Some(advice.to_owned())).to_text()
}

/// Adds to the fault of a file that is no compiled table, or of a folder without a manifest, its
/// setting, and how to use a list.
fn place_table_fault(config: &Config, fault: String) -> String {
    let TableLocation::Path(path) = &config.reloadable.table.base_location else { return fault };
    let problem = fault.strip_prefix(&format!("{}: ", path.display()));
    let is_no_table = |it: &&str| it.ends_with("a compiled table, but found other bytes");
    let of_manifest = format!("{}: ", path.join("manifest.toml").display());
    let has_no_manifest = path.is_dir()
        && fault.strip_prefix(&of_manifest) == Some("expected a manifest, but found no such file");
    let (problem, list) = match problem.filter(is_no_table) {
        Some(problem) => (problem.to_owned(), path.clone()),
        None if has_no_manifest => {
            let expected = "expected a compiled table, or a folder with a manifest.toml, but found";
            (format!("{expected} none in {}", path.display()), path.join("LIST.txt"))
        }
        None => return fault,
    };
    let hint = format!(
        "for a list of domains, write [[table.feed]], and below it name = \"own\" and url = {:?}",
        list.display().to_string()
    );
    let fault = config.file_setting_places.fault_at_setting(path, "table.path", &problem);
    fault.with_hint(Some(hint)).to_text()
}

/// Checks that the access log and the file of the audit can be written. Checks that `log.path` and
/// the old files of the log, and `audit.path` and the log of written records beside it, name
/// neither each other nor another file of riskgate.
pub(in crate::process) fn check_log_paths(config: &Config) -> Result<(), StartError> {
    let log = config.startup.log_target.check_is_writable();
    log.map_err(|error| access_log_error(config, &error))?;
    if let Some(path) = &config.startup.audit_path {
        check_audit_file(path).map_err(|error| append_error(config, "audit.path", path, &error))?;
    }
    let mut others = FilesClosedToLogs::new();
    for (whose, file) in list_files_closed_to_logs(config) {
        close_to_logs(&mut others, whose, &file);
    }
    let find_fault = |setting: &str, path: &Path, file: &Path, others: &FilesClosedToLogs| {
        let whose = others.get(&PathTarget::of(file)?)?;
        let problem = format!("expected another file than {whose}, but found {}", file.display());
        let fault = config.file_setting_places.fault_at_setting(path, setting, &problem);
        // Whether the file exists says nothing.
        Some(fault.with_hint(None))
    };
    let check =
        |setting: &str, path: &Path, file: &Path, others: &FilesClosedToLogs| match find_fault(
            setting, path, file, others,
        ) {
            Some(fault) => Err(StartError::Config(vec![fault.to_text()])),
            None => Ok(()),
        };
    if let Some(audit) = &config.startup.audit_path {
        let written = path_of_written_records_log(audit);
        check("audit.path", audit, audit, &others)?;
        check("audit.path", audit, &written, &others)?;
        close_to_logs(&mut others, "audit.path".to_owned(), audit);
        close_to_logs(&mut others, "that of audit.path with .written".to_owned(), &written);
    }
    let Some(log) = &config.startup.log_target.path else { return Ok(()) };
    check("log.path", log, log, &others)?;
    for old in config.startup.log_target.list_old_files() {
        if let Some(fault) = find_fault("log.path", log, &old, &others) {
            let old = old.display();
            let hint = format!("riskgate renames a full log to {old}: log.max_bytes is set");
            return Err(StartError::Config(vec![fault.with_hint(Some(hint)).to_text()]));
        }
    }
    Ok(())
}

/// Says why Pingora can't load the authorities of the upstream servers. `None` if it can.
fn find_authorities_fault(tls: &UpstreamTls) -> Option<String> {
    if let Some(fault) = tls.ca_file.as_ref().and_then(|it| read_authorities(Path::new(it)).err()) {
        return Some(fault.to_string());
    }
    let found = check_connector_authorities(tls).err()?;
    Some(match &tls.ca_file {
        Some(path) => format!(
            "{path}: expected certificates of authorities in PEM form and nothing else, but found \
             {found}"
        ),
        None => format!(
            "upstream.tls: expected authorities of the system that can be read, but found {found}; \
             name the authorities of the servers in upstream.tls_ca"
        ),
    })
}

/// The files of riskgate to which no log may be written, each with the words for an error. Each is
/// resolved once, because a log may have very many old files.
type FilesClosedToLogs = HashMap<PathTarget, String>;

/// Adds a file. If the file has another name already, its first words stay.
fn close_to_logs(others: &mut FilesClosedToLogs, whose: String, file: &Path) {
    if let Some(target) = PathTarget::of(file) {
        others.entry(target).or_insert(whose);
    }
}

/// Lists the files of riskgate to which no log may be written, each with the words for an error.
fn list_files_closed_to_logs(config: &Config) -> Vec<(String, PathBuf)> {
    let mut others: Vec<(String, PathBuf)> = Vec::new();
    if let StoreUrl::Sqlite(store) = &config.startup.store.url {
        // SQLite has more files beside the database. A log line in any of these damages the store.
        for suffix in ["", "-wal", "-shm", "-journal", "-wal-note"] {
            let mut file = store.as_os_str().to_owned();
            file.push(suffix);
            others.push(("the store's".to_owned(), PathBuf::from(file)));
        }
    }
    others.extend(config.file.iter().map(|file| ("the config".to_owned(), file.clone())));
    let named = config.file_setting_places.files_to_read();
    others.extend(named.map(|(setting, file)| (setting.to_owned(), file.to_owned())));
    // The default file, which no setting names, and the lists of the feeds.
    let table = config.reloadable.table.input_paths().into_iter();
    others.extend(table.map(|file| ("that of an input of the table".to_owned(), file)));
    let feeds = config.reloadable.feeds.feeds.iter();
    others.extend(feeds.filter_map(|feed| match &feed.url {
        FeedLocation::File(file) => {
            Some((format!("the list of the feed {}", feed.name), file.clone()))
        }
        FeedLocation::Web(_) => None,
    }));
    others
}

/// Makes the start error for an access log that can't be written.
pub(super) fn access_log_error(config: &Config, error: &std::io::Error) -> StartError {
    match &config.startup.log_target.path {
        Some(path) => append_error(config, "log.path", path, error),
        None => StartError::Config(vec![format!(
            "config: log.path: expected a file to append to, but found {error}: standard output"
        )]),
    }
}

/// Makes the start error for a file to which riskgate can't append.
fn append_error(config: &Config, setting: &str, path: &Path, error: &std::io::Error) -> StartError {
    let problem = format!("expected a file to append to, but found {error}: {}", path.display());
    let fault = config.file_setting_places.fault_at_setting(path, setting, &problem);
    StartError::Config(vec![fault.to_text()])
}

#[cfg(test)]
mod tests;
