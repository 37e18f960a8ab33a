//! Reads secret settings from files of their own.

use std::path::Path;

use super::raw_value::RawValue;
use super::settings::{RawSetting, Settings};
use crate::support::regular_file::{ReadError, decode_text, read_regular_file};

/// The largest file of a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

impl Settings {
    /// Reads the value of the setting `key` from the file that the setting `KEY_file` names, if
    /// `KEY_file` is set. Blanks and line ends at the end of the file do not count. Reports a fault
    /// if both settings are set.
    pub fn read_secret_from_file(&mut self, key: &str) {
        let file_key = format!("{key}_file");
        let Some(path) = self.read_path(&file_key) else { return };
        if self.values.contains_key(key) {
            let problem = format!("expected no {key} beside it, but found one");
            self.report_at_key(&file_key, &problem, None);
            return;
        }
        let Some(text) = self.read_file_of_secret(&file_key, &path, decode_text) else { return };
        let raw = RawValue::Untyped(text.trim_end().to_owned());
        // A relative path in this file starts at the same folder as the path of this file.
        let named_by = self.values.get(&file_key);
        let setting = RawSetting {
            raw,
            location: path.display().to_string(),
            span: None,
            is_from_file: named_by.is_some_and(|setting| setting.is_from_file),
            is_from_process: named_by.is_some_and(|setting| setting.is_from_process),
            secret_fingerprint: None,
        };
        self.values.insert(key.to_owned(), setting);
    }

    /// Reads the file of a secret at `path`, which the setting `file_key` names, and decodes its
    /// bytes. Reports a file that can't be read.
    pub(super) fn read_file_of_secret<T>(
        &mut self,
        file_key: &str,
        path: &Path,
        decode: impl FnOnce(Vec<u8>) -> Result<T, ReadError>,
    ) -> Option<T> {
        self.files.push(path.to_owned());
        match read_regular_file(path, MAX_SECRET_BYTES).and_then(decode) {
            Ok(secret) => Some(secret),
            Err(found) => {
                self.has_transient_fault |= found.is_transient();
                let file = path.display();
                let problem = format!("expected a readable file {file}, but found {found}");
                self.report_at_key(file_key, &problem, None);
                None
            }
        }
    }
}
