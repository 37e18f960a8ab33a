//! Checks whether a fetched list is plausible. No I/O.

use std::collections::HashSet;

use super::config::Feed;
use super::error::FeedError;
use crate::model::domain::DnsName;
use crate::support::memory;
use crate::table::{FeedKind, MIN_ROWS_FOR_CHANGE_CHECK, Table};

/// The share of lines that must be valid names, in percent. One invalid line is not counted.
const MIN_VALID_PERCENT: usize = 90;

/// What an update needs for each byte of a list, besides [`UPDATE_BYTES_PER_NAME`]: texts of the
/// names, of the sorted list, and of the former one.
const UPDATE_BYTES_PER_BYTE: u64 = 6;
/// What an update needs for each name of a list. A failed allocation would end the process.
const UPDATE_BYTES_PER_NAME: u64 = 176;

/// Fails if the process can't get the memory for checking a list and comparing it with the former
/// one.
pub(super) fn check_memory(feed_name: &str, bytes: &[u8]) -> Result<(), FeedError> {
    let ends = bytes.iter().filter(|byte| matches!(byte, b'\n' | b',')).count() as u64;
    let needed = UPDATE_BYTES_PER_BYTE * bytes.len() as u64 + UPDATE_BYTES_PER_NAME * (ends + 1);
    memory::check_available(needed).map_err(|found| FeedError::new(feed_name, found.to_string()))
}

/// Parses a list and returns its names in canonical form, sorted, each once. The list is a JSON
/// array of names, or has one name per line. In a line, the text behind a comma, semicolon, space,
/// tab or `#` is ignored. Rejects HTML, an empty list, and a list with too few valid names.
pub(super) fn parse_names(feed_name: &str, bytes: &[u8]) -> Result<Vec<String>, FeedError> {
    let wrong = |found: String| {
        Err(FeedError::new(feed_name, format!("expected a list of domains, but found {found}")))
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return wrong("bytes that are no UTF-8".to_owned());
    };
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.lines().any(|line| line.trim_start().starts_with('<')) {
        return wrong("HTML".to_owned());
    }
    let entries: Vec<String> = if text.starts_with('[') {
        match serde_json::from_str(text) {
            Ok(entries) => entries,
            Err(error) => return wrong(format!("JSON that is no array of names: {error}")),
        }
    } else {
        let field = |line: &str| {
            let line = line.trim().split(['#', ',', ';', ' ', '\t']).next().unwrap_or_default();
            line.trim_matches('"').to_owned()
        };
        text.lines().map(field).filter(|field| !field.is_empty()).collect()
    };
    let mut names: Vec<String> = entries
        .iter()
        .filter_map(|text| DnsName::parse(text).ok())
        .map(|name| name.as_str().to_owned())
        .filter(|name| name.contains('.'))
        .collect();
    if entries.is_empty() {
        return wrong("an empty one".to_owned());
    }
    // One invalid line is not counted, because it may be the header of a table.
    let invalid_count = entries.len().saturating_sub(names.len() + 1);
    if invalid_count * 100 > entries.len() * (100 - MIN_VALID_PERCENT) || names.is_empty() {
        return wrong(format!("{} of {} lines that are none", invalid_count + 1, entries.len()));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Rejects a list of disposable domains that contains a large provider. Also rejects such a list if
/// at least two of its names, and more than 1 % of its names, are protected. A good list may
/// contain a few protected names; the table ignores them.
pub(super) fn check_protected_names(
    feed: &Feed,
    fetched_names: &[String],
    table: &Table,
) -> Result<(), FeedError> {
    if !matches!(feed.kind, FeedKind::Disposable(_)) {
        return Ok(());
    }
    let large_provider = fetched_names.iter().find(|name| table.is_large_provider(name));
    let is_protected = |name: &&String| {
        table.find_row(name).is_some_and(|row| row.own_answer.is_protected_in_manifest_lists())
    };
    let max = (fetched_names.len() / 100).max(1);
    match large_provider.or(fetched_names.iter().filter(is_protected).nth(max)) {
        None => Ok(()),
        Some(name) => {
            let why = format!("expected no protected name, but found {name}");
            Err(FeedError::new(&feed.name, why))
        }
    }
}

/// Rejects a list that lost or gained too many names since the last good list, because it is
/// probably truncated, empty or another list. If the last good list is short, accepts any change.
pub(super) fn check_changed_share(
    feed: &Feed,
    previous_names: &HashSet<String>,
    fetched_names: &[String],
) -> Result<(), FeedError> {
    if previous_names.len() < MIN_ROWS_FOR_CHANGE_CHECK as usize {
        return Ok(());
    }
    let unchanged = fetched_names.iter().filter(|name| previous_names.contains(*name)).count();
    let (added, removed) = (fetched_names.len() - unchanged, previous_names.len() - unchanged);
    let percent = usize::try_from(feed.max_changed_percent).unwrap_or(usize::MAX);
    let max = previous_names.len().saturating_mul(percent) / 100;
    if added <= max && removed <= max {
        return Ok(());
    }
    let before = previous_names.len();
    Err(FeedError::new(
        &feed.name,
        format!(
            "expected at most {max} of {before} rows to be added and to be removed, but found \
             {added} new and {removed} gone; `riskgate table update --force {}` accepts it anyway",
            feed.name
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_from_lines_csv_and_json_and_other_texts_are_rejected() {
        for text in [
            "b.com\na.com\n",
            "# Ours\n A.com # why\n\n\tb.com\n",
            "\u{feff}domain,rank\na.com,1\nb.com,2\n",
            "\"a.com\",1\r\n\"b.com\",2\r\n",
            "[\"a.com\", \"b.com\", \"a.com\"]",
        ] {
            assert_eq!(parse_names("x", text.as_bytes()).unwrap(), ["a.com", "b.com"], "{text}");
        }
        for (text, expected) in [
            ("", "an empty one"),
            ("# nothing\n", "an empty one"),
            ("[]", "an empty one"),
            (" <!doctype html>", "HTML"),
            ("{\"a\": 1}", "lines that are none"),
            ("[1]", "JSON that is no array of names"),
            ("some words here\nand here\n", "lines that are none"),
        ] {
            let error = parse_names("x", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(parse_names("x", b"a.com\n\xff").is_err());
    }
}
