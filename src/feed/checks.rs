//! Whether a list that was fetched can be believed. Values only.

use std::collections::HashSet;

use super::config::Feed;
use super::error::FeedError;
use crate::model::domain::DnsName;
use crate::table::{FeedKind, MIN_ROWS_TO_GUARD, Table};

/// Of this share of lines, in percent, at least must be names.
const MIN_VALID_PERCENT: usize = 90;

/// The names of a list, in their canonical form, sorted, each once. A line holds one; what stands
/// behind a comma, a space or a `#` is not looked at. A JSON array of names is one too.
pub(super) fn parse_names(feed: &str, bytes: &[u8]) -> Result<Vec<String>, FeedError> {
    let wrong = |found: String| {
        Err(FeedError::new(feed, format!("expected a list of domains, but found {found}")))
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
    // The head of a table is no name.
    let invalid_count = entries.len().saturating_sub(names.len() + 1);
    if invalid_count * 100 > entries.len() * (100 - MIN_VALID_PERCENT) || names.is_empty() {
        return wrong(format!("{} of {} lines that are none", invalid_count + 1, entries.len()));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// A list of disposable domains is not believed in anything if it flags a large provider, or more
/// than one name in a hundred that the table's lists protect. A good one may have a few: they flag
/// nothing.
pub(super) fn check_protected_names(
    feed: &Feed,
    names: &[String],
    table: &Table,
) -> Result<(), FeedError> {
    if !matches!(feed.kind, FeedKind::Disposable(_)) {
        return Ok(());
    }
    let large = names.iter().find(|name| table.is_large_provider(name));
    let is_protected =
        |name: &&String| table.find_row(name).is_some_and(|row| row.own.is_protected_by_name());
    let most = (names.len() / 100).max(1);
    match large.or(names.iter().filter(is_protected).nth(most)) {
        None => Ok(()),
        Some(name) => {
            let why = format!("expected no protected name, but found {name}");
            Err(FeedError::new(&feed.name, why))
        }
    }
}

/// A list that shrank or grew too much was cut, emptied or mixed up.
pub(super) fn check_changed_share(
    feed: &Feed,
    before: &HashSet<String>,
    names: &[String],
) -> Result<(), FeedError> {
    if before.len() < MIN_ROWS_TO_GUARD as usize {
        return Ok(());
    }
    let unchanged = names.iter().filter(|name| before.contains(*name)).count();
    let (came, went) = (names.len() - unchanged, before.len() - unchanged);
    let percent = usize::try_from(feed.max_changed_percent).unwrap_or(usize::MAX);
    let most = before.len().saturating_mul(percent) / 100;
    if came <= most && went <= most {
        return Ok(());
    }
    let before = before.len();
    Err(FeedError::new(
        &feed.name,
        format!(
            "expected at most {most} of {before} rows to be added and to be removed, but found {came} new and \
             {went} gone; `riskgate table update --force {}` accepts it anyway",
            feed.name
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_lines_tables_and_arrays() {
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
