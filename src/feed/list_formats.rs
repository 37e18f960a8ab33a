//! Parses a list as its publisher writes it. No I/O.

use std::net::IpAddr;

use super::error::FeedError;
use crate::model::domain::DnsName;

/// The share of rows that must be valid names, in percent. One invalid row is not counted.
const MIN_VALID_PERCENT: usize = 90;

/// What separates the fields of a line.
const FIELD_SEPARATORS: [char; 4] = [',', ';', ' ', '\t'];

/// A form of lists that riskgate does not read: whether a line has the form, and what to write
/// instead.
type OtherForm = (fn(&str) -> bool, &'static str);

const OTHER_FORMS: [OtherForm; 5] = [
    (
        |line| line.starts_with("http://") || line.starts_with("https://"),
        "write each name without https:// before it and without a path",
    ),
    (|line| line.starts_with('@'), "write each name without the @ before it"),
    (|line| line.starts_with('{'), "write a JSON array of names, or one name on each line"),
    (
        |line| {
            let mut fields = line.split(FIELD_SEPARATORS).map(|field| field.trim_matches('"'));
            let is_number = |text: &str| text.parse::<u64>().is_ok();
            fields.next().is_some_and(is_number) && fields.next().and_then(parse_row).is_some()
        },
        "write the name as the first column",
    ),
    (
        |line| ["address=/", "local=/", "server=/"].iter().any(|rule| line.starts_with(rule)),
        "write the name between the slashes alone, one on each line",
    ),
];

/// Parses a list and returns its names in canonical form, sorted, each once. The list is a JSON
/// array of names, or has the lines of [`add_rows_of_line`]. Rejects an empty list, a list with too
/// few valid names, and what is no list, such as HTML. A name with one label is not valid.
pub(super) fn parse_names(feed_name: &str, bytes: &[u8]) -> Result<Vec<String>, FeedError> {
    let wrong = |found: String| {
        Err(FeedError::new(feed_name, format!("expected a list of domains, but found {found}")))
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return wrong(match bytes {
            [0x1f, 0x8b, ..] => "a file in gzip, which no Content-Encoding declares".to_owned(),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16 instead of UTF-8".to_owned(),
            _ => "bytes that are no UTF-8".to_owned(),
        });
    };
    if text.contains('\0') {
        return wrong("zero bytes, as in UTF-16 without its mark".to_owned());
    }
    let text = text.trim_start_matches('\u{feff}').trim();
    if lines_of(text).any(|line| line.trim_start().starts_with('<')) {
        return wrong("HTML".to_owned());
    }
    let rows = match is_json(text) {
        true => match serde_json::from_str(text) {
            Ok(names) => names,
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                return wrong(format!(
                    "JSON that is no array of names, at line {line}, column {column}"
                ));
            }
        },
        false => {
            let mut rows = Vec::new();
            lines_of(text).for_each(|line| add_rows_of_line(line, &mut rows));
            rows
        }
    };
    let mut names: Vec<String> = rows.iter().filter_map(|row| parse_row(row)).collect();
    if rows.is_empty() {
        return wrong("an empty one".to_owned());
    }
    // The invalid row that is not counted may be the header of a table.
    let invalid_count = rows.len().saturating_sub(names.len() + 1);
    if invalid_count * 100 > rows.len() * (100 - MIN_VALID_PERCENT) || names.is_empty() {
        let first = rows.iter().find(|row| parse_row(row).is_none());
        let first = first.and_then(|row| quote_name_like_row(row, text)).unwrap_or_default();
        let count = invalid_count + 1;
        let hint = find_other_form(text).map(|hint| format!("; {hint}")).unwrap_or_default();
        return wrong(format!("{count} of {} lines that are none{first}{hint}", rows.len()));
    }
    if let [_] = rows[..]
        && let Some(count) = count_names_of_only_line(text)
    {
        let why = format!("expected one name on each line, but found {count} on one");
        return Err(FeedError::new(feed_name, why));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The lines of a text. A line ends with a line feed, a carriage return, or both: between both is
/// an empty line, which adds no row.
fn lines_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '\r'])
}

/// What to write in place of the form that more than half of the lines have, if it is one of
/// [`OTHER_FORMS`].
fn find_other_form(text: &str) -> Option<&'static str> {
    let is_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines: Vec<&str> = lines_of(text).map(str::trim).filter(is_content).collect();
    let has_most = |is_of_form: fn(&str) -> bool| {
        2 * lines.iter().filter(|line| is_of_form(line)).count() > lines.len()
    };
    OTHER_FORMS.iter().find(|(is_of_form, _)| has_most(*is_of_form)).map(|(_, hint)| *hint)
}

/// The name in a row, in canonical form; `None` if the row has no valid name.
fn parse_row(row: &str) -> Option<String> {
    let name = row.strip_prefix("*.").or_else(|| row.strip_prefix('.')).unwrap_or(row);
    let name = DnsName::parse(name).ok()?.as_str().to_owned();
    name.contains('.').then_some(name)
}

/// Quotes a short row that has a dot, looks like a name, and is a whole line of `text`. Another row
/// is not quoted: it may be a part of an address, a URL with a password, or an answer with a token.
fn quote_name_like_row(row: &str, text: &str) -> Option<String> {
    const MAX_QUOTED_BYTES: usize = 40;
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let is_like_name = row.contains('.') && row.bytes().all(is_of_name);
    let is_quoted = is_like_name
        && row.len() <= MAX_QUOTED_BYTES
        && lines_of(text).any(|line| line.trim() == row);
    is_quoted.then(|| format!(", the first one {row:?}"))
}

/// The number of names on the line of a list that has one line, if there are three or more; `None`
/// if further fields of this line are no names. Such a list would count as a list of one name. The
/// second of two names may be its mail host or its source.
fn count_names_of_only_line(text: &str) -> Option<usize> {
    let is_row = |line: &&str| {
        let mut rows = Vec::new();
        add_rows_of_line(line, &mut rows);
        !rows.is_empty()
    };
    let line = lines_of(text).find(is_row)?;
    let content = line.split('#').next().unwrap_or_default();
    let fields = content.split(FIELD_SEPARATORS).map(|field| field.trim_matches('"'));
    let fields: Vec<&str> = fields.filter(|field| !field.is_empty()).collect();
    let are_names = fields.len() > 2 && fields.iter().all(|field| parse_row(field).is_some());
    are_names.then_some(fields.len())
}

/// Whether the text is meant as JSON. A list of an ad blocker may begin with a line such as
/// `[Adblock Plus]`.
fn is_json(text: &str) -> bool {
    let after_bracket = text.strip_prefix('[').map(str::trim_start);
    after_bracket.is_some_and(|rest| !rest.starts_with(|first: char| first.is_ascii_alphabetic()))
}

/// Adds the names in a line, without checking them. Adds a line of another kind as it is, so that
/// it counts as an invalid row. A line has one of these forms:
///
/// - a comment after `#`, `//` or `!`, an exception of an ad blocker after `@@`, or a line between
///   `[` and `]`: no name;
/// - `||name^` of an ad blocker, also with options that do not limit it to some sites;
/// - an address of this machine and names, as in a hosts file;
/// - a name, and behind a comma, semicolon, space, tab or `#` anything else.
fn add_rows_of_line(line: &str, rows: &mut Vec<String>) {
    let line = line.trim();
    if ["#", "//", "!", "@@"].iter().any(|mark| line.starts_with(mark))
        || line.starts_with('[') && line.ends_with(']')
    {
        return;
    }
    if let Some(rule) = line.strip_prefix("||") {
        let name = rule.split_once('^').filter(|(_, options)| blocks_everywhere(options));
        rows.push(name.map_or(line, |(name, _)| name).to_owned());
        return;
    }
    // A rule of an ad blocker that hides a part of the pages of a site.
    if ["##", "#@#", "#?#"].iter().any(|mark| line.contains(mark)) {
        rows.push(line.to_owned());
        return;
    }
    let content = line.split('#').next().unwrap_or_default();
    let mut fields = content.split_ascii_whitespace();
    if let Some(address) = fields.next().and_then(|field| field.parse::<IpAddr>().ok())
        && (address.is_loopback() || address.is_unspecified())
    {
        rows.extend(fields.filter(|name| !is_name_of_this_machine(name)).map(str::to_owned));
        return;
    }
    let field = content.split(FIELD_SEPARATORS).next().unwrap_or_default();
    let field = field.trim_matches('"');
    if !field.is_empty() {
        rows.push(field.to_owned());
    }
}

/// Whether the text after `||name^` has no path, no option with a value, which may name sites, and
/// no `badfilter`, which ends the rule.
fn blocks_everywhere(options: &str) -> bool {
    options.is_empty()
        || options
            .strip_prefix('$')
            .is_some_and(|options| !options.contains('=') && !options.contains("badfilter"))
}

/// Whether a name in a hosts file is one of those that each machine has.
fn is_name_of_this_machine(name: &str) -> bool {
    !name.contains('.') || name == "localhost.localdomain" || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests;
