//! Where the config is read from.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The environment variable that names the config file if the command line names none.
pub const CONFIG_FILE_VARIABLE: &str = "RISKGATE_CONFIG";
/// The config files of which riskgate reads the first that exists, if nothing names one.
pub const DEFAULT_CONFIG_PATHS: [&str; 2] = ["conf/riskgate.toml", "/etc/riskgate/riskgate.toml"];

/// The file that the config is read from.
#[derive(Clone, Debug, Default)]
pub enum ConfigFile {
    /// This file, which must exist.
    Path(PathBuf),
    /// No file.
    #[default]
    None,
}

impl ConfigFile {
    /// Returns the file that `RISKGATE_CONFIG` names, else the first of [`DEFAULT_CONFIG_PATHS`]
    /// that exists, else no file. riskgate asks only once: if the file disappears later, reloads
    /// fail and do not use the built-in defaults.
    pub fn find_default() -> ConfigFile {
        if let Some(named) = std::env::var_os(CONFIG_FILE_VARIABLE).filter(|path| !path.is_empty())
        {
            return ConfigFile::Path(named.into());
        }
        // A file in a directory that this user may not read may exist: reading it reports why not.
        let is_missing = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
        let exists =
            |path: &&Path| path.symlink_metadata().map_or_else(|e| !is_missing(e.kind()), |_| true);
        let found = DEFAULT_CONFIG_PATHS.map(Path::new).into_iter().find(exists);
        found.map_or(ConfigFile::None, |path| ConfigFile::Path(path.to_owned()))
    }
}

/// Where the config is read from, apart from the environment: a file, and the command line.
#[derive(Clone, Debug, Default)]
pub struct ConfigSources {
    /// The file to read.
    pub file: ConfigFile,
    /// Command-line flags as pairs of a setting, such as `listen.http`, and its value.
    pub flags: Vec<(String, String)>,
}

impl ConfigSources {
    /// Returns the path of the file, if there is one.
    pub fn file_path(&self) -> Option<PathBuf> {
        match &self.file {
            ConfigFile::Path(file) => Some(file.clone()),
            ConfigFile::None => None,
        }
    }
}
