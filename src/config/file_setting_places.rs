//! Where in the config the settings stand that name files. A fault that riskgate finds when it
//! reads a file then shows the line of the setting.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::description::without_indexes;
use super::fault::ConfigFault;
use super::raw_value::redact_urls_and_long_words;
use super::settings::Settings;
use crate::store::StoreError;
use crate::support::certificates::CertificateFault;
use crate::support::regular_file::{ReadError, open_regular_file};

const STORE_URL: &str = "store.url";

/// The last part of the key of each setting at which riskgate shows a fault of its file.
const FILE_SETTINGS: [&str; 9] = [
    "file",
    "path",
    "overrides",
    "chain",
    "key",
    "tls_ca",
    "tls_certificate",
    "tls_key",
    "runtime_dir",
];

/// Where the setting of each file stands.
#[derive(Clone, Debug, Default)]
pub struct FileSettingPlaces {
    places: Vec<FilePlace>,
    /// The settings that name files of secrets, each with its file.
    secrets: Vec<(String, PathBuf)>,
    /// A fault that has the place of `store.url`, and no problem yet; `None` if the config does not
    /// set it.
    store: Option<ConfigFault>,
}

/// A setting that names a file.
#[derive(Clone, Debug)]
struct FilePlace {
    key: String,
    path: PathBuf,
    /// A fault that has the place and the name of the setting, and no problem yet.
    fault: ConfigFault,
}

impl FileSettingPlaces {
    pub(super) fn of_settings(settings: &Settings) -> FileSettingPlaces {
        let is_of_file = |key: &str| {
            key != "authz.path"
                && key.rsplit('.').next().is_some_and(|name| FILE_SETTINGS.contains(&name))
        };
        let named = settings.values.iter().filter_map(|(key, setting)| {
            let text = setting.raw.as_text().filter(|text| !text.is_empty())?;
            Some((key, settings.resolve_path(key, text.into())))
        });
        let (mut places, mut secrets) = (Vec::new(), Vec::new());
        for (key, path) in named {
            if is_of_file(key) {
                let fault = settings.begin_fault_at_value(key);
                places.push(FilePlace { key: without_indexes(key), path, fault });
            } else if key.ends_with("_file") {
                secrets.push((without_indexes(key), path));
            }
        }
        let has_store = settings.values.contains_key(STORE_URL);
        let store = has_store.then(|| settings.begin_fault_at_value(STORE_URL));
        FileSettingPlaces { places, secrets, store }
    }

    /// Lists the settings that name files which riskgate reads and never writes, each with its
    /// file. A file of the table may be a folder.
    pub fn files_to_read(&self) -> impl Iterator<Item = (&str, &Path)> {
        let of_other_uses = ["log.path", "audit.path", "process.runtime_dir"];
        let places = self.places.iter().map(|it| (it.key.as_str(), it.path.as_path()));
        let secrets = self.secrets.iter().map(|(key, path)| (key.as_str(), path.as_path()));
        places.filter(move |(key, _)| !of_other_uses.contains(key)).chain(secrets)
    }

    /// Describes an error of the store in one line, with the place of its address.
    pub fn place_store_error(&self, error: &StoreError) -> String {
        let fault = match &self.store {
            Some(fault) => fault.clone().with_problem(&error.to_string()),
            None => ConfigFault::new(error.to_string()),
        };
        fault.with_hint(hint_for_store_error(error).map(str::to_owned)).to_string()
    }

    /// Creates a fault of a file that `setting` names. Shows its line, if the setting is in the
    /// config file. Other settings may name the same file.
    pub fn fault_at_setting(&self, path: &Path, setting: &str, problem: &str) -> ConfigFault {
        match self.places.iter().find(|it| it.path == path && it.key == setting) {
            Some(place) => place.fault(problem),
            None => ConfigFault::new(format!("config: {setting}: {problem}"))
                .with_hint(hint_for_unopened(path)),
        }
    }

    /// Adds the place of the setting to a fault of a file, if there is no regular file at the path.
    /// Otherwise returns `text` unchanged, because the fault is in the file. `text` must begin with
    /// the path.
    pub fn place_fault_of_missing_file(&self, text: String) -> String {
        self.place_if(text, |place| !place.path.is_file())
    }

    /// Adds the place of this setting to a fault of its file in which no line is at fault. `text`
    /// must begin with the path.
    pub fn place_fault(&self, text: String, setting: &str) -> String {
        self.place_if(text, |place| place.key == setting)
    }

    /// Adds the place of the setting to a fault of a certificate or its key.
    pub fn place_certificate_fault(&self, fault: &CertificateFault) -> String {
        let name = if fault.is_of_key() { "key" } else { "chain" };
        self.place_fault(fault.to_string(), &format!("listen.certificate.{name}"))
    }

    fn place_if(&self, text: String, is_placed: impl Fn(&FilePlace) -> bool) -> String {
        let of_file = self.places.iter().find_map(|place| {
            let problem = text.strip_prefix(&format!("{}: ", place.path.display()))?;
            is_placed(place).then(|| place.fault(problem).to_text())
        });
        of_file.unwrap_or(text)
    }
}

impl FilePlace {
    fn fault(&self, problem: &str) -> ConfigFault {
        self.fault.clone().with_problem(problem).with_hint(hint_for_unopened(&self.path))
    }
}

const HINT_FOR_REFUSED_LOGIN: &str = "write the user and the password that the server knows";

/// Says what to write or do about the answer of a Redis server, or about its silence.
fn hint_for_store_error(error: &StoreError) -> Option<&'static str> {
    if error.to_string().ends_with("another program's database") {
        return Some("write the path of a file of its own, which riskgate makes");
    }
    let StoreError::Unavailable { found, .. } = error else { return None };
    match found.split(' ').next()? {
        "NOAUTH" => Some(
            "the server wants a password: set RISKGATE__STORE__URL=redis://:PASSWORD@HOST:PORT in \
             the environment, or name a file with this address in url_file",
        ),
        "WRONGPASS" => Some(HINT_FOR_REFUSED_LOGIN),
        _ if found.contains("refuses the user or the password") => Some(HINT_FOR_REFUSED_LOGIN),
        _ if found.contains("refuses the number") => {
            Some("end the address behind the port, or raise `databases` of the server")
        }
        _ if found.contains("speaks no Redis") => {
            Some("write the address of the Redis or Valkey server")
        }
        _ if found.contains("unknown command 'SENTINEL'") => Some(
            "a server answers there: write redis:// for it, or the port of the Sentinels, which is \
             often 26379",
        ),
        _ if found.contains("Connection refused") => {
            Some("start the server, or write the address at which it listens")
        }
        _ => None,
    }
}

/// Says why a file was not opened: which file or folder is missing, which one this process may not
/// open, or which part of the path only a shell or systemd replaces. `None` if nothing of this is
/// so. Names absolute paths, because a relative path may start elsewhere than in the folder of the
/// shell.
pub fn hint_for_unopened(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    if let Some(hint) = hint_for_replaced_part(&path).filter(|_| !path.exists()) {
        return Some(hint);
    }
    match open_regular_file(&path, u64::MAX) {
        Err(ReadError::Io(error)) if error.kind() == ErrorKind::PermissionDenied => {
            hint_for_permission(&path)
        }
        _ if fs::exists(&path).unwrap_or(true) => None,
        // Somebody may have written a key in place of its path.
        _ if may_missing_part_be_key(&path) => describe_missing_part(&path),
        _ => {
            let folder = path.parent()?;
            Some(match folder.exists() {
                true => format!("there is no {}", path.display()),
                false => format!("there is no folder {}", folder.display()),
            })
        }
    }
}

/// Returns what to write for a part of a path that a shell or systemd would replace.
pub(super) fn hint_for_replaced_part(path: &Path) -> Option<String> {
    let has = |part: &str| path.components().any(|it| it.as_os_str() == part);
    let unit =
        "write the path from / on, such as /run/credentials/UNIT/NAME: riskgate replaces no %d";
    let home = "write the path from / on: riskgate replaces no ~";
    [("%d", unit), ("~", home)].iter().find(|it| has(it.0)).map(|it| it.1.to_owned())
}

/// Names the file or folder that this process may not open.
fn hint_for_permission(path: &Path) -> Option<String> {
    let user = fs::metadata("/proc/self").ok()?.uid();
    let is_denied = |it: &&Path| {
        fs::metadata(it).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    // The outermost path that can't be checked is in the folder that lets nobody in.
    let closed = path.ancestors().filter(is_denied).last().and_then(Path::parent);
    Some(match closed {
        Some(folder) => format!("the user {user} may not enter the folder {}", folder.display()),
        None => format!("the user {user} may not read {}", path.display()),
    })
}

/// Returns the last folder in a path that exists, and whether it is the folder of the file.
pub(super) fn find_existing_folder(path: &Path) -> Option<(PathBuf, bool)> {
    let path = std::path::absolute(path).ok()?;
    let folder = path.ancestors().skip(1).find(|it| it.is_dir())?;
    Some((folder.to_owned(), path.parent() == Some(folder)))
}

/// Says which part of a path is missing, by the last folder that exists.
pub(super) fn describe_missing_part(path: &Path) -> Option<String> {
    let (folder, is_parent) = find_existing_folder(path)?;
    let folder = folder.display();
    Some(match is_parent {
        true => format!("there is no such file in the folder {folder}"),
        false => format!("of the folders in this path, {folder} is the last that exists"),
    })
}

fn may_missing_part_be_key(path: &Path) -> bool {
    let Some((folder, _)) = find_existing_folder(path) else { return false };
    let missing = path.strip_prefix(folder).unwrap_or(path).to_string_lossy();
    redact_urls_and_long_words(&missing) != missing
}
