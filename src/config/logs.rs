//! `[log]`: the access log and the process log.

use super::description::toml_list;
use super::settings::Settings;
use crate::observe::access_log::{
    AccessLogOptions, LineForm, LogField, LogFormat, LogRotation, LogTarget,
};
use crate::observe::process_log::{LogLevels, ProcessLogOptions};

impl Settings {
    /// Reads the target of the access log.
    pub fn read_log_target(&mut self) -> LogTarget {
        let path = self.read_path("log.path");
        let hint = "remove this line: without it, the access log goes to standard output";
        self.refuse_stream_as_file("log.path", hint);
        let max_bytes = self.read_optional_integer("log.max_bytes", 4_096..=1 << 50);
        let kept_files = self.read_integer("log.kept_files", 0..=1_000, 5) as u32;
        let rotation = max_bytes.map(|max_bytes| LogRotation { max_bytes, kept_files });
        LogTarget { path, rotation }
    }

    /// Reports `-`, `stdout` or `stderr` as the path of a file: other programs take these words for
    /// a standard stream.
    pub(super) fn refuse_stream_as_file(&mut self, key: &str, hint: &str) {
        let text = self.values.get(key).and_then(|setting| setting.raw.as_text());
        if let Some(found) = text.filter(|text| ["-", "stdout", "stderr"].contains(text)) {
            let problem = format!("expected a file, but found {found:?}");
            self.report_at_key(key, &problem, Some(hint.to_owned()));
        }
    }

    /// Reads whether requests are logged, and in which form.
    pub fn read_access_log_options(&mut self) -> AccessLogOptions {
        let is_enabled = self.read_boolean("log.access", true);
        let format = match self.read_choice("log.format", &["json", "logfmt"]) {
            "logfmt" => LogFormat::Logfmt,
            _ => LogFormat::Json,
        };
        let names = LogField::ALL.map(LogField::as_str);
        let expected = format!("a list of {}", names.join(", "));
        let fields = self.parse_list("log.fields", &expected, |names| {
            let fields: Option<Vec<LogField>> =
                names.iter().map(|name| LogField::parse(name)).collect();
            fields.filter(|fields| !fields.is_empty())
        });
        let defaults: Vec<&str> = LogField::DEFAULT.iter().map(|it| it.as_str()).collect();
        self.note_default(toml_list(&defaults));
        let fields = fields.unwrap_or_else(|| LogField::DEFAULT.to_vec());
        AccessLogOptions { is_enabled, form: LineForm { format, fields } }
    }

    /// Reads the levels and the form of the process log.
    pub fn read_process_log_options(&mut self) -> ProcessLogOptions {
        let is_json = self.read_choice("log.process_format", &["text", "json"]) == "json";
        let expected = "a level (off, error, warn, info, debug or trace), and levels of modules, such \
                        as \"info,riskgate::dns=error\"";
        let levels =
            self.parse_setting("log.level", expected, |raw| LogLevels::parse(raw.as_text()?));
        self.note_default("\"info\"".to_owned());
        ProcessLogOptions { levels: levels.unwrap_or_default(), is_json }
    }
}
