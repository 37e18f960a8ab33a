//! The form of a line of the access log: which fields it has, and whether it is JSON or logfmt.

use std::fmt::Display;
use std::io::Write as _;

use super::entry::LogEntry;
use crate::model::month::format_rfc3339;

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object.
    #[default]
    Json,
    /// `name=value` pairs with a space between them. A value with a space, a quote or `=` is a JSON
    /// string. A field without a value is left out.
    Logfmt,
}

macro_rules! log_fields {
    ($($variant:ident $name:literal,)*) => {
        /// A field of a line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LogField { $(#[doc = concat!("`", $name, "`")] $variant,)* }

        impl LogField {
            /// All fields.
            pub const ALL: [LogField; log_fields!(@count $($variant)*)] = [$(LogField::$variant,)*];

            /// The name in the config and in a line.
            pub const fn as_str(self) -> &'static str {
                match self { $(LogField::$variant => $name,)* }
            }

            /// What stands before the value in a JSON line, with the comma before the name.
            const fn json_prefix(self) -> &'static str {
                match self { $(LogField::$variant => concat!(",\"", $name, "\":"),)* }
            }
        }
    };
    (@count $($variant:ident)*) => { [$(stringify!($variant),)*].len() };
}

log_fields! {
    Time "time",
    RequestId "request_id",
    Client "client",
    Method "method",
    Route "route",
    Path "path",
    Status "status",
    Outcome "outcome",
    Reason "reason",
    KeyId "key_id",
    Account "account",
    Screening "screening",
    DurationUs "duration_us",
    ResponseBytes "response_bytes",
    UserAgent "user_agent",
    Protocol "protocol",
    Tls "tls",
    Upstream "upstream",
    UpstreamUs "upstream_us",
    TraceId "trace_id",
}

impl LogField {
    /// The fields of a line, unless the config names others.
    pub const DEFAULT: [LogField; 13] = {
        let mut fields = [LogField::Time; 13];
        let mut at = 0;
        while at < fields.len() {
            fields[at] = LogField::ALL[at];
            at += 1;
        }
        fields
    };

    /// Returns the field with this name.
    pub fn parse(name: &str) -> Option<LogField> {
        LogField::ALL.into_iter().find(|field| field.as_str() == name)
    }
}

/// The form of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineForm {
    /// JSON or logfmt.
    pub format: LogFormat,
    /// The fields, in their order.
    pub fields: Vec<LogField>,
}

impl Default for LineForm {
    fn default() -> LineForm {
        LineForm { format: LogFormat::Json, fields: LogField::DEFAULT.to_vec() }
    }
}

/// Formats the times of lines. It keeps the last second, because most lines are of the same second
/// as the line before.
#[derive(Default)]
pub struct TimeFormatter {
    second: i64,
    /// The second, formatted without fraction and zone.
    formatted: String,
}

impl TimeFormatter {
    /// Returns the time up to its seconds, and the milliseconds.
    pub fn format(&mut self, unix_ms: i64) -> (&str, i64) {
        let second = unix_ms.div_euclid(1000);
        if self.second != second || self.formatted.is_empty() {
            self.second = second;
            self.formatted = format_rfc3339(second).trim_end_matches('Z').to_owned();
        }
        (&self.formatted, unix_ms.rem_euclid(1000))
    }
}

/// Appends the line of an entry.
pub fn append_line(
    out: &mut Vec<u8>,
    form: &LineForm,
    times: &mut TimeFormatter,
    entry: &LogEntry<'_>,
) {
    let is_json = form.format == LogFormat::Json;
    out.extend_from_slice(if is_json { b"{" } else { b"" });
    let mut line = Line { out, is_json, is_first: true };
    for field in &form.fields {
        line.append_field(*field, times, entry);
    }
    out.extend_from_slice(if is_json { b"}\n" } else { b"\n" });
}

/// The name of a field, as logfmt and as JSON have it.
#[derive(Clone, Copy)]
struct FieldName {
    plain: &'static str,
    /// With the comma before it and the colon behind it.
    json: &'static str,
}

const ACTION: FieldName = FieldName { plain: "screening_action", json: ",\"action\":" };
const SCORE: FieldName = FieldName { plain: "screening_score", json: ",\"score\":" };
const DOMAIN: FieldName = FieldName { plain: "screening_domain", json: ",\"domain\":" };

/// A line that is being written. A write to a Vec can't fail.
struct Line<'o> {
    out: &'o mut Vec<u8>,
    is_json: bool,
    /// Whether the next field is the first of its object.
    is_first: bool,
}

impl Line<'_> {
    fn append_field(&mut self, field: LogField, times: &mut TimeFormatter, entry: &LogEntry<'_>) {
        let name = FieldName { plain: field.as_str(), json: field.json_prefix() };
        match field {
            LogField::Time => {
                let (second, millis) = times.format(entry.at_ms);
                let digits = [100, 10, 1].map(|divisor| b'0' + (millis / divisor % 10) as u8);
                self.plain(name, &[second.as_bytes(), b".", &digits, b"Z"]);
            }
            LogField::RequestId => self.text(name, Some(entry.request_id)),
            LogField::Client => match entry.client {
                Some(address) => self.display(name, address),
                None => self.text(name, Some("")),
            },
            LogField::Method => self.text(name, Some(entry.method)),
            LogField::Route => self.plain(name, &[entry.route.as_bytes()]),
            LogField::Path => match entry.path_parts {
                ["", path] => self.text(name, Some(path)),
                parts => self.text(name, Some(&parts.concat())),
            },
            LogField::Status => self.number(name, Some(u64::from(entry.status))),
            LogField::Outcome => self.plain(name, &[entry.outcome.as_bytes()]),
            LogField::Reason => self.text(name, entry.reason),
            LogField::KeyId => self.text(name, entry.key_id),
            LogField::Account => self.text(name, entry.account),
            LogField::Screening => self.append_screening(name, entry),
            LogField::DurationUs => self.number(name, Some(entry.duration_us)),
            LogField::ResponseBytes => self.number(name, Some(entry.response_bytes)),
            LogField::UserAgent => self.text(name, entry.user_agent),
            LogField::Protocol => self.text(name, entry.protocol),
            LogField::Tls => self.text(name, entry.tls),
            LogField::Upstream => match entry.upstream {
                Some(server) => self.display(name, server),
                None => self.text(name, None),
            },
            LogField::UpstreamUs => self.number(name, entry.upstream_us),
            LogField::TraceId => self.text(name, entry.trace_id),
        }
    }

    /// A line has this field only if a form was screened.
    fn append_screening(&mut self, name: FieldName, entry: &LogEntry<'_>) {
        let Some(screening) = entry.screening else { return };
        let score = screening.score.map(u64::from);
        if self.is_json {
            self.begin(name);
            self.out.push(b'{');
            self.is_first = true;
            self.text(ACTION, Some(screening.action));
            self.number(SCORE, score);
            self.text(DOMAIN, screening.domain);
            self.out.push(b'}');
        } else {
            self.text(ACTION, Some(screening.action));
            self.number(SCORE, score);
            self.text(DOMAIN, screening.domain);
        }
    }

    fn begin(&mut self, name: FieldName) {
        let is_first = std::mem::replace(&mut self.is_first, false);
        if self.is_json {
            self.out.extend_from_slice(&name.json.as_bytes()[usize::from(is_first)..]);
            return;
        }
        if !is_first {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(name.plain.as_bytes());
        self.out.push(b'=');
    }

    /// Appends a text in parts that needs no escapes.
    fn plain(&mut self, name: FieldName, parts: &[&[u8]]) {
        let quote: &[u8] = if self.is_json { b"\"" } else { b"" };
        self.begin(name);
        self.out.extend_from_slice(quote);
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
        self.out.extend_from_slice(quote);
    }

    /// Appends a value whose text needs no escapes.
    fn display(&mut self, name: FieldName, value: impl Display) {
        self.plain(name, &[]);
        let end = if self.is_json { self.out.pop() } else { None };
        let _ = write!(self.out, "{value}");
        self.out.extend(end);
    }

    fn text(&mut self, name: FieldName, value: Option<&str>) {
        let Some(value) = value else { return self.no_value(name) };
        self.begin(name);
        let needs_quotes =
            |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'=' | b'\\');
        if self.is_json || value.is_empty() || value.bytes().any(needs_quotes) {
            let _ = serde_json::to_writer(&mut *self.out, value);
        } else {
            self.out.extend_from_slice(value.as_bytes());
        }
    }

    fn number(&mut self, name: FieldName, value: Option<u64>) {
        let Some(value) = value else { return self.no_value(name) };
        self.begin(name);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn no_value(&mut self, name: FieldName) {
        if self.is_json {
            self.begin(name);
            self.out.extend_from_slice(b"null");
        }
    }
}
