//! Where the config is read from.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The environment variable that names the config file if the command line names none.
pub const CONFIG_FILE_VARIABLE: &str = "RISKGATE_CONFIG";
/// The config files of which riskgate reads the first that exists, if nothing names one.
pub const DEFAULT_CONFIG_PATHS: [&str; 3] =
    ["riskgate.toml", "conf/riskgate.toml", "/etc/riskgate/riskgate.toml"];
/// Configs in this folder belong to a service, which has its data in [`SERVICE_DATA_FOLDER`].
const SERVICE_CONFIG_FOLDER: &str = "/etc/riskgate";
const SERVICE_DATA_FOLDER: &str = "/var/lib/riskgate";

/// The file that the config is read from.
#[derive(Clone, Debug, Default)]
pub enum ConfigFile {
    /// This file, which must exist.
    Path(PathBuf),
    /// This file, which this process has just written. No earlier version of riskgate has used it,
    /// so its default paths are the present ones.
    Written(PathBuf),
    /// No file.
    #[default]
    None,
}

impl ConfigFile {
    /// Returns the file that `RISKGATE_CONFIG` names, else the first of [`DEFAULT_CONFIG_PATHS`]
    /// that exists, else no file. Leaves out the relative paths if this user may not search the
    /// working directory. riskgate looks for the file only once. If the file disappears
    /// later, reloads fail and do not use the built-in defaults.
    pub fn find_default() -> ConfigFile {
        if let Some(named) = std::env::var_os(CONFIG_FILE_VARIABLE).filter(|path| !path.is_empty())
        {
            return ConfigFile::Path(named.into());
        }
        // Nobody keeps a config for this user where this user may not search. `sudo -u riskgate` in
        // /root starts riskgate in such a directory.
        let working_dir = Path::new(".").symlink_metadata();
        let skips_relative = working_dir.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
        let is_tried = |path: &&Path| path.is_absolute() || !skips_relative;
        // In another directory that this user may not read, the file may exist. riskgate then
        // reports why it can't read the file.
        let is_missing = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
        let exists =
            |path: &&Path| path.symlink_metadata().map_or_else(|e| !is_missing(e.kind()), |_| true);
        let found = DEFAULT_CONFIG_PATHS.map(Path::new).into_iter().filter(is_tried).find(exists);
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
            ConfigFile::Path(file) | ConfigFile::Written(file) => Some(file.clone()),
            ConfigFile::None => None,
        }
    }
}

/// The folders at which relative paths start: those of a config file, and the default paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelativePathBases {
    /// Where paths in the file start: the folder of the file, or the one above it if that folder is
    /// named `conf`.
    pub of_file: PathBuf,
    /// Where default paths start: the same folder, or /var/lib/riskgate if this folder is
    /// /etc/riskgate, which a service may not write to.
    pub of_defaults: PathBuf,
}

impl RelativePathBases {
    /// The folders of a config file. If `file` is relative, a folder at or below `working_dir` is
    /// written relative to `working_dir`, so that messages are short.
    pub fn of_config(file: &Path, working_dir: &Path) -> RelativePathBases {
        let absolute = working_dir.join(file);
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        let is_conf = folder.file_name().is_some_and(|name| name == "conf");
        let folder = if is_conf { folder.parent().unwrap_or(Path::new("/")) } else { folder };
        let shown = match file.is_absolute() {
            true => folder,
            false => folder.strip_prefix(working_dir).unwrap_or(folder),
        };
        let is_of_service = folder == Path::new(SERVICE_CONFIG_FOLDER);
        let of_defaults = if is_of_service { Path::new(SERVICE_DATA_FOLDER) } else { shown };
        RelativePathBases { of_file: shown.to_owned(), of_defaults: of_defaults.to_owned() }
    }
}

/// A default path at which earlier versions of riskgate looked, and where something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerDefault {
    /// The setting that has this default.
    pub key: String,
    /// The line that keeps the path in use, without the name of its section.
    pub line: String,
    /// The present default.
    pub present: PathBuf,
    /// The former default, absolute.
    pub former: PathBuf,
    /// Whether the former default is used, because nothing stands at the present one.
    pub is_used: bool,
}

impl FormerDefault {
    /// Says which path is in use, and what to write.
    pub fn to_warning(&self) -> String {
        let FormerDefault { key, line, present, former, is_used } = self;
        let (present, former) = (present.display(), former.display());
        let section = key.split('.').next().unwrap_or_default();
        if !is_used {
            return format!(
                "{key}: {present} is used, but {former} is there too, which earlier versions used \
                 in this folder: if its keys are missing, write {line} in the section [{section}]"
            );
        }
        format!(
            "{key}: the default is {present} now, wherever riskgate starts. Nothing is there, so \
             {former} is used, which a command in another folder does not find: move it there, or \
             write {line} in the section [{section}]"
        )
    }
}

#[cfg(test)]
mod tests;
