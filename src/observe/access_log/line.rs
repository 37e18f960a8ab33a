//! The form of a line of the access log: which fields it has, and whether it is JSON or logfmt.

use std::fmt::Display;
use std::io::Write as _;

use super::entry::LogEntry;
use crate::model::month::format_rfc3339;

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object.
    #[default]
    Json,
    /// `name=value` pairs with a space between them. A value is a JSON string if it is empty, or
    /// contains a `"`, a `=`, a backslash, or a character that is not visible ASCII. A field
    /// without a value is left out.
    Logfmt,
}

/// A field of a line. docs/configuration.md says what each field contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogField {
    /// `time`
    Time,
    /// `request_id`
    RequestId,
    /// `client`
    Client,
    /// `method`
    Method,
    /// `route`
    Route,
    /// `path`
    Path,
    /// `status`
    Status,
    /// `outcome`
    Outcome,
    /// `reason`
    Reason,
    /// `key_id`
    KeyId,
    /// `account`
    Account,
    /// `screening`
    Screening,
    /// `duration_us`
    DurationUs,
    /// `response_bytes`
    ResponseBytes,
    /// `user_agent`
    UserAgent,
    /// `protocol`
    Protocol,
    /// `tls`
    Tls,
    /// `upstream`
    Upstream,
    /// `upstream_us`
    UpstreamUs,
    /// `trace_id`
    TraceId,
    /// `inbox`
    Inbox,
}

impl LogField {
    /// All fields.
    pub const ALL: [LogField; 21] = [
        LogField::Time,
        LogField::RequestId,
        LogField::Client,
        LogField::Method,
        LogField::Route,
        LogField::Path,
        LogField::Status,
        LogField::Outcome,
        LogField::Reason,
        LogField::KeyId,
        LogField::Account,
        LogField::Screening,
        LogField::DurationUs,
        LogField::ResponseBytes,
        LogField::UserAgent,
        LogField::Protocol,
        LogField::Tls,
        LogField::Upstream,
        LogField::UpstreamUs,
        LogField::TraceId,
        LogField::Inbox,
    ];
    /// The fields of a line, unless the config names others: those up to `duration_us`.
    pub const DEFAULT: &[LogField] = LogField::ALL.split_at(LogField::DurationUs as usize + 1).0;

    /// The name in the config and in a line.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogField::Time => "time",
            LogField::RequestId => "request_id",
            LogField::Client => "client",
            LogField::Method => "method",
            LogField::Route => "route",
            LogField::Path => "path",
            LogField::Status => "status",
            LogField::Outcome => "outcome",
            LogField::Reason => "reason",
            LogField::KeyId => "key_id",
            LogField::Account => "account",
            LogField::Screening => "screening",
            LogField::DurationUs => "duration_us",
            LogField::ResponseBytes => "response_bytes",
            LogField::UserAgent => "user_agent",
            LogField::Protocol => "protocol",
            LogField::Tls => "tls",
            LogField::Upstream => "upstream",
            LogField::UpstreamUs => "upstream_us",
            LogField::TraceId => "trace_id",
            LogField::Inbox => "inbox",
        }
    }

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

/// Formats the times of lines. Keeps the text of the last second, because most lines are of the
/// same second as the line before.
#[derive(Default)]
pub struct TimeFormatter {
    second: i64,
    /// The second, formatted without fraction and zone.
    formatted: String,
}

impl TimeFormatter {
    /// Returns the time up to its seconds, and the three digits of its milliseconds.
    pub fn format(&mut self, unix_ms: i64) -> (&str, [u8; 3]) {
        let second = unix_ms.div_euclid(1000);
        if self.second != second || self.formatted.is_empty() {
            self.second = second;
            self.formatted = format_rfc3339(second).trim_end_matches('Z').to_owned();
        }
        let millis = unix_ms.rem_euclid(1000);
        let digits = [100, 10, 1].map(|divisor| b'0' + (millis / divisor % 10) as u8);
        (&self.formatted, digits)
    }
}

/// The form of the lines, prepared for writing many of them.
#[derive(Default)]
pub struct LineTemplate {
    is_json: bool,
    /// Each field, with the text before its value, such as `,"status":` or ` status=`.
    fields: Vec<(LogField, String)>,
    times: TimeFormatter,
}

impl LineTemplate {
    /// Prepares lines of this form.
    pub fn new(form: &LineForm) -> LineTemplate {
        let is_json = form.format == LogFormat::Json;
        let prefix = |field: LogField| match is_json {
            true => format!(",\"{}\":", field.as_str()),
            false => format!(" {}=", field.as_str()),
        };
        let fields = form.fields.iter().map(|field| (*field, prefix(*field))).collect();
        LineTemplate { is_json, fields, times: TimeFormatter::default() }
    }

    /// Appends the line of an entry.
    pub fn append_line(&mut self, out: &mut Vec<u8>, entry: &LogEntry<'_>) {
        let (start, end): (&[u8], &[u8]) = if self.is_json { (b"{", b"}\n") } else { (b"", b"\n") };
        out.extend_from_slice(start);
        let mut line = LineWriter { out, is_json: self.is_json, is_first: true };
        for (field, prefix) in &self.fields {
            line.append_field(*field, prefix, &mut self.times, entry);
        }
        out.extend_from_slice(end);
    }
}

/// Writes one line. A write to a Vec can't fail.
struct LineWriter<'o> {
    out: &'o mut Vec<u8>,
    is_json: bool,
    /// Whether the next field is the first of its object.
    is_first: bool,
}

// If the two functions with `inline(always)` were not inlined, their calls would take half of the
// time of a line.
impl LineWriter<'_> {
    fn append_field(
        &mut self,
        field: LogField,
        prefix: &str,
        times: &mut TimeFormatter,
        entry: &LogEntry<'_>,
    ) {
        match field {
            LogField::Time => {
                let (second, millis) = times.format(entry.at_ms);
                self.append_plain(prefix, &[second.as_bytes(), b".", &millis, b"Z"]);
            }
            LogField::RequestId => self.append_text(prefix, Some(entry.request_id)),
            LogField::Client => match entry.client {
                Some(address) => self.append_display(prefix, address),
                None => self.append_text(prefix, Some("")),
            },
            LogField::Method => self.append_text(prefix, Some(entry.method)),
            LogField::Route => self.append_plain(prefix, &[entry.route.as_bytes()]),
            LogField::Path => self.append_path(prefix, entry.path_parts),
            LogField::Status => self.append_number(prefix, Some(u64::from(entry.status))),
            LogField::Outcome => self.append_plain(prefix, &[entry.outcome.as_bytes()]),
            LogField::Reason => self.append_text(prefix, entry.reason),
            LogField::KeyId => self.append_text(prefix, entry.key_id),
            LogField::Account => self.append_text(prefix, entry.account),
            LogField::Screening => self.append_screening(prefix, entry),
            LogField::DurationUs => self.append_number(prefix, Some(entry.duration_us)),
            LogField::ResponseBytes => self.append_number(prefix, Some(entry.response_bytes)),
            LogField::UserAgent => self.append_text(prefix, entry.user_agent),
            LogField::Protocol => self.append_text(prefix, entry.protocol),
            LogField::Tls => self.append_text(prefix, entry.tls),
            LogField::Upstream => match entry.upstream {
                Some(server) => self.append_display(prefix, server),
                None => self.append_nothing(prefix),
            },
            LogField::UpstreamUs => self.append_number(prefix, entry.upstream_us),
            LogField::TraceId => self.append_text(prefix, entry.trace_id),
            LogField::Inbox => match entry.inbox {
                Some(inbox) => self.append_display(prefix, inbox),
                None => self.append_nothing(prefix),
            },
        }
    }

    /// Appends what screening did. Appends nothing if no form was screened.
    fn append_screening(&mut self, prefix: &str, entry: &LogEntry<'_>) {
        let Some(screening) = entry.screening else { return };
        let score = screening.score.map(u64::from);
        if self.is_json {
            self.append_field_name(prefix);
            self.out.push(b'{');
            self.is_first = true;
            self.append_text(",\"action\":", Some(screening.action));
            self.append_number(",\"score\":", score);
            self.append_text(",\"domain\":", screening.domain);
            if screening.rule.is_some() {
                self.append_text(",\"rule\":", screening.rule);
            }
            self.out.push(b'}');
        } else {
            self.append_text(" screening_action=", Some(screening.action));
            self.append_number(" screening_score=", score);
            self.append_text(" screening_domain=", screening.domain);
            self.append_text(" screening_rule=", screening.rule);
        }
    }

    /// Appends the text before the value of a field. Leaves out the separator before the first
    /// field.
    #[inline(always)]
    fn append_field_name(&mut self, prefix: &str) {
        let start = usize::from(std::mem::replace(&mut self.is_first, false));
        self.out.extend_from_slice(&prefix.as_bytes()[start..]);
    }

    fn append_quote(&mut self) {
        if self.is_json {
            self.out.push(b'"');
        }
    }

    /// Appends a value of several parts, which needs no escapes, and no quotes in logfmt.
    #[inline(always)]
    fn append_plain(&mut self, prefix: &str, parts: &[&[u8]]) {
        self.append_field_name(prefix);
        self.append_quote();
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.append_quote();
    }

    /// Appends a value whose text needs no escapes, and no quotes in logfmt.
    fn append_display(&mut self, prefix: &str, value: impl Display) {
        self.append_field_name(prefix);
        self.append_quote();
        let _ = write!(self.out, "{value}");
        self.append_quote();
    }

    fn append_path(&mut self, prefix: &str, parts: [&str; 2]) {
        let is_empty = parts == ["", ""];
        match (self.is_json || !is_empty) && parts.into_iter().all(is_plain) {
            true => self.append_plain(prefix, &parts.map(str::as_bytes)),
            false => self.append_text(prefix, Some(&parts.concat())),
        }
    }

    fn append_text(&mut self, prefix: &str, value: Option<&str>) {
        let Some(value) = value else { return self.append_nothing(prefix) };
        if (self.is_json || !value.is_empty()) && is_plain(value) {
            return self.append_plain(prefix, &[value.as_bytes()]);
        }
        self.append_field_name(prefix);
        let _ = serde_json::to_writer(&mut *self.out, value);
    }

    fn append_number(&mut self, prefix: &str, value: Option<u64>) {
        let Some(value) = value else { return self.append_nothing(prefix) };
        self.append_field_name(prefix);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn append_nothing(&mut self, prefix: &str) {
        if self.is_json {
            self.append_field_name(prefix);
            self.out.extend_from_slice(b"null");
        }
    }
}

/// Returns true if a text needs no escapes in a JSON string, and no quotes in logfmt. The function
/// never stops at the first special byte, so that the compiler can test many bytes at once.
fn is_plain(text: &str) -> bool {
    let is_special =
        |byte: u8| !byte.is_ascii_graphic() | (byte == b'"') | (byte == b'=') | (byte == b'\\');
    text.bytes().fold(0, |found, byte| found | u8::from(is_special(byte))) == 0
}
