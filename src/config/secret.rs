//! Reads secret settings from files of their own.

use std::path::Path;

use super::raw_value::{RawValue, redact_urls_and_long_words};
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
        let Some(text) = self.read_file_of_secret(&file_key, &path, decode_text) else {
            let name = key.rsplit('.').next().unwrap_or_default();
            self.add_to_last_hint(&format!("or write {name} = …"));
            return;
        };
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
    /// bytes. Reports a file that can't be read. If the path may be the secret itself, shows no
    /// part of it.
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
                if self.refuse_secret_as_path(file_key, path) {
                    return None;
                }
                let file = path.display();
                let problem = format!("expected a readable file {file}, but found {found}");
                self.report_at_key(file_key, &problem, None);
                None
            }
        }
    }

    /// Reports that the setting `file_key` may have a secret in place of the path of its file.
    /// Returns false, without a report, if there is something at the path, or if the text is surely
    /// a path.
    fn refuse_secret_as_path(&mut self, file_key: &str, path: &Path) -> bool {
        let named = self.values.get(file_key).and_then(|setting| setting.raw.as_text());
        if path.symlink_metadata().is_ok() || !named.is_none_or(may_be_secret) {
            return false;
        }
        let problem = "expected the path of a file, but found a text that names no file and may be \
                       the secret itself";
        let hint =
            "put the secret into a file of its own, and write the path of this file from / on";
        self.report_at_key(file_key, problem, Some(hint.to_owned()));
        true
    }
}

/// Whether the value of a setting that names the file of a secret may be the secret itself. A text
/// is surely a path if it begins as a path does, and consists of short and plain words.
pub(super) fn may_be_secret(text: &str) -> bool {
    let begins_as_path = ["/", "./", "../", "~/"].iter().any(|start| text.starts_with(start));
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/._-~".contains(c);
    let is_random = |word: &str| {
        let has = |is_of_kind: fn(&char) -> bool| word.chars().any(|c| is_of_kind(&c));
        has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase) && has(char::is_ascii_digit)
    };
    !begins_as_path
        || !text.chars().all(is_of_path)
        || text.split('/').any(is_random)
        || redact_urls_and_long_words(text) != text
}

#[cfg(test)]
mod tests {
    use super::may_be_secret;

    #[test]
    fn only_a_text_that_begins_as_a_path_and_has_plain_words_is_no_secret() {
        for path in ["/run/secrets/token", "./token.txt", "../a-b/c_d", "~/.config/url"] {
            assert!(!may_be_secret(path), "{path}");
        }
        for secret in [
            "hunter2",
            "redis://:pw@10.0.0.5:6379/0",
            "/redis://:pw@10.0.0.5",
            "ab/cd",
            "/aB3/xY9",
            "/0123456789abcdef0123456789abcdef",
            "/a+b",
            "/ab=",
        ] {
            assert!(may_be_secret(secret), "{secret}");
        }
    }
}
