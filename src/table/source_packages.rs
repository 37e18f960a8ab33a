//! The packages that lists were made from, as `sources.toml` describes them.
//!
//! A row of a list may refer to packages by their vote letters.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::fault::{TableFault, TableFaults, fault_from_toml_error, line_number, quote_excerpt};
use crate::model::month::parse_day_as_unix_seconds;

/// A package that lists were made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcePackage {
    /// The name by which the manifest refers to the package.
    pub name: String,
    /// The letter by which lists refer to the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vote: Option<char>,
    /// Where the package is published.
    #[serde(default)]
    pub registry: String,
    /// The package's name in the registry.
    #[serde(default)]
    pub package: String,
    /// The package's version.
    #[serde(default)]
    pub version: String,
    /// The day on which the package was published, such as `2026-11-21`.
    pub date: String,
    /// The package's licence.
    #[serde(default)]
    pub licence: String,
    /// The number of rows in the package.
    #[serde(default)]
    pub raw_rows: u64,
    /// The number of different valid names among the rows.
    #[serde(default)]
    pub valid_rows: u64,
    /// The digest of the package's data.
    #[serde(default)]
    pub sha256: String,
}

/// The contents of `sources.toml`, before they are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSourcesFile {
    #[serde(default)]
    source: Vec<Spanned<SourcePackage>>,
}

/// Parses the text of `sources.toml`.
pub(super) fn parse_sources(
    text: &str,
    name_in_faults: &str,
) -> Result<Vec<SourcePackage>, TableFaults> {
    let raw: RawSourcesFile =
        toml::from_str(text).map_err(|e| fault_from_toml_error(&e, text, name_in_faults))?;
    let mut faults = TableFaults::default();
    let (mut names, mut votes) = (HashMap::new(), HashMap::new());
    let mut sources = Vec::with_capacity(raw.source.len());
    for spanned in raw.source {
        let line = line_number(text, &spanned.span());
        let source = spanned.into_inner();
        let at = |key: &str| format!("{name_in_faults}:{line}: {key}");
        if parse_day_as_unix_seconds(&source.date).is_none() {
            faults.push(TableFault::expected(
                at("date"),
                "a day, YYYY-MM-DD",
                quote_excerpt(&source.date),
            ));
        }
        if let Some(first) = names.insert(source.name.clone(), line) {
            faults.push(TableFault::Duplicate {
                at: at("name"),
                what: quote_excerpt(&source.name),
                first,
            });
        }
        if let Some(vote) = source.vote {
            if !vote.is_ascii_lowercase() {
                let found = quote_excerpt(&vote.to_string());
                faults.push(TableFault::expected(at("vote"), "one letter from a to z", found));
            }
            if let Some(first) = votes.insert(vote, line) {
                faults.push(TableFault::Duplicate {
                    at: at("vote"),
                    what: format!("\"{vote}\""),
                    first,
                });
            }
        }
        sources.push(source);
    }
    faults.into_result().map(|()| sources)
}

/// The bit of a vote letter; 0 for any other character.
pub(super) fn vote_bit(letter: char) -> u32 {
    match letter {
        'a'..='z' => 1 << (letter as u32 - 'a' as u32),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
