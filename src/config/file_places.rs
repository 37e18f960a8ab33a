//! Where the settings stand that name files, for faults that show when the files are read.

use std::fs;
use std::path::{Path, PathBuf};

use super::fault::ConfigFault;
use super::settings::Settings;

/// The names of settings, without their section, that name a file or a directory.
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

/// The setting that names each file.
#[derive(Clone, Debug, Default)]
pub struct FilePlaces {
    /// Each path, with a fault that has the place and the name of its setting, and no problem yet.
    places: Vec<(PathBuf, ConfigFault)>,
}

impl FilePlaces {
    pub(super) fn of_settings(settings: &Settings) -> FilePlaces {
        let is_of_file = |key: &str| {
            key != "authz.path"
                && key.rsplit('.').next().is_some_and(|name| FILE_SETTINGS.contains(&name))
        };
        let named = settings.values.iter().filter(|(key, _)| is_of_file(key));
        let places = named.filter_map(|(key, setting)| {
            let text = setting.raw.as_text().filter(|text| !text.is_empty())?;
            Some((settings.resolve_path(key, text.into()), settings.place_of_value(key)))
        });
        FilePlaces { places: places.collect() }
    }

    /// The fault of a file at the setting that names it, or of `setting` if none does.
    pub fn fault(&self, path: &Path, setting: &str, problem: &str) -> ConfigFault {
        let place = self.places.iter().find(|(named, _)| named == path).map(|(_, place)| place);
        let fault = match place {
            Some(place) => place.clone().with_problem(problem),
            None => ConfigFault::new(format!("config: {setting}: {problem}")),
        };
        fault.with_hint(hint_for_missing(path))
    }

    /// Returns the fault of a file, which begins with its path, at the setting that names the file,
    /// if there is no file. Other faults are faults in the file.
    pub fn place_missing(&self, text: String) -> String {
        self.place_if(text, |path| !path.is_file())
    }

    /// Returns the fault of a file, which begins with its path, at the setting that names the file:
    /// for files in which no line is at fault.
    pub fn place(&self, text: String) -> String {
        self.place_if(text, |_| true)
    }

    fn place_if(&self, text: String, is_placed: impl Fn(&Path) -> bool) -> String {
        let of_file = self.places.iter().find_map(|(path, _)| {
            let problem = text.strip_prefix(&format!("{}: ", path.display()))?;
            is_placed(path).then(|| self.fault(path, "", problem).to_text())
        });
        of_file.unwrap_or(text)
    }
}

/// Says what is missing: the path starts at the folder of the config, not where the shell stands.
pub(super) fn hint_for_missing(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    if fs::exists(&path).unwrap_or(true) {
        return None;
    }
    let folder = path.parent()?;
    Some(match folder.exists() {
        true => format!("there is no {}", path.display()),
        false => format!("there is no folder {}", folder.display()),
    })
}
