//! Reads secret settings from files of their own.

use std::io::ErrorKind;
use std::path::Path;

use super::file_setting_places::{
    describe_missing_part, find_existing_folder, hint_for_replaced_part, hint_for_unopened,
};
use super::raw_value::{RawValue, redact_urls_and_long_words};
use super::settings::{RawSetting, Settings};
use super::variables::{hint_for_credential, name_of_secret};
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
            self.report_at_key(&file_key, &problem, Some("remove one of the two".to_owned()));
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
    /// bytes. Reports a file that can't be read. If no file is at the path, and the path may be the
    /// secret itself, shows at most a folder of it that exists.
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
                let named = self.values.get(file_key).and_then(|setting| setting.raw.as_text());
                let hidden = named.filter(|_| path.symlink_metadata().is_err());
                let hidden = hidden.filter(|text| may_be_secret(text));
                let (problem, hint) = match hidden {
                    Some(text) => describe_hidden_path(file_key, text, path, &found),
                    None => {
                        let file = path.display();
                        let problem = format!("expected a readable file {file}, but found {found}");
                        (problem, hint_for_unopened(path))
                    }
                };
                self.report_at_key(file_key, &problem, hint);
                self.mark_fault_of_secret(file_key);
                None
            }
        }
    }

    /// Notes that the last fault is that of a secret, if the setting `file_key` names a file of the
    /// secret: commands that don't need the secret pass over such a fault.
    pub(super) fn mark_fault_of_secret(&mut self, file_key: &str) {
        if self.has_value(file_key) {
            self.change_last_fault(|fault| fault.with_faulty_secret(file_key));
        }
    }
}

/// Returns what is wrong with the path of a secret's file, and what to write. Shows no part of the
/// path but a folder that exists: the text may be the secret itself.
fn describe_hidden_path(
    file_key: &str,
    text: &str,
    path: &Path,
    found: &ReadError,
) -> (String, Option<String>) {
    if matches!(found, ReadError::Io(error) if error.kind() == ErrorKind::PermissionDenied) {
        let problem = format!("expected a readable file, but found {found}");
        return (problem, hint_for_unopened(path));
    }
    if CREDENTIALS.iter().any(|start| text.starts_with(start)) {
        let problem = "expected the path of a file, but found the folder of credentials as a unit \
                       of systemd names it";
        return (problem.to_owned(), Some(hint_for_credential(file_key)));
    }
    if begins_as_path(text) {
        let problem = format!("expected a readable file, but found {found}");
        return (problem, hint_for_replaced_part(path).or_else(|| describe_missing_part(path)));
    }
    let problem = "expected the path of a file, but found a text that names no file";
    let name = name_of_secret(file_key);
    if is_like_path(text, name) {
        return (problem.to_owned(), describe_missing_part(path));
    }
    let folder = find_existing_folder(path).map(|(folder, _)| folder).unwrap_or_default();
    let direct = match file_key {
        "inbox.secret_file" => String::new(),
        _ => format!(", or write {name} = …"),
    };
    let hint = format!(
        "there is no such file in the folder {}; if the text is the secret itself, put it into a file of its own, and write the \
         path of this file from / on{direct}",
        folder.display()
    );
    (format!("{problem} and may be the secret itself"), Some(hint))
}

/// How a path begins in a unit of systemd if it leads to a credential.
const CREDENTIALS: [&str; 3] = ["%d/", "$CREDENTIALS_DIRECTORY/", "${CREDENTIALS_DIRECTORY}/"];

fn begins_as_path(text: &str) -> bool {
    ["/", "./", "../", "~/"].iter().any(|start| text.starts_with(start))
}

/// Whether a relative text is like a path. It has only small letters, `-`, `_`, `.` and `/`. It has
/// a `.` or a `/`, or ends with the name of what the file is for.
fn is_like_path(text: &str, name: &str) -> bool {
    let is_of_word = |c: char| c.is_ascii_lowercase() || "-_./".contains(c);
    text.chars().all(is_of_word) && (text.contains(['/', '.']) || text.ends_with(name))
}

/// Whether the value of a setting that names the file of a secret may be the secret itself. A text
/// is surely a path if it begins as a path does, and consists of short and plain words.
pub(super) fn may_be_secret(text: &str) -> bool {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/._-~".contains(c);
    let is_random = |word: &str| {
        let has = |is_of_kind: fn(&char) -> bool| word.chars().any(|c| is_of_kind(&c));
        has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase) && has(char::is_ascii_digit)
    };
    !begins_as_path(text)
        || !text.chars().all(is_of_path)
        || text.split('/').any(is_random)
        || redact_urls_and_long_words(text) != text
}

#[cfg(test)]
mod tests;
