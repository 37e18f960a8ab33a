//! Reads the raw settings, with their locations, from file, environment and flags.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{ConfigFault, ConfigText, SettingSpan};
use super::file_setting_places::hint_for_unopened;
use super::hints::find_nearest_name;
use super::locations::{CONFIG_FILE_VARIABLE, ConfigFile, ConfigSources, RelativePathBases};
use super::raw_value::RawValue;
use super::settings::{RawSetting, Settings};
use super::unknown_keys::TABLE_ARRAYS;
use super::variables::{ENV_PREFIX, variable_name};
use crate::support::regular_file::{parent_dir, read_regular_text};

/// The largest config file, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

impl Settings {
    /// Reads the raw settings of all sources; each overrides those before it. Fails as
    /// [`Settings::read_config_file`] does.
    pub fn read_sources(&mut self, sources: &ConfigSources) -> Result<(), Vec<ConfigFault>> {
        self.ignores_former_defaults = matches!(sources.file, ConfigFile::Written(_));
        if let Some(file) = sources.file_path() {
            self.read_config_file(&file)?;
        }
        self.read_environment(std::env::vars_os());
        self.report_gaps_of_indexes();
        for (key, value) in &sources.flags {
            self.set_command_line_flag(key, value);
        }
        Ok(())
    }

    /// Stores the raw settings of a file. Returns an error if the file can't be read, is empty or
    /// is not TOML. All other faults are found later, when the settings are parsed one by one.
    pub fn read_config_file(&mut self, path: &Path) -> Result<(), Vec<ConfigFault>> {
        let name = path.display().to_string();
        self.files.push(path.to_owned());
        let text = read_regular_text(path, MAX_CONFIG_BYTES).map_err(|found| {
            self.has_transient_fault |= found.is_transient();
            let missing = hint_for_missing_config(path).filter(|_| !path.exists());
            let hint = missing.or_else(|| hint_for_unopened(path));
            let problem = format!("{name}: expected a config file, but found {found}");
            vec![ConfigFault::new(problem).with_hint(hint)]
        })?;
        if text.trim_ascii().is_empty() {
            let problem = format!("{name}: expected settings, but found an empty file");
            return Err(vec![problem.into()]);
        }
        self.read_toml(&name, &text).map_err(|fault| vec![fault])?;
        // Without a working directory, a relative path of the config could not have been read.
        let working_dir = std::env::current_dir().unwrap_or_default();
        self.base_folders = RelativePathBases::of_config(path, &working_dir);
        Ok(())
    }

    /// Stores the raw settings of a text. `name` is the name of the text in faults. Returns an
    /// error if the text is not TOML.
    pub fn read_toml(&mut self, name: &str, text: &str) -> Result<(), ConfigFault> {
        self.file_text = ConfigText { name: name.to_owned(), text: text.to_owned() };
        let table = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            self.file_text.syntax_fault(span, &error.message().replace('\n', " "))
        })?;
        self.read_toml_table("", table.get_ref());
        Ok(())
    }

    /// The place of an entry of an array of tables: its header, or the `{` of an inline table,
    /// which may contain secrets.
    fn entry_span(&self, item: &Spanned<DeValue<'_>>) -> Range<usize> {
        let span = item.span();
        match self.file_text.text.get(span.clone()).is_some_and(|text| text.starts_with('[')) {
            true => span,
            false => span.start..span.start + 1,
        }
    }

    fn read_toml_table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let dotted = format!("{prefix}{}", key.get_ref());
            match value.get_ref() {
                DeValue::Table(inner) => {
                    let span = SettingSpan { key: key.span(), value: 0..0 };
                    self.section_spans.insert(dotted.clone(), span);
                    self.read_toml_table(&format!("{dotted}."), inner);
                }
                DeValue::Array(items)
                    if items.iter().any(|i| matches!(i.get_ref(), DeValue::Table(_))) =>
                {
                    for (index, item) in items.iter().enumerate() {
                        if let DeValue::Table(inner) = item.get_ref() {
                            let span = SettingSpan { key: self.entry_span(item), value: 0..0 };
                            self.section_spans.insert(format!("{dotted}.{index}"), span);
                            self.read_toml_table(&format!("{dotted}.{index}."), inner);
                        }
                    }
                }
                other => {
                    let raw = RawValue::from_toml(other);
                    let setting = RawSetting {
                        raw,
                        location: self.file_text.file_and_line(key.span().start),
                        span: Some(SettingSpan { key: key.span(), value: value.span() }),
                        is_from_file: true,
                        is_from_process: false,
                        secret_fingerprint: None,
                    };
                    self.values.insert(dotted, setting);
                }
            }
        }
    }

    /// Reads `RISKGATE__SECTION__KEY` variables, which override the file. Warns of other variables
    /// that were probably meant for riskgate.
    pub fn read_environment(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) {
        for (name, value) in variables {
            if !name.as_encoded_bytes().starts_with(ENV_PREFIX.as_bytes()) {
                if let Some(name) = name.to_str() {
                    self.warn_of_unread_variable(name, &value.to_string_lossy());
                }
                continue;
            }
            let at = name.to_string_lossy().into_owned();
            let dotted = at[ENV_PREFIX.len()..].to_ascii_lowercase().replace("__", ".");
            match value.into_string() {
                Ok(value) => {
                    let raw = RawValue::of_text(&value, RawValue::Untyped);
                    self.values.insert(dotted, RawSetting::from_process(raw, at));
                }
                // The value may be a secret, so the fault does not contain it.
                Err(_) => self
                    .faults
                    .push(format!("{at}: {dotted}: expected UTF-8, but found other bytes").into()),
            }
        }
    }

    /// Reports a variable whose index makes a gap in the entries of a section, such as
    /// `RISKGATE__UPSTREAM__ROUTE__5__PREFIX` if the file has one `[[upstream.route]]`.
    pub fn report_gaps_of_indexes(&mut self) {
        for array in TABLE_ARRAYS {
            let prefix = format!("{array}.");
            let entries = self.list_table_array_keys(array);
            let gap = entries.iter().enumerate().find(|(at, it)| **it != format!("{prefix}{at}"));
            // In the file, an entry that is no section makes a gap, and has a fault of its own.
            let of_variables = gap.filter(|(_, it)| !self.section_spans.contains_key(*it));
            let Some((next, entry)) = of_variables else { continue };
            let inside = format!("{entry}.");
            let Some((key, setting)) = self.values.iter().find(|it| it.0.starts_with(&inside))
            else {
                continue;
            };
            let found = entry.trim_start_matches(&prefix);
            let own = variable_name(&key.replacen(entry, &format!("{prefix}{next}"), 1));
            let problem = format!(
                "{}: {array}: expected an index of 0 to {next}, but found {found}",
                setting.location
            );
            let hint = format!("write {own} for one more [[{array}]]: the first has the index 0");
            self.faults.push(ConfigFault::new(problem).with_hint(Some(hint)));
        }
    }

    /// Sets a flag, which overrides the file and the environment.
    pub fn set_command_line_flag(&mut self, key: &str, value: &str) {
        let raw = RawValue::Untyped(value.to_owned());
        self.values
            .insert(key.to_owned(), RawSetting::from_process(raw, "command line".to_owned()));
    }
}

/// Says which variable names a config file that is missing, or which file near it was meant.
fn hint_for_missing_config(path: &Path) -> Option<String> {
    if std::env::var_os(CONFIG_FILE_VARIABLE).is_some_and(|named| named == path.as_os_str()) {
        return Some(format!("the variable {CONFIG_FILE_VARIABLE} names it"));
    }
    let files = std::fs::read_dir(parent_dir(path)).ok()?.flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let names: Vec<String> = names.filter(|name| name.ends_with(".toml")).collect();
    let near = find_nearest_name(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(format!("did you mean {}?", path.with_file_name(near).display()))
}
