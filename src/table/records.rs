//! The lists that are records: overrides, labels, labels by MX, and MX facts.
//!
//! Each field is checked where it is read; what the records add up to is decided elsewhere.

use std::borrow::Cow;

use super::fault::{Fault, quoted};
use super::manifest::Kind;
use super::mx;
use super::packages::{self, DAY};
use super::rows::{Context, Lists, MxClass, Reach, Said, read_name};
use super::rules::{self, Override};
use crate::model::domain::Name;
use crate::model::verdict::{Reason, Score};

/// The columns of an override. The last two may be missing: words for people, and the last day on
/// which the row counts.
pub(super) const OVERRIDE: [&str; 9] = [
    "domain",
    "scope",
    "reason",
    "risk_score",
    "is_free_provider",
    "is_corporate_email",
    "mx_provider_label",
    "note",
    "until",
];
/// How many of them every file has.
pub(super) const NEEDED_OF_OVERRIDE: usize = 7;

/// How far the header of a list of records was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// The next line should be the header.
    Expected,
    /// It names this many columns.
    Read(usize),
}

/// The header of a list of records; `None` for a list of names.
pub(super) fn columns(kind: Kind) -> Option<&'static [&'static str]> {
    match kind {
        Kind::Override => Some(&OVERRIDE[..NEEDED_OF_OVERRIDE]),
        Kind::Label => Some(&["domain", "label"]),
        Kind::MxLabel => Some(&["suffix", "label", "class"]),
        Kind::Mx => Some(&["domain", "mx"]),
        _ => None,
    }
}

impl<'a> Lists<'a> {
    pub(super) fn csv_line(
        &mut self,
        context: &Context,
        columns: &[&str],
        header: &mut Header,
        fields: Vec<Cow<'a, str>>,
    ) -> Result<(), Fault> {
        let Header::Read(width) = *header else {
            *header = Header::Read(columns.len());
            let (known, notes) = fields.split_at(fields.len().min(columns.len()));
            let has_notes =
                context.kind == Kind::Override && notes == &OVERRIDE[NEEDED_OF_OVERRIDE..];
            if known == columns && (notes.is_empty() || has_notes) {
                *header = Header::Read(fields.len());
                return Ok(());
            }
            let expected = format!("the header {}", columns.join(","));
            return Err(Fault::expected(context.at(""), expected, quoted(&fields.join(","))));
        };
        if fields.len() != width {
            let columns = if width > columns.len() { &OVERRIDE } else { columns };
            let expected = format!("{width} fields ({})", columns.join(","));
            return Err(Fault::expected(context.at(""), expected, fields.len().to_string()));
        }
        let (name, parsed) = read_name(context, columns[0], fields[0].clone())?;
        let scope = match context.kind {
            Kind::Override => read_scope(context, &fields[1], &parsed)?,
            _ => false,
        };
        if let Some(first) = self.once.insert((name.clone(), scope), context.line) {
            return Err(Fault::Twice { at: context.at(columns[0]), what: quoted(&name), first });
        }
        match context.kind {
            Kind::Override => self.override_line(context, name, &parsed, scope, &fields),
            Kind::Label => {
                let label = read_label(context, columns[1], &fields[1])?;
                let label = self.labels.number(label);
                let said = Said { bits: 0, label, votes: 0 };
                self.push(context, name, &parsed, false, said);
                Ok(())
            }
            Kind::MxLabel => {
                let label = self.labels.number(read_label(context, columns[1], &fields[1])?);
                let class = read_class(context, &fields[2])?;
                self.mx_labels.insert(name.into_owned(), (label, class));
                Ok(())
            }
            _ => {
                let said = self.mx_fact(context, &fields[1])?;
                self.push(context, name, &parsed, true, said);
                Ok(())
            }
        }
    }

    fn override_line(
        &mut self,
        context: &Context,
        name: Cow<'a, str>,
        parsed: &Name,
        subtree: bool,
        fields: &[Cow<'a, str>],
    ) -> Result<(), Fault> {
        let wrong = |column: usize, expected: &str| {
            Fault::expected(context.at(OVERRIDE[column]), expected, quoted(&fields[column]))
        };
        let set = |column: usize| Some(&*fields[column]).filter(|text| !text.is_empty());
        let flag = |column: usize| match set(column) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(wrong(column, "true or false")),
        };
        let reason = match set(2) {
            None => None,
            Some(word) => Some(
                Reason::from_word(word)
                    .ok_or_else(|| wrong(2, "safe, disposable, undeliverable or role_account"))?,
            ),
        };
        let score = match set(3) {
            None => None,
            Some(text) => Some(
                text.parse::<u8>()
                    .ok()
                    .and_then(Score::new)
                    .ok_or_else(|| wrong(3, "an integer from 0 to 100"))?,
            ),
        };
        let (is_free, is_corporate) = (flag(4)?, flag(5)?);
        if let Some(text) = fields.get(8).filter(|text| !text.is_empty())
            && self.has_ended(context, text)?
        {
            return Ok(());
        }
        let label = match set(6) {
            None => None,
            Some("-") => Some(0),
            Some(_) => Some(self.labels.number(read_label(context, OVERRIDE[6], &fields[6])?)),
        };
        let sets_nothing = reason.is_none()
            && score.is_none()
            && is_free.is_none()
            && is_corporate.is_none()
            && label.is_none();
        if sets_nothing {
            return Err(Fault::expected(context.at(""), "a row that sets a field", "none set"));
        }
        let reach = if subtree { Reach::Beyond } else { Reach::Exact };
        self.push_row(context, name.clone(), parsed, reach, Said::default());
        self.overrides.push(Override {
            name,
            subtree,
            reason,
            score,
            is_free,
            is_corporate,
            label,
            list: context.number,
            line: context.line,
        });
        Ok(())
    }

    /// Returns true if an override that counts until this day says nothing any more.
    fn has_ended(&mut self, context: &Context, text: &str) -> Result<bool, Fault> {
        let day = packages::unix_day(text).ok_or_else(|| {
            Fault::expected(context.at("until"), "a day such as 2026-12-31", quoted(text))
        })?;
        // The row counts on that day too.
        let end = day + DAY;
        let has_ended = end <= self.now;
        if has_ended {
            self.ended += 1;
        } else {
            self.next_end = Some(self.next_end.map_or(end, |next| next.min(end)));
        }
        Ok(has_ended)
    }

    fn mx_fact(&self, context: &Context, text: &str) -> Result<Said, Fault> {
        if let Some(rule) = mx::rule_without_host(text) {
            return Ok(Said { bits: rules::bit(rule), label: 0, votes: 0 });
        }
        let host = Name::parse(text).map_err(|error| {
            let expected = "a host, ., nxdomain or parked";
            Fault::expected(context.at("mx"), expected, format!("{} ({error})", quoted(text)))
        })?;
        let found = mx::of_suffix(&self.mx_labels, host.as_str());
        let Some((label, class)) = found else { return Ok(Said::default()) };
        Ok(Said { bits: class.bits(), label: *label, votes: 0 })
    }
}

/// Whether an override covers what is below it.
fn read_scope(context: &Context, text: &str, name: &Name) -> Result<bool, Fault> {
    match text {
        "subtree" => Ok(true),
        // No e-mail domain is a single label: nothing could ever match the row.
        "exact" if !name.as_str().contains('.') => {
            let expected = "subtree, since no e-mail domain has only one label";
            Err(Fault::expected(context.at("scope"), expected, quoted(text)))
        }
        "exact" => Ok(false),
        _ => Err(Fault::expected(context.at("scope"), "exact or subtree", quoted(text))),
    }
}

fn read_label<'t>(context: &Context, key: &str, text: &'t str) -> Result<&'t str, Fault> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        let expected = "a label of 1 to 255 bytes without control characters";
        return Err(Fault::expected(context.at(key), expected, quoted(text)));
    }
    Ok(text)
}

fn read_class(context: &Context, text: &str) -> Result<MxClass, Fault> {
    match text {
        "consumer" => Ok(MxClass::Consumer),
        "professional" => Ok(MxClass::Professional),
        "shared" => Ok(MxClass::Shared),
        "disposable" => Ok(MxClass::Disposable),
        _ => {
            let expected = "consumer, professional, shared or disposable";
            Err(Fault::expected(context.at("class"), expected, quoted(text)))
        }
    }
}
