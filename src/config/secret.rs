//! Settings that must not be printed, and the files that they may be in.

use super::description::SettingKind;
use super::raw_value::RawValue;
use super::settings::{RawSetting, Settings};
use crate::support::regular_file::read_regular_text;

/// The largest file of a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// A secret text. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

impl Secret {
    /// Returns the text itself, for comparison.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Settings {
    /// Reads the value of `key` from the file that the setting with `_file` behind its name names,
    /// if it is set. Blanks and line ends at the end of the file do not count.
    pub fn read_secret_file(&mut self, key: &str) {
        let file_key = format!("{key}_file");
        let Some(path) = self.path(&file_key) else { return };
        let location = self.location_of(&file_key);
        if self.values.contains_key(key) {
            self.faults.push(format!(
                "{location}: {file_key}: expected no {key} beside it, but found one"
            ));
            return;
        }
        match read_regular_text(&path, MAX_SECRET_BYTES) {
            Ok(text) => {
                let raw = RawValue::Untyped(text.trim_end().to_owned());
                let setting = RawSetting::new(raw, path.display().to_string());
                self.values.insert(key.to_owned(), setting);
            }
            Err(found) => {
                let file = path.display();
                self.faults.push(format!(
                    "{location}: {file_key}: expected a readable file {file}, but found {found}"
                ));
            }
        }
    }

    /// Reads `admin.token`, or the file that `admin.token_file` names.
    pub fn read_admin_token(&mut self) -> Option<Secret> {
        self.read_secret_file("admin.token");
        let setting = self.read_and_mark_known("admin.token", SettingKind::Secret)?;
        match setting.raw.as_text().filter(|text| text.len() >= 16 && text.is_ascii()) {
            Some(token) => Some(Secret(token.to_owned())),
            None => {
                // The value may be a secret, so the fault does not contain it.
                let at = &setting.location;
                self.faults.push(format!(
                    "{at}: admin.token: expected 16 or more ASCII characters, but found something \
                     else"
                ));
                None
            }
        }
    }
}
