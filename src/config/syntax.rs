//! Faults of the syntax of TOML: what was meant, as far as one line tells.
//!
//! A fault shows a line only if no part of the line can be a secret: a header of a section, a
//! setting that is no secret, texts of a list, or a block between braces. Of any other line, a
//! fault shows at most the name of the setting and the kinds of quotes.

use std::ops::Range;

use toml::de::DeValue;

use super::description::toml_text;
use super::fault::{ConfigFault, ConfigText};
use super::hints::{is_curly_quote, is_quote};
use super::judged_value::judge_value;
use super::raw_value::{RawValue, redact_urls_and_long_words};
use super::secret::may_be_secret;
use super::unknown_keys::{find_meant_setting_of_variable, header_of_known, known_keys};
use super::variables::ENV_PREFIX;

/// How the message of the parser begins if a setting or a section stands twice.
const DUPLICATE_KEY_MESSAGE: &str = "duplicate key";
/// How the message of the parser begins if the file ends in a list.
const UNCLOSED_LIST_MESSAGE: &str = "unclosed array";
/// How the message of the parser begins if something stands behind a value or a header.
const MORE_IN_LINE_MESSAGE: &str = "unexpected key or value";
/// What lines begin with that a version control system writes around two versions.
const MARKS_OF_CONFLICT: [&str; 4] = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];
/// What to write in place of the blocks of other servers.
const SECTIONS_AND_SETTINGS_HINT: &str = "write sections and settings: [listen] and http = \"0.0.0.0:8080\", [upstream] and \
     servers = [\"127.0.0.1:9000\"]";
/// The names of settings of which no fault shows a part.
const NAMES_OF_SECRETS: [&str; 4] = ["token", "secret", "hash", "previous_secret"];

/// A line with a fault: `NAME = VALUE`, as far as it has these parts.
struct FaultyLine<'t> {
    text: &'t str,
    /// Empty if no setting and no section has this name.
    name: &'t str,
    /// What stands behind the name, with its `=` or `:`.
    behind: &'t str,
    value: &'t str,
    /// The dotted key of the setting, if riskgate knows the setting in this section.
    key: Option<String>,
}

/// What was found in a line, and what to write.
#[derive(Default)]
struct Finding {
    /// What was found; `None` if the words of the parser say it well.
    found: Option<String>,
    /// What was expected and found, if the fault is no fault of TOML alone.
    problem: Option<String>,
    hint: Option<String>,
}

impl Finding {
    fn new(found: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { found: Some(found.into()), hint: Some(hint.into()), problem: None }
    }
}

impl ConfigText {
    /// A fault of the syntax of TOML at `span`, of which the parser says `message`.
    pub fn syntax_fault(&self, span: Range<usize>, message: &str) -> ConfigFault {
        let line = self.line_of(span.start);
        let text = self.text.get(line.clone()).unwrap_or_default();
        let of_text = self.fault_of_endless_text(span.start);
        if let Some(fault) = of_text.or_else(|| self.fault_of_open_list(span.start, message)) {
            return fault;
        }
        if is_header(text) {
            return self.header_fault(&line, span, message);
        }
        if is_end_of_header(text) {
            return self.header_fault(&line, span, "a header without its [");
        }
        if let Some(fault) = self.fault_behind_header(&line) {
            return fault;
        }
        if let Some(fault) = self.fault_of_yaml(span.start) {
            return fault;
        }
        if let Some(fault) = self.fault_in_open_list(&line) {
            return fault;
        }
        let faulty = FaultyLine::parse(text, self.section_above(line.start));
        let column = span.start - line.start;
        let finding = match message.starts_with(DUPLICATE_KEY_MESSAGE) {
            true => self.find_duplicate(faulty.name, line.start),
            false => faulty.find_fault(message, column),
        };
        let (shown, place) = faulty.excerpt(column);
        let found = finding.found.unwrap_or(message.to_owned());
        let problem = finding.problem.unwrap_or(format!("expected TOML, but found: {found}"));
        self.fault_with_excerpt(span.start, shown, place, &problem).with_hint(finding.hint)
    }

    /// Creates a fault if a list in one line has a last text without its end. The parser may
    /// stop in this line, or in the next that is not blank.
    fn fault_of_endless_text(&self, offset: usize) -> Option<ConfigFault> {
        let own = self.line_of(offset.min(self.text.len()));
        let before = self.text.get(..own.start)?.trim_end();
        [own, self.line_of(before.len())].into_iter().find_map(|line| {
            let text = self.text.get(line.clone())?.trim_end();
            let faulty = FaultyLine::parse(text, self.section_above(line.start));
            let start = start_of_endless_text(text).filter(|_| faulty.value.starts_with('['))?;
            let quote = text.get(start..=start)?;
            let inner = text.get(start + 1..)?.trim_end_matches([']', ' ', ',']);
            let list_start = text.len() - text.split_once('=')?.1.trim_start().len();
            let list = format!("{}{quote}{inner}{quote}]", text.get(list_start..start)?);
            DeValue::parse(&list).ok().filter(|_| !inner.is_empty())?;
            let (shown, place) = faulty.excerpt(start);
            let (place, hint) = match faulty.is_shown() {
                true => (
                    place.start..shown.chars().count(),
                    format!("end the text with {quote}: write {list}"),
                ),
                false => (place, format!("end the text with {quote}")),
            };
            let problem = "expected TOML, but found: a text without its end";
            let fault = self.fault_with_excerpt(line.start + start, shown, place, problem);
            Some(fault.with_hint(Some(hint)))
        })
    }

    /// Creates a fault if a list has no end: below it is a setting or a header in place of a text,
    /// or the file ends.
    fn fault_of_open_list(&self, offset: usize, message: &str) -> Option<ConfigFault> {
        let line = self.line_of(offset);
        let text = self.text.get(line.clone())?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || " ._-".contains(c);
        let has_setting = text.split_once('=').is_some_and(|(name, _)| name.chars().all(is_name));
        let (end, found) = match () {
            () if message.starts_with(UNCLOSED_LIST_MESSAGE) => {
                (self.text.len(), "the end of the file")
            }
            () if text.starts_with('[') => (line.start, "a section"),
            () if has_setting => (line.start, "a setting"),
            () => return None,
        };
        let (key, first) = self.open_list_above(end)?;
        let before = self.text.get(..end)?.lines().enumerate();
        let (last, _) = before.filter(|(_, it)| !it.trim().is_empty() && !is_header(it)).last()?;
        let problem = format!(
            "{key}: expected ] at the end of the list, which begins in line {first}, but found \
             {found}"
        );
        let faulty = FaultyLine::parse(text, self.section_above(line.start));
        let indent = text.len() - text.trim_start().len();
        let (shown, place) = faulty.excerpt(indent);
        let fault = self.fault_with_excerpt(line.start + indent, shown, place, &problem);
        Some(fault.with_hint(Some(format!("write ] behind the last text, in line {}", last + 1))))
    }

    /// Creates a fault if a setting stands behind a header, in the same line.
    fn fault_behind_header(&self, line: &Range<usize>) -> Option<ConfigFault> {
        let text = self.text.get(line.clone())?;
        let header = text.get(..=text.find(']')?)?;
        let header = text.get(..header.len() + usize::from(text.starts_with("[[")))?;
        let known = header_of_known(header.trim_matches(['[', ']', ' ']))?;
        let rest = text.get(header.len()..)?.trim_start();
        let faulty = FaultyLine::parse(rest, header.trim_matches(['[', ']', ' ']));
        if !is_header(header) || faulty.name.is_empty() {
            return None;
        }
        let (shown, place) = faulty.excerpt(0);
        let width = header.chars().count() + 1;
        let shown = format!("{header} {shown}");
        let place = place.start + width..place.end + width;
        let problem = "expected TOML, but found: a setting in the line of a header";
        let hint = format!("write {} = … on a line of its own, below {known}", faulty.name);
        let fault = self.fault_with_excerpt(line.end - rest.len(), shown, place, problem);
        Some(fault.with_hint(Some(hint)))
    }

    /// Describes a setting that the file has already, in the same section or as a section.
    fn find_duplicate(&self, name: &str, line_start: usize) -> Finding {
        let section = self.section_above(line_start);
        let key = format!("{section}.{name}");
        let key = key.trim_start_matches('.');
        let before = self.text.get(..line_start).unwrap_or_default().lines();
        let is_own =
            |line: &str| is_header(line) && line.trim().trim_matches(['[', ']', ' ']) == key;
        let as_section = before.enumerate().find(|(_, line)| is_own(line));
        let (problem, hint) = match (self.find_first_line_of(name, line_start), as_section) {
            (Some(first), _) => (
                format!(
                    "{key}: expected the setting once, but found it again, first in line {first}"
                ),
                format!("remove this line or line {first}"),
            ),
            (None, Some((at, header))) if !name.is_empty() => (
                format!("{key}: expected a setting or sections, but found both"),
                format!("write either {name} = …, or {} as in line {}", header.trim(), at + 1),
            ),
            _ => return Finding::default(),
        };
        Finding { problem: Some(problem), hint: Some(hint), found: None }
    }

    /// Creates one fault if all lines of the file are YAML.
    fn fault_of_yaml(&self, offset: usize) -> Option<ConfigFault> {
        let lines = self.text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let is_yaml = |line: &str| {
            let line = line.strip_prefix("- ").unwrap_or(line);
            let name = line.split(':').next().unwrap_or_default().trim_matches(is_quote);
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            let has_name = line.ends_with(':') || line.contains(": ");
            has_name && name.chars().all(is_name)
        };
        let (all, maps) = lines.fold((0, 0), |(all, maps), line| {
            let is_other = matches!(line, "---" | "...") || line.starts_with("- ");
            (all + usize::from(!is_other || is_yaml(line)), maps + usize::from(is_yaml(line)))
        });
        (maps > 1 && maps == all).then(|| {
            let excerpt = ("…".to_owned(), 0..1);
            let problem = "expected TOML, but found a file of YAML";
            let fault = self.fault_with_excerpt(offset, excerpt.0, excerpt.1, problem);
            fault.with_hint(Some(SECTIONS_AND_SETTINGS_HINT.to_owned()))
        })
    }

    /// Returns the setting whose list begins in a line above and has not ended there, and the
    /// number of this line.
    fn open_list_above(&self, line_start: usize) -> Option<(String, usize)> {
        let mut before = self.text.get(..line_start)?;
        loop {
            let at = before.trim_end().rfind('\n').map_or(0, |at| at + 1);
            let line = before.get(at..)?.trim();
            before = before.get(..at)?;
            let is_text = line.starts_with(['"', '\'']);
            let is_setting = line.contains('=') && !is_text;
            // In a list, a header of a section is a list too.
            let is_skipped = line.starts_with('#') || is_header(line);
            match is_setting || line.contains(']') {
                true if !is_skipped => {
                    let (name, value) = line.split_once('=').filter(|_| is_setting)?;
                    let is_open = value.trim_start().starts_with('[') && !value.contains(']');
                    let key = format!("{}.{}", self.section_above(at), name.trim());
                    let number = before.matches('\n').count() + 1;
                    return is_open.then(|| (key.trim_start_matches('.').to_owned(), number));
                }
                _ if before.is_empty() => return None,
                _ => {}
            }
        }
    }

    /// Creates a fault if the line has texts without quotes, in a list that began in a line above.
    fn fault_in_open_list(&self, line: &Range<usize>) -> Option<ConfigFault> {
        let (key, _) = self.open_list_above(line.start)?;
        if !known_keys().contains(&key) {
            return None;
        }
        let text = self.text.get(line.clone())?;
        let items = text.split(" #").next()?.trim_end().trim_end_matches(']');
        let indent = items.len() - items.trim_start().len();
        let items = items.trim().trim_end_matches([',', ';']);
        if items.is_empty() || items.contains(is_quote) || items.contains(['=', '{', '#']) {
            return None;
        }
        let texts = items.split(',').map(|item| item.trim().to_owned());
        let raw = RawValue::List(texts.map(RawValue::Text).collect());
        let is_shown = redact_urls_and_long_words(items) == items;
        let written = raw.to_redacted_string();
        let quoted = written.trim_matches(['[', ']']);
        let hint = match judge_value(&key, &raw) {
            _ if !is_shown => "write each text of the list between quotes".to_owned(),
            Some((_, Some(hint))) if hint.starts_with("write [") => hint,
            _ => format!("write {quoted}: quotes stand around each text of the list"),
        };
        let shown = if is_shown { items } else { "…" };
        let width = shown.chars().count();
        let found = format!("expected TOML, but found: a text without quotes in {key}");
        let shown = format!("  {shown}");
        let fault = self.fault_with_excerpt(line.start + indent, shown, 2..2 + width, &found);
        Some(fault.with_hint(Some(hint)))
    }

    /// Returns the name of the section of a line.
    fn section_above(&self, line_start: usize) -> &str {
        let before = self.text.get(..line_start).unwrap_or_default();
        let header = before.lines().rev().find(|line| line.starts_with('['));
        header.unwrap_or_default().trim().trim_matches(['[', ']', ' '])
    }

    /// Creates a fault of the header of a section. Its brackets may be wrong, or those of an
    /// earlier header.
    fn header_fault(&self, line: &Range<usize>, span: Range<usize>, message: &str) -> ConfigFault {
        let text = self.text.get(line.clone()).unwrap_or_default();
        let section = text.trim_matches(['[', ']', ' ']);
        let written = text.trim_end();
        let right = header_of_known(section);
        let mut earlier = self.text[..line.start].lines().enumerate().filter(|(_, other)| {
            other.starts_with('[') && other.trim().trim_matches(['[', ']', ' ']) == section
        });
        let first = earlier.next();
        let is_double = message.starts_with(DUPLICATE_KEY_MESSAGE);
        let hint = match (&right, first) {
            (Some(right), _) if section == "admin.token" && is_double && written == right => {
                Some("write either token below [admin], or [[admin.token]] for each token".into())
            }
            (Some(right), None) if right != written => Some(format!("write {right}")),
            (Some(right), Some((at, other))) if other.trim() != right || written != right => {
                Some(match right.starts_with("[[") {
                    true => format!("write {right} here and in line {}", at + 1),
                    false => format!(
                        "write {right} in line {}, its settings below it, and remove this line",
                        at + 1
                    ),
                })
            }
            (_, Some((at, _))) if is_double => {
                Some(format!("write its settings below line {}, and remove this line", at + 1))
            }
            _ => None,
        };
        let inner = format!("{section}.");
        let mut before = self.text[..line.start].lines().enumerate();
        let inner = before.find(|(_, other)| {
            other.trim_start_matches('[').starts_with(&inner) && other.starts_with('[')
        });
        let dotted = self.find_dotted_name_above(section, line.start).filter(|_| first.is_none());
        let (problem, hint) = match (first, inner) {
            _ if is_double && dotted.is_some() => {
                let (name, at) = dotted.unwrap_or_default();
                let problem =
                    format!("expected {written} above {section}.{name}, but found it below");
                let hint = format!("write {name} = … below {written}, and remove line {at}");
                (problem, Some(hint))
            }
            (None, Some((at, inner))) if is_double => (
                format!("expected {written} above its {}, but found it below", inner.trim()),
                Some(format!("write {written} above line {}", at + 1)),
            ),
            (first, _) => (describe_header_fault(section, first, is_double, message), hint),
        };
        let start = span.start - line.start;
        let end = span.end.min(line.end) - line.start;
        let chars = |bytes: usize| text.get(..bytes).unwrap_or_default().chars().count();
        let place = chars(start)..chars(end).max(chars(start) + 1);
        self.fault_with_excerpt(span.start, text.to_owned(), place, &problem).with_hint(hint)
    }

    /// Returns the name of the first setting of a section that is written as `section.name` before
    /// any header, and the number of its line.
    fn find_dotted_name_above(&self, section: &str, line_start: usize) -> Option<(String, usize)> {
        let before = self.text.get(..line_start)?.lines().map(str::trim);
        let before = before.take_while(|line| !line.starts_with('[')).enumerate();
        let mut names = before.filter_map(|(at, line)| {
            let name = line.strip_prefix(section)?.strip_prefix('.')?.split_once('=')?.0;
            Some((name.trim().to_owned(), at + 1))
        });
        names.next()
    }

    /// Returns the number of the line above that sets this name in the same section.
    fn find_first_line_of(&self, name: &str, line_start: usize) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let before = self.text.get(..line_start)?;
        let count = before.lines().count();
        let in_section = before.lines().rev().take_while(|line| !line.starts_with('['));
        let named = in_section.enumerate().filter(|(_, line)| {
            line.split_once('=').is_some_and(|(other, _)| other.trim() == name)
        });
        named.last().map(|(back, _)| count - back)
    }
}

/// Returns the byte at which the text begins that has no end in its line.
fn start_of_endless_text(line: &str) -> Option<usize> {
    let mut open: Option<(usize, char)> = None;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match open {
            Some((_, '"')) if c == '\\' => drop(chars.next()),
            Some((_, quote)) if c == quote => open = None,
            None if c == '#' => return None,
            None if matches!(c, '"' | '\'') => open = Some((at, c)),
            _ => {}
        }
    }
    open.map(|(at, _)| at)
}

/// Whether a line is the header of a section, perhaps with wrong brackets.
fn is_header(line: &str) -> bool {
    let is_of_header = |c: char| c.is_ascii_alphanumeric() || " ._-[]".contains(c);
    line.starts_with('[') && line.chars().all(is_of_header)
}

/// Whether a line is the header of a section that riskgate knows, without its `[`.
fn is_end_of_header(line: &str) -> bool {
    let name = line.trim_end().strip_suffix(']').map(|it| it.trim_end_matches(']'));
    name.is_some_and(|name| header_of_known(name.trim()).is_some())
}

/// Whether a setting has this name, in any section.
fn is_name_of_setting(name: &str) -> bool {
    known_keys().iter().any(|key| key.rsplit('.').next() == Some(name))
}

/// Returns the byte at which the name of a line ends: at its `=` or `:`, or else behind the first
/// word. A name before `=` may have blanks.
fn end_of_name(text: &str) -> usize {
    let start = text.len() - text.trim_start().len();
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, ':' | '=');
    let word_end = text[start..].find(is_end).map_or(text.len(), |at| start + at);
    let rest = text[word_end..].trim_start();
    if rest.starts_with([':', '=']) {
        return text.len() - rest.len();
    }
    let is_quoted = text[start..].starts_with(is_quote);
    let is_of_name =
        |c: char| c.is_ascii_alphanumeric() || " \t._-".contains(c) || is_quoted && is_quote(c);
    let equals = text.find('=').filter(|at| text[..*at].chars().all(is_of_name));
    equals.unwrap_or(word_end)
}

/// Describes a header that stands twice, or that is no TOML.
fn describe_header_fault(
    section: &str,
    first: Option<(usize, &str)>,
    is_double: bool,
    message: &str,
) -> String {
    match first {
        Some((at, _)) if is_double => {
            format!("expected [{section}] once, but found it again, first in line {}", at + 1)
        }
        _ => format!("expected TOML, but found: {message}"),
    }
}

impl<'t> FaultyLine<'t> {
    fn parse(text: &'t str, section: &str) -> FaultyLine<'t> {
        let (name, behind) = text.split_at(end_of_name(text));
        let name = name.trim().trim_matches(is_quote);
        let known = known_keys();
        let keys = [format!("{section}.{name}"), name.to_owned()];
        // Any name is the name of a plan.
        let is_plan = section == "plans" && !name.is_empty();
        let key = keys.into_iter().find(|key| known.contains(key) || is_plan);
        let is_part = |key: &String| key.split('.').any(|part| part == name);
        let is_known = key.is_some() || known.iter().any(is_part);
        let value = behind.get(1..).unwrap_or_default().trim();
        FaultyLine { text, name: if is_known { name } else { "" }, behind, value, key }
    }

    /// The line as a fault may show it, and the characters to mark. `column` is the byte at which
    /// the parser stopped.
    fn excerpt(&self, column: usize) -> (String, Range<usize>) {
        let text = self.text.trim_end();
        let at = |byte: usize| text.get(..byte.min(text.len())).unwrap_or(text).chars().count();
        if self.is_shown() {
            return (text.replace('\t', " "), at(column)..at(column) + 1);
        }
        let shown = match self.name {
            "" => "…".to_owned(),
            name if self.behind.starts_with(':') => format!("{name}: …"),
            name if !self.behind.starts_with('=') => format!("{name} …"),
            name => format!("{name} = …"),
        };
        let is_in_value = !self.name.is_empty() && column > self.text.len() - self.behind.len();
        let place = match is_in_value {
            true => shown.chars().count() - 1..shown.chars().count(),
            false => 0..self.name.chars().count().max(1),
        };
        (shown, place)
    }

    /// Whether a fault may show the line, because no part of the line can be a part of a secret.
    fn is_shown(&self) -> bool {
        let name = self.name.rsplit('.').next().unwrap_or_default();
        // Somebody may have written the secret in place of the path of its file.
        let is_secret = NAMES_OF_SECRETS.contains(&name)
            || name.ends_with("_file") && may_be_secret(self.value.trim_matches(is_quote));
        let is_setting = self.key.is_some() && !is_secret;
        (is_setting || self.is_of_block()) && redact_urls_and_long_words(self.text) == self.text
    }

    /// Finds the fault of which the parser says `message`. `column` is the byte at which the parser
    /// stopped.
    fn find_fault(&self, message: &str, column: usize) -> Finding {
        let more = self.text.get(column..).filter(|_| message.starts_with(MORE_IN_LINE_MESSAGE));
        if let Some(finding) = more.and_then(|more| self.find_second_setting(more)) {
            return finding;
        }
        let sources: [fn(&FaultyLine<'t>) -> Option<Finding>; 7] = [
            FaultyLine::find_marks_of_conflict,
            FaultyLine::find_other_characters,
            FaultyLine::find_line_of_shell,
            FaultyLine::find_other_format,
            FaultyLine::find_other_separator,
            FaultyLine::find_blank_in_name,
            FaultyLine::find_unquoted_value,
        ];
        let found = sources.iter().find_map(|find| find(self));
        let found = found.or_else(|| self.find_fault_of_quotes(message));
        found.or_else(|| self.find_second_value(more?)).unwrap_or_default()
    }

    /// Finds the lines that a version control system writes around two versions.
    fn find_marks_of_conflict(&self) -> Option<Finding> {
        let is_mark = MARKS_OF_CONFLICT.iter().any(|mark| self.text.starts_with(mark));
        let hint = "write the lines of one side, and remove <<<<<<<, ======= and >>>>>>>";
        is_mark.then(|| Finding::new("the marks of a merge conflict", hint))
    }

    /// Finds a second setting in the line. `more` is what stands behind the first value.
    fn find_second_setting(&self, more: &str) -> Option<Finding> {
        let (name, _) = more.trim_start_matches([',', ';', ' ', '\t']).split_once('=')?;
        let name = name.trim();
        let hint = format!("write {name} = … on a line of its own");
        let is_second = self.behind.starts_with('=') && is_name_of_setting(name);
        is_second.then(|| Finding::new("a second setting in the line", hint))
    }

    /// Finds several values without the brackets of a list, or words behind a value.
    fn find_second_value(&self, more: &str) -> Option<Finding> {
        let values = self.value.split(" #").next()?.trim_end_matches([',', ' ']);
        let list = format!("[{values}]");
        let parsed = DeValue::parse(&list).ok().filter(|_| more.starts_with(','));
        let Some((key, raw)) =
            self.key.as_ref().zip(parsed.map(|it| RawValue::from_toml(it.get_ref())))
        else {
            let words = !self.name.is_empty() && self.behind.starts_with('=');
            let hint = "remove it, or write # before a comment";
            return words.then(|| Finding::new("more behind the value", hint));
        };
        let hint = match judge_value(key, &raw) {
            None if self.is_shown() => format!("write {list}"),
            None => "write [ before the first value, and ] behind the last".to_owned(),
            Some(_) => "write one value: the setting takes no list".to_owned(),
        };
        Some(Finding::new("several values without brackets", hint))
    }

    /// Finds quotes and blanks that only look like those of TOML.
    fn find_other_characters(&self) -> Option<Finding> {
        let quotes: Vec<char> = self.text.chars().filter(|c| is_curly_quote(*c)).collect();
        let is_quoted = self.value.starts_with(|c| is_quote(c) && c != '"' && c != '\'');
        let is_in_list = self.value.starts_with('[') && !quotes.is_empty();
        if is_quoted || is_in_list {
            let shown: Vec<String> =
                self.value.chars().filter(|c| is_quote(*c)).map(String::from).collect();
            let (first, last) = (shown.first()?, shown.last()?);
            let written = self.value.replace(is_quote, "\"");
            let hint = match self.is_shown() {
                true => format!("write {written}"),
                false => "write \" in place of each".to_owned(),
            };
            return Some(Finding::new(format!("the quotes {first} and {last}"), hint));
        }
        let is_hidden = |c: char| {
            c.is_whitespace() && !c.is_ascii()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
        };
        let hidden = self.text.chars().find(|c| is_hidden(*c))?;
        let found = format!("U+{:04X}, a character that can't be seen", u32::from(hidden));
        Some(Finding::new(found, "write this line again, or a blank in its place"))
    }

    /// Whether the line is of a block between braces.
    fn is_of_block(&self) -> bool {
        let line = self.text.trim();
        let is_word = |c: char| c.is_ascii_alphanumeric() || " ._-/:*{}\"\t".contains(c);
        let is_end = matches!(line, "}" | "};" | "})" | "},");
        is_end || line.ends_with('{') && !line.contains('=') && line.chars().all(is_word)
    }

    /// Finds lines of JSON, YAML, XML and of the configs of other servers.
    fn find_other_format(&self) -> Option<Finding> {
        let line = self.text.trim();
        let first = line.split([' ', '{', ':', '\t']).next().unwrap_or_default();
        let known = header_of_known(first.trim_matches(is_quote));
        let hint = known.map_or(SECTIONS_AND_SETTINGS_HINT.to_owned(), |it| format!("write {it}"));
        let is_comment = |start: &&str| line.starts_with(*start);
        match line {
            "---" => Some(Finding::new("a line of YAML", "remove this line")),
            _ if ["//", "/*", ";", "--", "<!--"].iter().any(is_comment) => Some(Finding {
                hint: Some("write # before a comment".to_owned()),
                ..Finding::default()
            }),
            _ if ["include ", "import ", "!include"].iter().any(is_comment) => {
                let hint = "write all settings into this file: riskgate reads one file, and \
                            variables such as RISKGATE__LISTEN__HTTP";
                Some(Finding::new("an include", hint))
            }
            _ if line.starts_with('{') => Some(Finding::new("JSON", SECTIONS_AND_SETTINGS_HINT)),
            _ if line.starts_with('<') => {
                Some(Finding::new("a tag in < and >", SECTIONS_AND_SETTINGS_HINT))
            }
            _ if self.is_of_block() => {
                Some(Finding::new("a block in braces, as other servers have it", hint))
            }
            _ if line.starts_with("- ") => {
                let hint = "write a list between brackets, such as servers = [\"127.0.0.1:9000\"]";
                Some(Finding::new("a list of YAML", hint))
            }
            _ if is_name_of_setting(self.name) && self.behind.starts_with([' ', '\t']) => {
                Some(Finding::new("a line without =", self.hint_for_value_behind_blank()))
            }
            _ if !line.contains(['=', '[', '"', '}'])
                && !line.split(' ').next().unwrap_or_default().contains(':') =>
            {
                let hint =
                    if is_name_of_setting(first) { format!("write {first} = …") } else { hint };
                Some(Finding::new("a line without =", hint))
            }
            _ => None,
        }
    }

    /// Returns what to write for a setting with a blank in place of its `=`.
    fn hint_for_value_behind_blank(&self) -> String {
        let name = self.name;
        let value = self.value.trim_end_matches([';', ',', ' ']);
        let Some(key) = self.key.as_ref().filter(|_| self.is_shown() && !value.is_empty()) else {
            return format!("write {name} = …");
        };
        if DeValue::parse(value).is_ok() {
            return format!("write {name} = {value}");
        }
        match judge_value(key, &RawValue::Text(value.to_owned())) {
            None => format!("write {name} = {}", toml_text(value)),
            Some((_, Some(hint))) if hint.starts_with("write ") => {
                hint.replacen("write ", &format!("write {name} = "), 1)
            }
            Some(_) => format!("write {name} = …"),
        }
    }

    /// Finds a line of a shell or of a file of variables, such as `export NAME=value`.
    fn find_line_of_shell(&self) -> Option<Finding> {
        let line = self.text.trim();
        let exported = line.strip_prefix("export ").or(line.strip_prefix("set "));
        let (name, _) = exported.unwrap_or(line).split_once('=')?;
        let name = name.trim();
        let is_variable = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let has_form = if exported.is_some() { is_name } else { is_variable };
        if name.is_empty() || !name.chars().all(has_form) {
            return None;
        }
        let meant = match is_name_of_setting(name) {
            true => Some(format!("{name} = …")),
            false => find_meant_setting_of_variable(name),
        };
        let meant = meant.unwrap_or_else(|| "http = \"0.0.0.0:8080\" below [listen]".to_owned());
        let hint = match name.starts_with(ENV_PREFIX) {
            true => format!("set it in the environment, or write {meant}"),
            false => format!("write {meant}, with texts between quotes"),
        };
        Some(Finding::new("a line of a shell or of a file of variables", hint))
    }

    /// Finds `:`, `==` or `=>` in place of `=`, a missing value, and a `;` or `,` behind a text.
    fn find_other_separator(&self) -> Option<Finding> {
        let (name, value) = (self.name, self.value);
        let hint = |hint: String| Some(Finding { hint: Some(hint), ..Finding::default() });
        if name.is_empty() {
            return None;
        }
        if self.behind.starts_with(':') {
            return hint(match (value, header_of_known(name)) {
                ("", Some(header)) => format!("write {header}"),
                _ => format!("write {name} = …"),
            });
        }
        if let Some(sign) = ["=", ">"].iter().find(|sign| value.starts_with(**sign)) {
            return hint(format!("write {name} = …, without the {sign} behind it"));
        }
        if value.is_empty() && self.behind.starts_with('=') {
            return Some(self.find_missing_value());
        }
        if let Some(comment) = sign_of_comment_behind(value) {
            return hint(format!("write # in place of {comment} before a comment"));
        }
        let last = value.chars().next_back().filter(|last| matches!(last, ';' | ','));
        let is_quoted = value.starts_with(['"', '\'']);
        match last {
            Some(last) if is_quoted => hint(format!("write no {last} at the end of the line")),
            _ => None,
        }
    }

    /// Says what a setting expects that has no value.
    fn find_missing_value(&self) -> Finding {
        let name = self.name;
        let judged = self.key.as_ref().and_then(|key| {
            let (problem, _) = judge_value(key, &RawValue::Unsupported("nothing"))?;
            let expected = problem.split(", but found").next()?;
            Some(format!("{key}: {expected}, but found nothing"))
        });
        let found = judged.is_none().then(|| format!("{name} without a value"));
        let hint = Some(format!("write a value behind {name} =, or remove this line"));
        Finding { found, problem: judged, hint }
    }

    /// Finds a name with blanks, such as `team plan`.
    fn find_blank_in_name(&self) -> Option<Finding> {
        let (name, _) = self.text.split_once('=')?;
        let name = name.trim();
        let is_word = |c: char| c.is_ascii_alphanumeric() || " _-".contains(c);
        if !name.contains(' ') || !name.chars().all(is_word) {
            return None;
        }
        let joined = name.split(' ').filter(|it| !it.is_empty()).collect::<Vec<_>>().join("_");
        let is_plan = self.key.as_ref().is_some_and(|key| key.starts_with("plans."));
        let hint = match is_plan {
            true => {
                let (quoted, value) = (toml_text(name), self.value);
                format!("write {quoted} = {value}, or {joined} = {value}")
            }
            false if is_name_of_setting(&joined) => format!("write {joined} = …"),
            false => return None,
        };
        Some(Finding::new("a blank in a name", hint))
    }

    /// Judges a value without quotes by its setting.
    fn find_unquoted_value(&self) -> Option<Finding> {
        let value = self.value.split(" #").next().unwrap_or_default();
        let value = value.trim_end_matches([',', ';', ' ']);
        if self.name.is_empty() || value.is_empty() || value.starts_with(['"', '\'', '{', '#']) {
            return None;
        }
        // The value is good, so something else is wrong.
        if DeValue::parse(value).is_ok() {
            return None;
        }
        let raw = match value.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            Some(items) if !items.contains(['"', '\'']) => {
                let items = items.split(',').map(str::trim).filter(|it| !it.is_empty());
                RawValue::List(items.map(|it| RawValue::Text(it.to_owned())).collect())
            }
            _ if value.starts_with('[') => return None,
            _ => RawValue::Text(value.to_owned()),
        };
        let found = "a text without quotes";
        let Some(key) = self.key.as_ref().filter(|_| self.is_shown()) else {
            return Some(Finding::new(found, "write a text between quotes"));
        };
        match judge_value(key, &raw) {
            None => Some(Finding::new(found, format!("write {}", raw.to_redacted_string()))),
            Some((problem, hint)) => {
                let quoted = raw.to_redacted_string();
                let problem = format!("{key}: {}", problem.replace(&quoted, value));
                Some(Finding { problem: Some(problem), hint, found: None })
            }
        }
    }

    /// Finds a quote too many or too few, and `\`.
    fn find_fault_of_quotes(&self, message: &str) -> Option<Finding> {
        let value = self.value;
        let hint = |hint: String| Some(Finding { hint: Some(hint), ..Finding::default() });
        if message.starts_with("missing comma") && !has_inner_quote(value) {
            return hint("write a comma between the two texts".to_owned());
        }
        if has_inner_quote(value) {
            let hint = "write the text between ' and ', or leave the inner quotes out";
            return Some(Finding::new("a \" inside a text between \" and \"", hint));
        }
        match value.chars().next() {
            Some('"') if value.contains('\\') => {
                hint("write \\\\ for each \\, or the text between ' and '".to_owned())
            }
            Some(quote @ ('"' | '\'')) if !self.name.is_empty() && !value[1..].contains(quote) => {
                let hint = format!("end the text with {quote}");
                Some(Finding::new("a text without its end", hint))
            }
            _ => None,
        }
    }
}

/// Returns the sign before a comment of another language behind a text, such as `//`.
fn sign_of_comment_behind(value: &str) -> Option<&'static str> {
    let quote = value.chars().next().filter(|it| matches!(it, '"' | '\''))?;
    let (_, behind) = value.get(1..)?.split_once(quote)?;
    let words = behind.trim_start_matches([',', ' ']);
    ["//", "/*", "--", ";"].into_iter().find(|sign| words.starts_with(sign) && words != *sign)
}

/// Whether a `"` inside a text seems to end the text before a word.
fn has_inner_quote(value: &str) -> bool {
    let (mut is_in_text, mut chars) = (false, value.chars().peekable());
    if value.contains("\"\"\"") || !value.starts_with(['"', '[']) {
        return false;
    }
    while let Some(c) = chars.next() {
        match c {
            '\\' if is_in_text => drop(chars.next()),
            '"' => {
                let is_before_word = chars.peek().is_some_and(|next| next.is_alphanumeric());
                if is_in_text && is_before_word {
                    return true;
                }
                is_in_text = !is_in_text;
            }
            '#' if !is_in_text => return false,
            _ => {}
        }
    }
    false
}
