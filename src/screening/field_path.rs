//! The name of a field, in the spelling of the config and in the spellings of bodies.

use std::cell::OnceCell;
use std::fmt;

use super::server_parsers::without_skipped_characters;
use crate::model::letter_case::fold_case;

/// The most indexes among the members that lead to a field.
const MAX_INDEXES: usize = 2;

/// A field, as the names that lead to it. `user.email` is the member `email` of the member `user`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    parts: Vec<String>,
    /// The parts with `_` between them.
    joined: String,
    /// The text with which each spelling of the field begins, behind what [`is_leading`] names.
    start: String,
    /// The longest text without `_` in `joined`.
    text_in_all_spellings: String,
}

impl FieldPath {
    /// Parses a name with dots between its parts. `None` if a part is empty, or has another
    /// character than a letter, a digit, `_`, `-`, `:` (Jakarta Faces) or `$` (ASP.NET Web Forms).
    /// No part is `$` alone, with which a path of JSONPath begins (RFC 9535).
    pub fn parse(text: &str) -> Option<FieldPath> {
        let is_name_char = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '$');
        let parts: Vec<String> = text.split('.').map(normalize_name).collect();
        let is_valid =
            |part: &String| !part.is_empty() && part != "$" && part.chars().all(is_name_char);
        parts.iter().all(is_valid).then(|| {
            let joined = parts.join("_");
            let start = joined.trim_start_matches(is_leading).split('_').next().unwrap_or_default();
            let text_in_all_spellings =
                joined.split('_').max_by_key(|text| text.len()).unwrap_or_default();
            FieldPath {
                start: start.to_owned(),
                text_in_all_spellings: text_in_all_spellings.to_owned(),
                joined,
                parts,
            }
        })
    }

    /// Returns true if a server may take a JSON value for the field. `names` are the names of the
    /// members that lead to the value. A name may have several parts, as that of a form field, and
    /// an index may stand for one of several forms.
    pub(super) fn matches_members(&self, names: &[MemberName]) -> bool {
        match names {
            [name] => self.matches_form_name(&name.written.text),
            _ => self.matches_spellings(names.iter().map(|name| &name.written)),
        }
    }

    fn matches_spellings<'n>(
        &self,
        spellings: impl ExactSizeIterator<Item = &'n Spelling> + Clone,
    ) -> bool {
        let max_parts = self.parts.len() + MAX_INDEXES;
        let parts = || spellings.clone().flat_map(Spelling::parts);
        let is_short = spellings.len() <= max_parts && parts().nth(max_parts).is_none();
        is_short && (parts().eq(&self.parts) || parts().filter(|it| !is_index(it)).eq(&self.parts))
    }

    /// Returns true if a member of this name may be the first of the names for which
    /// [`FieldPath::matches_members`] or [`FieldPath::matches_members_without_skipped`] holds.
    pub(super) fn may_begin_with_member(&self, name: &str) -> bool {
        let is_first = |name: &str| {
            let parts = form_name_parts(name);
            let first = parts.iter().find(|part| !is_index(part)).or(parts.first());
            first.is_some_and(|first| self.parts.first() == Some(first))
                || self.matches_form_name(name)
        };
        is_first(name) || without_skipped_characters(name).is_some_and(|name| is_first(&name))
    }

    /// Does what [`FieldPath::matches_members`] does, for the names as a server reads them that
    /// skips some characters of names. Returns false if no name has such a character.
    pub(super) fn matches_members_without_skipped(&self, names: &[MemberName]) -> bool {
        match names {
            [name] => {
                name.without_skipped.as_ref().is_some_and(|it| self.matches_form_name(&it.text))
            }
            _ if names.iter().all(|name| name.without_skipped.is_none()) => false,
            _ => self.matches_spellings(names.iter().map(MemberName::spelling_without_skipped)),
        }
    }

    /// Returns true if a server may take this name of a form field for the field, or for a part of
    /// the field. Servers read `user[email]`, `user.email`, `email[]` and `email[0]` in different
    /// ways. PHP reads a dot or a blank as `_`, and ignores blanks before a name.
    pub(super) fn matches_form_name(&self, name: &str) -> bool {
        match is_plain_name(name.as_bytes()) {
            true => self.matches_plain_name(name.as_bytes()),
            false => {
                self.is_usual_spelling(name)
                    || self.may_match(name) && self.matches_by_all_rules(name)
            }
        }
    }

    /// Returns true for `user.email` and `user[email]`. This test is quick.
    fn is_usual_spelling(&self, name: &str) -> bool {
        let Some((first, others)) = self.parts.split_first() else { return false };
        let Some(behind_first) = strip_name(name, first) else { return false };
        let rest_with_dots = others
            .iter()
            .try_fold(behind_first, |rest, part| strip_name(rest.strip_prefix('.')?, part));
        let rest_with_brackets = others.iter().try_fold(behind_first, |rest, part| {
            strip_name(rest.strip_prefix('[')?, part)?.strip_prefix(']')
        });
        rest_with_dots == Some("") || rest_with_brackets == Some("")
    }

    /// Does what [`FieldPath::matches_form_name`] does, faster, and only for a name for which
    /// [`is_plain_name`] returns true.
    pub(super) fn matches_plain_name(&self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.joined.as_bytes())
    }

    fn matches_by_all_rules(&self, name: &str) -> bool {
        // Zope reads `email:string` as `email`, and Struts reads `top.email` so.
        let without_type = name.split_once(':').map(|(name, _)| name);
        let others = [without_type, strip_stack_top(name)];
        self.matches_in_parts(name)
            || others.into_iter().flatten().any(|it| self.matches_in_parts(it))
    }

    fn matches_in_parts(&self, name: &str) -> bool {
        let (parts, joined) = (form_name_parts(name), self.joined.as_str());
        let mangled = normalize_name(name.split('\0').next().unwrap_or_default());
        // Rack ignores brackets around a name.
        let mangled = mangled.trim_start_matches(['[', ']']).trim_end_matches(']');
        let mangled = mangled.replace(['.', ' '], "_");
        // PHP reads a `[` that no `]` closes as `_`.
        parts.starts_with(&self.parts)
            || parts_without_indexes(&parts).starts_with(&self.parts)
            || mangled.split('[').next() == Some(joined)
            || mangled.replacen('[', "_", 1).split('[').next() == Some(joined)
    }

    /// Returns false only for a name that does not match. This test is quick.
    fn may_match(&self, name: &str) -> bool {
        self.may_match_in_parts(name)
            || strip_stack_top(name).is_some_and(|name| self.may_match_in_parts(name))
    }

    fn may_match_in_parts(&self, name: &str) -> bool {
        let behind_leading = name.trim_start_matches(is_leading);
        if !name.is_ascii() {
            return normalize_name(behind_leading).starts_with(&self.start)
                && normalize_name(name).contains(&self.text_in_all_spellings);
        }
        let start = behind_leading.as_bytes().get(..self.start.len());
        let text_in_all_spellings = self.text_in_all_spellings.as_bytes();
        start.is_some_and(|start| start.eq_ignore_ascii_case(self.start.as_bytes()))
            && (text_in_all_spellings.is_empty()
                || name
                    .as_bytes()
                    .windows(text_in_all_spellings.len())
                    .any(|it| it.eq_ignore_ascii_case(text_in_all_spellings)))
    }

    /// Returns true if the text behind some prefix of the name may be a spelling of the field. This
    /// test is quick, and true for some further names.
    pub(super) fn may_be_behind_prefix(&self, name: &str) -> bool {
        name.contains(['_', ':']) && normalize_name(name).contains(&self.text_in_all_spellings)
    }

    /// Returns true if riskgate must compare the name with all spellings of the field.
    pub(super) fn is_costly_to_match(&self, name: &str) -> bool {
        !is_plain_name(name.as_bytes()) && !self.is_usual_spelling(name) && self.may_match(name)
    }

    /// Does what [`FieldPath::may_have_other_text`] does, for the names of JSON members. A page may
    /// have made them of the names of form fields.
    pub(super) fn may_members_have_other_text(&self, names: &[MemberName]) -> bool {
        let own = self.parts.last().map_or("", String::as_str);
        match names {
            [name] => self.may_have_other_text(&name.written.text),
            [.., last] => is_about_field(&last.written.text) && !own.starts_with('_'),
            [] => false,
        }
    }

    /// Returns true if the value of a name that matches may be another text than an address:
    /// `email[label]` is a part of the field, in Spring `_email` marks a checkbox, and in Zope the
    /// value of `email:tokens` is several words.
    pub(super) fn may_have_other_text(&self, name: &str) -> bool {
        if is_plain_name(name.as_bytes()) || self.is_usual_spelling(name) {
            return false;
        }
        if is_about_field(name) && !self.joined.starts_with('_') {
            return true;
        }
        if name.contains(':') && !self.joined.contains(':') {
            return true;
        }
        let names = parts_without_indexes(&form_name_parts(name));
        names.len() > self.parts.len() && names.starts_with(&self.parts)
    }
}

/// The longest name of a nested JSON member in which riskgate looks for parts, to limit its work.
const MAX_MEMBER_NAME_BYTES: usize = 256;

/// The name of a JSON member. It is prepared once, because riskgate compares it again for each
/// member below this one.
pub(super) struct MemberName {
    written: Spelling,
    /// The name as a server reads it that skips some characters, if it differs.
    without_skipped: Option<Spelling>,
}

/// A spelling of the name of a JSON member.
struct Spelling {
    text: String,
    /// The parts by [`form_name_parts`], once they were needed.
    parts: OnceCell<Vec<String>>,
}

impl MemberName {
    pub(super) fn new(text: String) -> MemberName {
        let without_skipped = without_skipped_characters(&text).map(Spelling::new);
        MemberName { written: Spelling::new(text), without_skipped }
    }

    fn spelling_without_skipped(&self) -> &Spelling {
        self.without_skipped.as_ref().unwrap_or(&self.written)
    }
}

impl Spelling {
    fn new(text: String) -> Spelling {
        Spelling { text, parts: OnceCell::new() }
    }

    fn parts(&self) -> &[String] {
        self.parts.get_or_init(|| match self.text.len() <= MAX_MEMBER_NAME_BYTES {
            true => form_name_parts(&self.text),
            // The empty part is that of no field.
            false => vec![String::new()],
        })
    }
}

/// The spelling of the config, with dots between the parts.
impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("."))
    }
}

/// Returns true for a character that a server may ignore before the name of a field: blanks, the
/// brackets, dots and quotes between names, digits of an index, and `!` and `_`, which Spring
/// ignores.
fn is_leading(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '!' | '_' | '.' | '[' | ']' | '\'' | '"') || c.is_whitespace()
}

/// Returns true for a name of ASCII letters, digits, `-` and `_` that does not begin with `_`. Most
/// names are plain.
pub(super) fn is_plain_name(name: &[u8]) -> bool {
    let is_plain_byte = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.first() != Some(&b'_') && name.iter().all(is_plain_byte)
}

/// Returns the parts that are no index: `user[0][email]` is the field `email` of one of several
/// users.
fn parts_without_indexes(parts: &[String]) -> Vec<String> {
    parts.iter().filter(|part| !is_index(part)).cloned().collect()
}

/// Returns the text behind a part of a name; the case of ASCII letters does not count.
fn strip_name<'t>(text: &'t str, part: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(part.len())?;
    start.eq_ignore_ascii_case(part).then_some(rest)
}

/// Returns the text behind `top.`, with which Struts names the action itself.
fn strip_stack_top(name: &str) -> Option<&str> {
    name.strip_prefix("top.")
}

/// Returns true for a name such as `_email`, with which Spring marks a checkbox, and `!email`.
fn is_about_field(name: &str) -> bool {
    name.trim_start().starts_with(['!', '_'])
}

fn is_index(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the parts of the name of a form field, without empty parts. A name ends at a NUL.
fn form_name_parts(name: &str) -> Vec<String> {
    let name = name.split('\0').next().unwrap_or_default();
    // In Spring, `!` or `_` before the name of a field means the default of this field.
    let name = name.trim_start().trim_start_matches(['!', '_']);
    let parts = name.split(['.', '[', ']', '\'', '"']).filter(|part| !part.is_empty());
    parts.map(normalize_name).filter(|part| !part.is_empty()).collect()
}

/// Returns a name in one case and without blanks around it, because some servers ignore both.
fn normalize_name(name: &str) -> String {
    fold_case(name.trim())
}

#[cfg(test)]
mod tests;
