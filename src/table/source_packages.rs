//! The packages that lists were made from, as `sources.toml` describes them.
//!
//! Lists refer to a package by its vote letter. A list is as old as its package.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::fault::{TableError, TableFault, line_number, quote_excerpt, toml_fault};

/// The number of seconds in a day.
pub(super) const SECONDS_PER_DAY: i64 = 86_400;

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
    /// The day on which it was published, `2026-11-21`.
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSources {
    #[serde(default)]
    source: Vec<Spanned<SourcePackage>>,
}

/// Parses the text of `sources.toml`.
pub(super) fn parse_sources(
    text: &str,
    display_name: &str,
) -> Result<Vec<SourcePackage>, TableError> {
    let raw: RawSources = toml::from_str(text).map_err(|e| toml_fault(&e, text, display_name))?;
    let mut faults = TableError::default();
    let (mut names, mut votes) = (HashMap::new(), HashMap::new());
    let mut sources = Vec::with_capacity(raw.source.len());
    for spanned in raw.source {
        let line = line_number(text, &spanned.span());
        let source = spanned.into_inner();
        let at = |key: &str| format!("{display_name}:{line}: {key}");
        if parse_day(&source.date).is_none() {
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

/// Whether a text is a day such as `2026-12-31`.
pub fn is_valid_day(text: &str) -> bool {
    parse_day(text).is_some()
}

/// Parses a day such as `2026-11-21`. Returns when it begins in UTC, in seconds since 1970.
pub(super) fn parse_day(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return None;
    }
    if !text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        return None;
    }
    let (year, month, day): (i64, i64, i64) =
        (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Days since 1970, counted in years that begin in March, so that a leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let days = of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 1;
    Some((era * 146_097 + days - 719_468) * 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (text, day) in [
            ("1970-01-01", Some(0)),
            ("2000-02-29", Some(11_016)),
            ("2026-11-21", Some(20_778)),
            ("1969-12-31", Some(-1)),
            ("1900-02-29", None),
            ("2026-13-01", None),
            ("2026-00-01", None),
            ("2026-04-31", None),
            ("2026-1-01", None),
            ("2026-11-21T00", None),
            ("+026-11-21", None),
            ("", None),
        ] {
            assert_eq!(parse_day(text), day.map(|day| day * 86_400), "{text}");
        }
    }

    #[test]
    fn sources_with_the_same_name_or_letter_are_refused() {
        let text = "[[source]]\nname = \"a\"\ndate = \"2026-01-01\"\nvote = \"x\"\n\
                    [[source]]\nname = \"a\"\ndate = \"soon\"\nvote = \"x\"\n";
        let error = parse_sources(text, "s.toml").unwrap_err().to_string();
        assert_eq!(
            error,
            "s.toml:5: date: expected a day, YYYY-MM-DD, but found \"soon\"\n\
             s.toml:5: name: expected \"a\" once, but found it again (first in line 1)\n\
             s.toml:5: vote: expected \"x\" once, but found it again (first in line 1)"
        );
        assert!(parse_sources("[[source]]\nnam = 1\n", "s.toml").is_err());
    }
}
