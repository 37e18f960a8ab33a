//! Reports settings and sections that riskgate does not know, each with what was probably meant.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use toml::de::DeValue;

use super::Config;
use super::counterparts::{
    NAMES_OF_CORS_ORIGINS, SECTION_NAMES, find_counterpart, find_in_section, hint_for_certificate,
    hint_for_middleware,
};
use super::description::{is_index, toml_list, toml_text, without_indexes};
use super::fault::SettingSpan;
use super::hints::find_nearest_name;
use super::judged_value::judge_value;
use super::raw_value::{RawValue, redact_urls_and_long_words};
use super::settings::Settings;
use super::variables::{ENV_PREFIX, variable_name};
use crate::model::origin::OriginPattern;

/// Sections of which a config may have several.
pub(super) const TABLE_ARRAYS: [&str; 5] =
    ["admin.token", "listen.certificate", "rule", "table.feed", "upstream.route"];

/// The end of the hint for an inner section without an entry around it.
const ABOVE_INNER_SECTION: &str =
    " above it, and below that prefix = \"/signup\" and methods = [\"GET\", \"POST\"]";

/// The hint for a section that is a route in another program.
const WRITE_ROUTE: &str = "write [[upstream.route]]";

/// The addresses in hints whose ports may be replaced.
const EXAMPLES_OF_ADDRESSES: [(&str, &str); 2] = [("0.0.0.0", "8080"), ("127.0.0.1", "9090")];

/// If a name names only a section, it stands for the first of these settings that the section has.
const MAIN_SETTINGS: [&str; 6] = ["http", "servers", "url", "token", "level", "path"];

impl Settings {
    /// Returns true if a section has no header of its own, but a section in it has, such as `[a.b]`
    /// for `a`.
    fn is_only_implied(&self, section: &str) -> bool {
        let Some(own) = self.section_spans.get(section) else { return false };
        let inner = format!("{section}.");
        let line = self.file_text.line_of(own.key.start);
        let starts_in_line = |span: &SettingSpan| line.contains(&span.key.start);
        self.section_spans.iter().any(|(key, span)| key.starts_with(&inner) && starts_in_line(span))
    }

    /// Returns true if a section has no header, because the file has an inline table or dotted
    /// names.
    fn is_without_header(&self, section: &str) -> bool {
        let own = self.section_spans.get(section);
        let first = || self.section_spans.get(&format!("{section}.0"));
        own.or_else(first).is_some_and(|span| {
            let line = self.file_text.line_of(span.key.start);
            self.file_text.text.get(line).is_some_and(|it| !it.trim_start().starts_with('['))
        })
    }

    /// Returns the hint for a setting or a section that a variable names.
    fn hint_of_environment(&self, key: &str) -> Option<String> {
        let prefix = format!("{key}.");
        let is_meant = |it: &&String| *it == key || it.starts_with(&prefix);
        let key = self.values.keys().find(is_meant)?;
        let is_of_environment = self.values[key].location.starts_with(ENV_PREFIX);
        let of_section = format!("{key}.");
        is_of_environment.then(|| match find_meant_setting(key) {
            Some(meant) => format!("did you mean {}?", variable_name(&meant)),
            None => match known_keys().iter().find(|it| it.starts_with(&of_section)) {
                Some(first) => format!(
                    "write a variable for each setting of the section, such as {}",
                    variable_name(&in_first_entry(first))
                ),
                None => "a setting has a variable such as RISKGATE__LISTEN__HTTP".to_owned(),
            },
        })
    }

    /// Returns the hint for a dotted name in a section, such as `log.level` below `[listen]`, whose
    /// first part is no section of it.
    fn hint_for_dotted_name(&self, section: &str) -> Option<String> {
        let (outer, inner) = section.rsplit_once('.')?;
        let prefix = format!("{section}.");
        let name = self.values.keys().find_map(|key| key.strip_prefix(&prefix))?;
        let meant = format!("{inner}.{name}");
        let outer = header(&without_indexes(outer));
        let is_dotted = self.is_without_header(section) && known_keys().contains(&meant);
        is_dotted.then(|| {
            let own = header(inner);
            format!(
                "below {outer}, it means {inner}.{name} of {outer}; write {name} = … below {own}"
            )
        })
    }

    /// Returns the hint for an entry with its name in the header, such as `[table.feed.castle]` or
    /// `[upstream.route."/signup"]`.
    fn hint_for_named_entry(&self, section: &str) -> Option<String> {
        let array = TABLE_ARRAYS.iter().find(|array| **array == section)?;
        let prefix = format!("{array}.");
        let mut inner = self.section_spans.keys().filter_map(|it| it.strip_prefix(&prefix));
        let names = names_in(array).collect::<BTreeSet<_>>();
        let is_section = |it: &str| has_settings(&format!("{array}.{it}"));
        let name =
            inner.find(|it| !is_section(it) && !it.split('.').next().is_some_and(is_index))?;
        // An array of entries has their indexes behind the name.
        let name = name.rsplit_once('.').filter(|it| is_index(it.1)).map_or(name, |it| it.0);
        let key = ["prefix", "name"].into_iter().find(|it| names.contains(it));
        let below = key.map(|key| format!(", and below it {key} = {}", toml_text(name)));
        Some(format!("write {}{}", header(array), below.unwrap_or_default()))
    }

    /// Returns the hint for a setting whose name is near to `near`: that name, and a value if the
    /// setting `near` does not take the present value.
    fn hint_for_near_name(&self, key: &str, near: &str) -> String {
        let present = key.rsplit_once('.').map(|(section, _)| format!("{section}.{near}"));
        if let Some(line) =
            present.and_then(|it| self.line_of(self.values.get(&it)?.span.as_ref()?))
        {
            return format!(
                "remove this line: {near} stands in line {line}; change it there if needed"
            );
        }
        let meant = without_indexes(key);
        let meant = meant.rsplit_once('.').map(|(section, _)| format!("{section}.{near}"));
        let raw = self.values.get(key).map(|setting| &setting.raw);
        let judged = meant.zip(raw).and_then(|(meant, raw)| judge_value(&meant, raw));
        match judged {
            None => format!("did you mean `{near}`?"),
            Some((expected, hint)) => {
                match hint.and_then(|it| it.strip_prefix("write ").map(str::to_owned)) {
                    Some(value) if DeValue::parse(&value).is_ok() => {
                        format!("did you mean `{near}`? Write {near} = {value}")
                    }
                    Some(words) => format!("did you mean `{near}`? There, write {words}"),
                    None => {
                        let expected = expected.split(", but found").next().unwrap_or_default();
                        format!(
                            "did you mean `{near}`? There, riskgate {}",
                            expected.replacen("expected", "expects", 1)
                        )
                    }
                }
            }
        }
    }

    /// Returns the hint to write the value of `key` as that of `setting`, if the latter takes it.
    fn hint_for_value_of(&self, key: &str, setting: &str) -> Option<String> {
        let raw = self.values.get(key).map(|it| &it.raw).filter(|it| it.is_free_of_secrets())?;
        let meant =
            without_indexes(key).rsplit_once('.').map(|it| format!("{}.{setting}", it.0))?;
        let is_taken = judge_value(&meant, raw).is_none();
        is_taken.then(|| format!("write {setting} = {}", raw.to_redacted_string()))
    }

    /// Returns the hint for a section that riskgate does not know.
    fn hint_for_unknown_section(&self, section: &str) -> String {
        let name = without_indexes(section);
        let named = self.hint_for_named_entry(section);
        let named = named.or_else(|| self.hint_for_setting_as_section(section));
        let named = named.or_else(|| self.hint_for_foreign_entries(section));
        let hint = match (self.is_only_implied(section), self.is_without_header(section)) {
            _ if named.is_some() => named.unwrap_or_default(),
            (true, _) if header_of_known(&name).is_some() => {
                format!("write {}{ABOVE_INNER_SECTION}", header(&name))
            }
            (false, true) if known_keys().contains(&name) => {
                let last = name.rsplit('.').next().unwrap_or_default();
                match judge_value(&name, &RawValue::Boolean(false)) {
                    Some((expected, _)) => {
                        let expected = expected.split(", but found").next().unwrap_or_default();
                        format!("write texts without braces: {expected}")
                    }
                    None => format!("write {last} = true or {last} = false, without braces"),
                }
            }
            _ if self.section_spans.contains_key(&format!("{section}.1"))
                && has_settings(&name) =>
            {
                let servers =
                    if name == "upstream" { ": servers = [\"10.0.0.7:9000\"]" } else { "" };
                format!("write one {}, with all its settings in it{servers}", header(&name))
            }
            _ => self.hint_for_foreign_section(section),
        };
        let hint = self.fill_in_files(&self.fill_in_servers(&hint, section), section);
        let hint = self.fill_in_value(&fill_in_port(&hint, self.find_port_below(section)), section);
        let hint = self.fit_to_file(&self.fill_in_prefix(&hint, &name), &name, "section");
        let of_variable = self.hint_of_environment(section);
        let dotted = || self.hint_for_dotted_name(section);
        of_variable.or_else(dotted).unwrap_or(hint)
    }

    /// Returns the hint for a section of another program: for what its name stands for, or else
    /// what an inner section stands for, such as `routers` in `[http.routers.signup]`.
    fn hint_for_foreign_section(&self, section: &str) -> String {
        let of_name = |word: &str| find_in_section(SECTION_NAMES, word);
        let prefix = format!("{section}.");
        let mut inner = self.section_spans.keys().filter_map(|it| it.strip_prefix(&prefix));
        if self.is_only_implied(section) && (section == "http" || of_name(section).is_none()) {
            let words = inner.clone().flat_map(|it| it.split('.'));
            let found = words.filter_map(|it| of_name(it).or_else(|| find_counterpart("", it)));
            let hints: Vec<&String> = found.map(|it| &it.hint).collect();
            // The last name of a middleware says what it does.
            let is_other = |hint: &&&String| **hint != hint_for_middleware();
            if let Some(hint) = hints.iter().find(is_other).or(hints.first()) {
                return (*hint).clone();
            }
        }
        let own: Vec<&str> = self.values_below(section).map(|(name, _)| name).collect();
        let hint = hint_for_section(section, &own);
        let of_route = inner.find(|it| header_of_known(&format!("upstream.route.{it}")).is_some());
        match of_route.filter(|_| hint == WRITE_ROUTE) {
            Some(inner) => format!("write [upstream.route.{inner}]"),
            None => hint,
        }
    }

    /// Returns the hint for an array with the name of a section whose entries are something else:
    /// keys, or plans with their names.
    fn hint_for_foreign_entries(&self, section: &str) -> Option<String> {
        self.section_spans.get(&format!("{section}.0"))?;
        let entries = self.list_table_array_keys(section);
        let plan = |entry: &String| {
            let name = self.values.get(&format!("{entry}.name"))?.raw.as_text()?;
            let limit = self.values_below(entry).find_map(|(_, raw)| raw.as_integer())?;
            shown_entry(name).map(|_| format!("{name} = {limit}"))
        };
        let is_of_keys = |name: &str| known_keys().contains(&format!("keys.{name}"));
        let mut names = entries.iter().flat_map(|it| self.values_below(it)).map(|it| it.0);
        match section {
            "plans" => {
                let plans: Vec<String> = entries.iter().map(plan).collect::<Option<_>>()?;
                Some(format!("write {} below [plans]", plans.join(" and ")))
            }
            "keys" if names.next().is_some_and(|it| !is_of_keys(it)) => {
                Some(find_in_section(SECTION_NAMES, "key")?.hint.clone())
            }
            _ => None,
        }
    }

    /// Returns the port that a setting below an unknown section names.
    fn find_port_below(&self, section: &str) -> Option<u16> {
        let is_address = |name: &str| {
            let last = name.rsplit('.').next().unwrap_or_default();
            find_nearest_name(last, ["http"].into_iter()).is_some()
        };
        self.values_below(section).filter(|it| is_address(it.0)).find_map(|it| port_of(it.1))
    }

    /// Replaces the value in a hint `write NAME = VALUE below [SECTION]` by that of a setting with
    /// a near name in an unknown section.
    fn fill_in_value(&self, hint: &str, section: &str) -> String {
        let filled = || {
            let (before, setting) = hint.split_once("write ")?;
            let (name, rest) = setting.split_once(" = ")?;
            let below = rest.split_once("below [")?.1.split_once(']')?.0;
            let end = match rest.strip_prefix('"') {
                Some(text) => text.find('"')? + 2,
                None => rest.find([' ', ','])?,
            };
            let key = format!("{below}.{name}");
            let is_meant = |it: &(&str, &RawValue)| {
                find_nearest_name(it.0, [name].into_iter()).is_some()
                    && judge_value(&key, it.1).is_none()
            };
            let value = self.values_below(section).find(is_meant)?.1;
            Some(format!("{before}write {name} = {}{}", shown_value(value)?, &rest[end..]))
        };
        filled().unwrap_or_else(|| hint.to_owned())
    }

    /// Adds to the hint to write a route the path that an unknown section names, perhaps within a
    /// rule such as ``PathPrefix(`/signup`)``.
    fn fill_in_prefix(&self, hint: &str, section: &str) -> String {
        let has_prefix = self.values_below(section).any(|it| it.0.ends_with("prefix"));
        if hint != WRITE_ROUTE || has_prefix || header_of_known(section).is_some() {
            return hint.to_owned();
        }
        let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
        // Other settings, such as a token, may be secret.
        let names_path = |name: &str| {
            ["path", "rule", "match", "location", "url", "uri"].iter().any(|it| name.contains(it))
        };
        let of_paths = self
            .values_below(section)
            .filter(|(name, raw)| names_path(name) && raw.is_free_of_secrets());
        let texts = of_paths.filter_map(|(_, raw)| raw.as_text());
        let mut paths = texts.flat_map(|it| it.split(|c| !is_of_path(c)));
        let is_meant = |it: &&str| {
            let raw = RawValue::Text((*it).to_owned());
            it.starts_with('/') && judge_value("upstream.route.prefix", &raw).is_none()
        };
        let path = paths.find(is_meant).unwrap_or("/signup");
        format!("{hint}, and below it prefix = {}", toml_text(&redact_urls_and_long_words(path)))
    }

    /// The number of the line of a setting or a section.
    fn line_of(&self, span: &SettingSpan) -> Option<String> {
        self.file_text.file_and_line(span.key.start).rsplit(':').next().map(str::to_owned)
    }

    /// Fits a hint to what the file has: nobody writes a section or a setting twice. `own` is the
    /// section with the fault, and `part` is what has to go: a `section` or a `line`.
    fn fit_to_file(&self, hint: &str, own: &str, part: &str) -> String {
        let inner = hint.strip_prefix("write [upstream.route.").is_some_and(|it| it.ends_with(']'));
        if inner && self.list_table_array_keys("upstream.route").is_empty() {
            let section = hint.trim_start_matches("write ");
            return format!(
                "write [[upstream.route]], prefix = \"/signup\" and methods = [\"GET\", \"POST\"], \
                 and below them {section}"
            );
        }
        let header_line = |section: &str| {
            let span = self.section_spans.get(section).filter(|_| section != own)?;
            let has_header = !self.is_only_implied(section) && !self.is_without_header(section);
            self.line_of(span).filter(|_| has_header)
        };
        let setting_line = |key: &str| self.line_of(self.values.get(key)?.span.as_ref()?);
        let whole = hint.strip_prefix("did you mean ").and_then(|it| it.strip_suffix('?'));
        let whole = whole.or_else(|| hint.strip_prefix("write "));
        let whole = whole.and_then(|it| it.strip_prefix('[')?.strip_suffix(']'));
        if let Some((section, line)) = whole.and_then(|it| Some((it, header_line(it)?))) {
            return format!("write its settings below [{section}], in line {line}");
        }
        let fitted = || {
            let (before, rest) = hint.split_once("write ")?;
            let (section, setting, is_told) = match rest.trim_start_matches("a section, ") {
                rest if rest.starts_with('[') => {
                    let (section, rest) = rest[1..].split_once(']')?;
                    let setting =
                        rest.strip_prefix(", and below it ").or(rest.strip_prefix(" and "))?;
                    (section, setting, false)
                }
                rest => (rest.split_once("below [")?.1.split_once(']')?.0, rest, true),
            };
            let (name, _) = setting.split_once(" = ")?;
            if let Some(line) = setting_line(&format!("{section}.{name}")) {
                return Some(format!(
                    "{before}remove this {part}: {name} stands in line {line}, below [{section}]; \
                     change it there if needed"
                ));
            }
            let line = header_line(section).filter(|_| !is_told)?;
            let (setting, reason) = setting.split_once(": ").unwrap_or((setting, ""));
            let gap = if reason.is_empty() { "" } else { ": " };
            Some(format!("{before}write {setting} below [{section}], in line {line}{gap}{reason}"))
        };
        fitted().unwrap_or_else(|| hint.to_owned())
    }

    /// Returns a hint for a setting whose name is near to none of its section.
    fn hint_for_setting(&self, key: &str) -> Option<String> {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let section = without_indexes(section);
        let raw = self.values.get(key).map(|setting| &setting.raw);
        let takes = |meant: &str| raw.is_none_or(|raw| judge_value(meant, raw).is_none());
        if section.is_empty()
            && name == "port"
            && let Some(port) = raw.and_then(port_of)
        {
            return Some(format!("write [listen], and below it http = \"127.0.0.1:{port}\""));
        }
        if section == "upstream.route.cors"
            && let Some(hint) = self.hint_for_origins_of_cors(key, name)
        {
            return Some(hint);
        }
        // The address of a part of riskgate is in [listen], such as listen.admin.
        let is_address = find_nearest_name(name, ["http"].into_iter()).is_some();
        if is_address && known_keys().contains(&format!("listen.{section}")) {
            return Some(format!("write {section} = \"ADDRESS:PORT\" below [listen]"));
        }
        let whole = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
        if has_settings(&whole) {
            return Some(hint_for_name_of_section(&whole, raw));
        }
        if let Some(counterpart) = find_in_section(&section, name) {
            return Some(counterpart.hint.clone());
        }
        if let Some(meant) = find_meant_setting_of_variable(name).filter(|_| section.is_empty()) {
            return Some(format!("write {meant}"));
        }
        if let Some(hint) = hint_for_near_section(&section, name) {
            return Some(hint);
        }
        // Other servers have one setting for what riskgate has several for, such as `timeout`.
        let ending = format!("_{name}");
        let several = names_in(&section).filter(|it| it.ends_with(&ending));
        let several: Vec<&str> = several.filter(|it| takes(&format!("{section}.{it}"))).collect();
        if several.len() > 1 {
            return Some(format!("write {}", several.join(" or ")));
        }
        let entry = || shown_entry(raw?.as_text_or_list()?.first()?);
        let with_entry = |section: &str| match (section, entry()) {
            ("table.feed", Some(name)) => {
                format!("{}, and below it name = {name}", header(section))
            }
            _ => header(section),
        };
        if let Some(inner) = find_nearest_section_in(&section, name) {
            return Some(format!("write a section, {}", with_entry(&inner)));
        }
        if let Some(counterpart) = find_counterpart(&section, name) {
            return Some(counterpart.hint.clone());
        }
        if let Some(hint) = hint_for_other_section(&section, name) {
            return Some(hint);
        }
        let names: Vec<&str> = names_in(&section).collect();
        match names.is_empty() {
            true => Some(match find_nearest_last_name(name) {
                Some(other) => format!("write a section, {}", with_entry(&other)),
                None => "write it below a section such as [listen]".to_owned(),
            }),
            false => Some(format!("{} has {}", header(&section), names.join(", "))),
        }
    }

    /// Returns the hint for the origins of a route without a key, written below its `cors`.
    fn hint_for_origins_of_cors(&self, key: &str, name: &str) -> Option<String> {
        let entry = key.strip_suffix(name)?.strip_suffix(".cors.")?;
        let needs_key = self.values.get(&format!("{entry}.key"));
        let needs_key = needs_key.is_none_or(|it| !matches!(it.raw, RawValue::Boolean(false)));
        if needs_key || !NAMES_OF_CORS_ORIGINS.contains(&name) {
            return None;
        }
        if self.values.contains_key(&format!("{entry}.origins")) {
            return Some("remove this line: origins say so".to_owned());
        }
        let raw = &self.values.get(key)?.raw;
        let is_origin = |text: &String| OriginPattern::parse(text).is_ok();
        let is_taken = raw.as_text_list().is_some_and(|all| all.iter().all(is_origin));
        let shown = shown_value(raw).filter(|_| is_taken);
        let shown = shown.unwrap_or_else(|| "[\"https://app.example.com\"]".to_owned());
        Some(format!("write origins = {shown} below [[upstream.route]], above its cors"))
    }

    /// Returns the hint for a section with the name of a setting, such as `[listen.hsts]`: the
    /// setting, with a value of the section.
    fn hint_for_setting_as_section(&self, section: &str) -> Option<String> {
        if section == "upstream.servers" {
            let hint = "write [upstream], and below it servers = […]";
            let filled = self.fill_in_servers(hint, section);
            return Some(filled).filter(|it| it != hint);
        }
        let (outer, name) = section.rsplit_once('.').filter(|_| known_keys().contains(section))?;
        let values = self.values_below(section).filter(|it| matches!(it.1, RawValue::Integer(_)));
        let value = values.map(|(_, raw)| raw).find_map(|raw| match judge_value(section, raw) {
            None => shown_value(raw),
            Some((_, hint)) => hint?.strip_prefix("write ").map(str::to_owned),
        });
        Some(format!("write {name} = {} below {}", value?, header(outer)))
    }

    /// Returns the values below a section, each with its name there.
    fn values_below(&self, section: &str) -> impl Iterator<Item = (&str, &RawValue)> {
        let prefix = format!("{section}.");
        self.values
            .iter()
            .filter_map(move |(key, setting)| Some((key.strip_prefix(&prefix)?, &setting.raw)))
    }

    /// Replaces the servers in a hint by those that the file has below an unknown section.
    fn fill_in_servers(&self, hint: &str, section: &str) -> String {
        let texts = self.values_below(section).filter_map(|(_, raw)| raw.as_text_or_list());
        let is_server = |text: &String| {
            let list = RawValue::List(vec![RawValue::Text(text.clone())]);
            let is_plain = list.is_free_of_secrets() && text.contains([':', '_']);
            is_plain && judge_value("upstream.servers", &list).is_none()
        };
        let Some((start, rest)) = hint.split_once("servers = [") else { return hint.to_owned() };
        let servers: Vec<String> = texts.flatten().filter(is_server).collect();
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        match rest.split_once(']') {
            Some((_, end)) if !servers.is_empty() => {
                format!("{start}servers = {}{end}", toml_list(&servers))
            }
            _ => hint.to_owned(),
        }
    }

    /// Replaces the `…` in a hint by the files of a certificate that unknown settings of a section
    /// name.
    fn fill_in_files(&self, hint: &str, section: &str) -> String {
        let is_read =
            |name: &str| self.descriptions.iter().any(|it| it.key == format!("{section}.{name}"));
        let file = |example: &str| {
            let unread = self.values_below(section).filter(|(name, _)| !is_read(name));
            let mut values = unread.filter(|(name, _)| is_example_of(example, name));
            values.find_map(|(_, raw)| {
                let is_path = raw.as_text().is_some_and(|it| it.contains(['/', '.']));
                shown_value(raw).filter(|_| is_path)
            })
        };
        if !hint.contains(hint_for_certificate()) {
            return hint.to_owned();
        }
        let mut filled = hint.replace(", with the paths of PEM files", "");
        for example in ["chain", "key"] {
            if let Some(file) = file(example) {
                let example = format!("{example} = ");
                filled = filled.replace(&format!("{example}\"…\""), &format!("{example}{file}"));
            }
        }
        if filled.contains('…') { hint.to_owned() } else { filled }
    }

    /// Leaves out the faults of missing sections that a hint says to write.
    fn drop_faults_that_a_hint_mends(&mut self, hint: &str) {
        let is_mended = |key: &str| hint.contains(&header(key));
        self.faults.retain(|fault| !fault.missing_key().is_some_and(is_mended));
    }

    /// Reports each setting and section that the program never read. Of an unknown section, only
    /// the section is reported.
    pub fn report_unknown_keys(&mut self) {
        let read: BTreeSet<&str> = self.descriptions.iter().map(|it| it.key.as_str()).collect();
        let is_known_section = |section: &str| {
            let prefix = format!("{section}.");
            section.is_empty()
                || read.range(prefix.as_str()..).next().is_some_and(|key| key.starts_with(&prefix))
        };
        let is_unknown = |key: &&String| !read.contains(key.as_str());
        let (mut sections, mut settings) = (BTreeSet::new(), Vec::new());
        for key in self.values.keys().filter(is_unknown) {
            let section = key.rsplit_once('.').map_or("", |(section, _)| section);
            match is_known_section(section) {
                true => settings.push(key.clone()),
                false => drop(sections.insert(find_topmost_unknown(section, is_known_section))),
            }
        }
        for section in self.section_spans.keys().filter(|it| !is_known_section(it)) {
            sections.insert(find_topmost_unknown(section, is_known_section));
        }
        if sections.is_empty() && settings.is_empty() {
            return;
        }
        for section in sections {
            self.report_unknown_section(&section);
        }
        self.report_unknown_settings(settings);
    }

    fn report_unknown_section(&mut self, section: &str) {
        let hint = self.hint_for_unknown_section(section);
        // The fault of the section tells why its settings are missing.
        self.faults.retain(|fault| !fault.is_about_missing(section));
        let name = without_indexes(section);
        let problem = match header_of_known(&name) {
            Some(header) if hint == format!("write {header}") => {
                format!("expected the brackets of {header}, but found others")
            }
            _ if known_keys().contains(&name) => {
                "expected a setting, but found a section or braces".to_owned()
            }
            Some(header) if hint.ends_with(ABOVE_INNER_SECTION) => {
                format!("expected {header} above its inner sections, but found none")
            }
            Some(header) => format!("expected {header}, but found something else of this name"),
            _ => "expected a known section, but found an unknown one".to_owned(),
        };
        self.drop_faults_that_a_hint_mends(&hint);
        self.report_at_section(section, &problem, Some(hint));
    }

    fn report_unknown_settings(&mut self, settings: Vec<String>) {
        let mut told = BTreeSet::new();
        for key in settings {
            let (section, name) = key.rsplit_once('.').unwrap_or(("", &key));
            let is_section = has_settings(&without_indexes(&key));
            let near = find_nearest_name(name, names_in(&without_indexes(section)));
            let counterpart = find_in_section(&without_indexes(section), name);
            let is_elsewhere = |near: &&str| *near != name && counterpart.is_some();
            let near = near.filter(|near| !is_section && !is_elsewhere(near));
            let flat = find_flat(name).filter(|_| near.is_none());
            let of_counterpart = counterpart.map(|it| it.setting).filter(|it| !it.is_empty());
            let in_section = near.or(of_counterpart);
            let meant = in_section.map(|it| format!("{section}.{it}"));
            if let Some(meant) = meant.or(flat.map(str::to_owned)) {
                self.faults.retain(|fault| !fault.is_about_missing(&meant));
            }
            let hint = self.hint_of_environment(&key).or_else(|| match near {
                Some(near) => Some(self.hint_for_near_name(&key, near)),
                None => of_counterpart
                    .and_then(|setting| self.hint_for_value_of(&key, setting))
                    .or_else(|| {
                        Some(format!(
                            "write {}",
                            find_meant_setting_of_variable(flat.map(|_| name)?)?
                        ))
                    })
                    .or_else(|| self.hint_for_setting(&key)),
            });
            let port = self.values.get(&key).and_then(|setting| port_of(&setting.raw));
            let hint = hint.map(|hint| fill_in_port(&self.fill_in_files(&hint, section), port));
            let hint = hint.map(|hint| self.fit_to_file(&hint, section, "line"));
            self.drop_faults_that_a_hint_mends(hint.as_deref().unwrap_or_default());
            // Two settings may be parts of one section that is missing.
            let names_section = hint.as_ref().is_some_and(|it| it.starts_with("write [["));
            if names_section && !told.insert((section.to_owned(), hint.clone())) {
                continue;
            }
            self.report_at_key(&key, "expected a known setting, but found an unknown one", hint);
        }
    }

    /// Sorts the faults by their lines. Those without a line come last.
    pub(super) fn sort_faults(&mut self) {
        self.faults.sort_by_key(|fault| fault.line_number().unwrap_or(usize::MAX));
    }
}

/// Whether an example in a hint is of this setting, judged by the name of an unknown setting.
fn is_example_of(example: &str, name: &str) -> bool {
    let is_key = name.contains("key");
    match example {
        "chain" => !is_key && ["cert", "chain", "crt", "pem"].iter().any(|it| name.contains(it)),
        _ => is_key,
    }
}

/// Returns the names of the settings in a section.
fn names_in(section: &str) -> impl Iterator<Item = &'static str> {
    known_names().filter_map(move |(of, name)| (of == section).then_some(name))
}

/// Returns the hint for a setting with the name of a section: a setting of this name in another
/// section, if it takes the value, or else the section with its main setting.
fn hint_for_name_of_section(whole: &str, raw: Option<&RawValue>) -> String {
    let (section, name) = whole.rsplit_once('.').unwrap_or(("", whole));
    let takes = |meant: &str| raw.is_some_and(|raw| judge_value(meant, raw).is_none());
    let mut others = known_names().filter(|(of, own)| *of != section && *own == name);
    if let Some((of, _)) = others.find(|(of, own)| takes(&format!("{of}.{own}"))) {
        return format!("write it below {}", header(of));
    }
    let own = header(whole);
    let mut mains = MAIN_SETTINGS.iter().map(|main| (main, format!("{whole}.{main}")));
    let main = mains.find(|(_, main)| known_keys().contains(main) && takes(main));
    if let Some(((main, _), shown)) = main.zip(raw.and_then(shown_value)) {
        return format!("write a section, {own}, and below it {main} = {shown}");
    }
    let inner: Vec<String> = names_in(whole).map(|it| format!("{it} = …")).collect();
    match inner.len() {
        1..=3 => format!("write a section, {own}, and below it {}", inner.join(" and ")),
        _ => format!("write a section, {own}"),
    }
}

/// Returns the hint for a name that is the name of a setting in a section around this one or in it.
/// For a name outside of all sections, these are all sections.
fn hint_for_near_section(section: &str, name: &str) -> Option<String> {
    let is_near =
        |only: &str| section.is_empty() || only.starts_with(section) || section.starts_with(only);
    let elsewhere = known_keys().iter().filter_map(|it| it.strip_suffix(name)?.strip_suffix('.'));
    let elsewhere: Vec<&str> = elsewhere.filter(|it| is_near(it)).collect();
    let (inner, outer): (Vec<&str>, Vec<&str>) =
        elsewhere.iter().partition(|it| it.len() > section.len());
    match (&inner[..], outer.iter().max_by_key(|it| it.len())) {
        ([only], None) => Some(format!("write it below {}", header(only))),
        ([], Some(nearest)) => {
            Some(format!("write it below {}, above {}", header(nearest), header(section)))
        }
        ([_, _] | [_, _, _], None) => {
            let headers: Vec<String> = inner.iter().map(|it| header(it)).collect();
            Some(format!("write it below {}", headers.join(" or ")))
        }
        _ => None,
    }
}

/// Returns the hint for a name that is the name of a setting in other sections. `None` if none or
/// many sections have it.
pub(super) fn hint_for_other_section(section: &str, name: &str) -> Option<String> {
    const MOST_SECTIONS: usize = 3;
    let others = known_names().filter(|(of, own)| *own == name && *of != section);
    let headers: Vec<String> = others.map(|(of, _)| header(of)).collect();
    let is_few = (1..=MOST_SECTIONS).contains(&headers.len());
    is_few.then(|| format!("write it below {}", headers.join(" or ")))
}

/// Returns the section in `section` whose name is near to `name`.
fn find_nearest_section_in(section: &str, name: &str) -> Option<String> {
    let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
    let inner = known_keys().iter().filter_map(|key| {
        let (of, _) = key.strip_prefix(&prefix)?.split_once('.')?;
        Some(of)
    });
    find_nearest_name(name, inner).map(|near| format!("{prefix}{near}"))
}

/// Returns the outermost unknown section of a section's name.
fn find_topmost_unknown(section: &str, is_known: impl Fn(&str) -> bool) -> String {
    let ends = section.match_indices('.').map(|(at, _)| at).chain([section.len()]);
    let mut parts = ends.map(|end| &section[..end]);
    let unknown = parts.find(|part| !is_known(part)).unwrap_or(section);
    // An entry of an array has the name of the array.
    let array = unknown.rsplit_once('.').filter(|(_, last)| is_index(last));
    array.map_or(unknown, |(array, _)| array).to_owned()
}

/// Returns the hint for an unknown section, which has these settings.
fn hint_for_section(section: &str, own: &[&str]) -> String {
    let name = without_indexes(section);
    if let Some(counterpart) = find_in_section(SECTION_NAMES, &name) {
        return counterpart.hint.clone();
    }
    let sections = known_sections();
    // A section of this name is known, so only its brackets are wrong.
    if sections.contains(name.as_str()) {
        return format!("write {}", header(&name));
    }
    let (parent, last) = name.rsplit_once('.').unwrap_or(("", &name));
    if known_keys().contains(&name) {
        return format!("write {last} = … below {}", header(parent));
    }
    let beside = sections.iter().filter_map(|it| match it.rsplit_once('.') {
        Some((of, name)) => (of == parent).then_some(name),
        None => parent.is_empty().then_some(*it),
    });
    if let Some(near) = find_nearest_name(last, beside) {
        let near = if parent.is_empty() { near.to_owned() } else { format!("{parent}.{near}") };
        let is_in = |name: &&str| find_nearest_name(name, names_in(&near)).is_some();
        // The settings tell what a name was meant for that other programs have for something else.
        let is_near = own.is_empty() || own.iter().any(is_in);
        let other = section_with(own, &sections).map(|it| format!("write {}", header(it)));
        let other = other.or_else(|| Some(find_counterpart(parent, last)?.hint.clone()));
        let other = other.filter(|_| !is_near);
        return other.unwrap_or_else(|| format!("did you mean {}?", header(&near)));
    }
    if let Some(counterpart) = find_counterpart(parent, last) {
        return counterpart.hint.clone();
    }
    // The name of the outer section may be missing, or one may be written that is not needed.
    match find_nearest_last_name(last) {
        Some(elsewhere) if elsewhere == "listen.certificate" => hint_for_certificate().to_owned(),
        Some(elsewhere) => format!("write {}", header(&elsewhere)),
        None if parent == "table" => {
            format!("write [[table.feed]], and below it name = {}", toml_text(last))
        }
        None => {
            let top: BTreeSet<&str> =
                sections.iter().filter_map(|it| it.split('.').next()).collect();
            let top: Vec<&str> = top.into_iter().collect();
            format!("the sections are {}", top.join(", "))
        }
    }
}

/// Returns the only section that has all these settings.
fn section_with<'s>(names: &[&str], sections: &BTreeSet<&'s str>) -> Option<&'s str> {
    let has = |section: &str| {
        names.iter().all(|name| known_keys().contains(&format!("{section}.{name}")))
    };
    let mut with = sections.iter().filter(|it| has(it));
    with.next().copied().filter(|_| with.next().is_none())
}

/// Replaces the port of the example in a hint by the one that a person wrote.
fn fill_in_port(hint: &str, port: Option<u16>) -> String {
    let Some(port) = port else { return hint.to_owned() };
    let is_example = |(address, own): &&(&str, &str)| hint.contains(&format!("{address}:{own}\""));
    match EXAMPLES_OF_ADDRESSES.iter().find(is_example) {
        Some((address, own)) => {
            hint.replace(&format!("{address}:{own}"), &format!("{address}:{port}"))
        }
        None => hint.to_owned(),
    }
}

/// Returns the section whose last name is near to `name`.
fn find_nearest_last_name(name: &str) -> Option<String> {
    let sections = known_sections();
    let last_name = |section: &str| section.rsplit('.').next().unwrap_or_default().to_owned();
    let last_names: Vec<String> = sections.iter().map(|it| last_name(it)).collect();
    let near = find_nearest_name(name, last_names.iter().map(String::as_str))?;
    sections.iter().find(|it| last_name(it) == near).map(|it| (*it).to_owned())
}

/// Returns the port that a value names.
fn port_of(raw: &RawValue) -> Option<u16> {
    match raw {
        RawValue::Integer(number) => u16::try_from(*number).ok(),
        raw => raw.as_text()?.rsplit(':').next()?.parse().ok(),
    }
}

/// Returns a value in TOML; `None` if a part of it may be secret.
fn shown_value(raw: &RawValue) -> Option<String> {
    raw.is_free_of_secrets().then(|| raw.to_redacted_string())
}

/// Returns a text in TOML that may be the name of an entry.
fn shown_entry(text: &str) -> Option<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (!text.is_empty() && text.chars().all(is_name)).then(|| toml_text(text))
}

/// Returns the header of a section, as a config file has it.
fn header(section: &str) -> String {
    match TABLE_ARRAYS.contains(&section) {
        true => format!("[[{section}]]"),
        false => format!("[{section}]"),
    }
}

/// Returns the key of a setting in the first entry of its array, such as `rule.0.if` for `rule.if`.
fn in_first_entry(key: &str) -> String {
    let of_array = TABLE_ARRAYS.iter().find_map(|array| Some((array, key.strip_prefix(*array)?)));
    match of_array.filter(|(_, rest)| rest.starts_with('.')) {
        Some((array, rest)) => format!("{array}.0{rest}"),
        None => key.to_owned(),
    }
}

/// Whether a setting is in a section of which a config may have several.
fn is_in_array(key: &str) -> bool {
    TABLE_ARRAYS.iter().any(|array| key.strip_prefix(array).is_some_and(|it| it.starts_with('.')))
}

/// Returns the header of a section, as a config file has it; `None` if riskgate does not know the
/// section.
pub(super) fn header_of_known(section: &str) -> Option<String> {
    has_settings(section).then(|| header(section))
}

/// Whether riskgate knows a section of this name.
fn has_settings(section: &str) -> bool {
    let is_in = |key: &String| key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'));
    known_keys().iter().any(is_in)
}

/// Returns the section and the name of every setting.
fn known_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    known_keys().iter().filter_map(|key| key.rsplit_once('.'))
}

/// Returns every section that has settings of its own.
fn known_sections() -> BTreeSet<&'static str> {
    known_names().map(|(section, _)| section).collect()
}

/// Returns the setting whose section and name are `name`, with a `_` between them.
fn find_flat(name: &str) -> Option<&'static str> {
    let is_flat = |key: &&String| !is_in_array(key) && key.replace('.', "_") == name;
    known_keys().iter().find(is_flat).map(String::as_str)
}

/// Returns every setting that a config may have, without the indexes of entries.
pub(super) fn known_keys() -> &'static BTreeSet<String> {
    static KNOWN_KEYS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let mut settings = Settings::of_each_section();
        Config::from_settings(None, &mut settings);
        settings.descriptions.iter().map(|it| without_indexes(&it.key)).collect()
    });
    &KNOWN_KEYS
}

/// Returns the setting that an environment variable was meant for, with its section. For
/// `LISTEN_HTTP` and for `RISKGATE__LISTEN__HTTP`, returns the text `http = … below [listen]`.
pub(super) fn find_meant_setting_of_variable(name: &str) -> Option<String> {
    let words = name.to_ascii_lowercase();
    let words = words.strip_prefix("riskgate_").unwrap_or(&words).trim_matches('_');
    let meant = find_meant_setting(words).filter(|_| words.contains('_'))?;
    let (section, name) = meant.rsplit_once('.')?;
    Some(format!("{name} = … below {}", header(section)))
}

/// Returns the setting that words with a `_` between them stand for, such as `store.url` for
/// `store_url`.
pub(super) fn find_meant_setting(words: &str) -> Option<String> {
    let in_array = find_meant_in_array(words);
    if in_array.is_some() {
        return in_array;
    }
    let words = words.replace('.', "_").replace("__", "_");
    let known: Vec<&str> =
        known_keys().iter().map(String::as_str).filter(|it| !is_in_array(it)).collect();
    if let Some(exact) = known.iter().find(|key| key.replace('.', "_") == words) {
        return Some((*exact).to_owned());
    }
    let sections: BTreeSet<&str> =
        known.iter().filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
    let in_section = |section: &str, name: &str| {
        let names = known.iter().filter_map(|key| key.strip_prefix(section)?.strip_prefix('.'));
        find_nearest_name(name, names).map(|near| format!("{section}.{near}"))
    };
    let (first, rest) = words.split_once('_').unwrap_or((&words, ""));
    let section = find_nearest_name(first, sections.iter().copied());
    if let Some(section) = section.filter(|_| !rest.is_empty())
        && let Some(meant) = in_section(section, rest)
    {
        return Some(meant);
    }
    let mut named = known.iter().filter(|key| key.rsplit('.').next() == Some(&words));
    if let (Some(only), None) = (named.next(), named.next()) {
        return Some((*only).to_owned());
    }
    let section = section.filter(|_| rest.is_empty())?;
    let mains = MAIN_SETTINGS.iter().map(|name| format!("{section}.{name}"));
    mains
        .into_iter()
        .find(|key| known.contains(&key.as_str()))
        .or_else(|| in_section("listen", first))
}

/// Returns the setting of an array that a key stands for, with its index or 0:
/// `upstream.route.0.key` for `upstream.routes.0.key`, for `route.0.key` and for `route.key`.
fn find_meant_in_array(key: &str) -> Option<String> {
    let parts: Vec<&str> = key.split('.').collect();
    let at = parts.iter().position(|it| is_index(it));
    let is_near = |(one, other): (&&str, &&str)| {
        one == other || at.is_some() && find_nearest_name(one, [*other].into_iter()).is_some()
    };
    known_keys().iter().find_map(|own| {
        let array = TABLE_ARRAYS
            .iter()
            .find(|it| own.strip_prefix(**it).is_some_and(|rest| rest.starts_with('.')))?;
        let rest: Vec<&str> = own[array.len() + 1..].split('.').collect();
        let outer_count = at.or_else(|| parts.len().checked_sub(rest.len()))?;
        let (outer, inner) = parts.split_at(outer_count);
        let (index, inner) = if at.is_some() { inner.split_first()? } else { (&"0", inner) };
        let last: Vec<&str> = array.split('.').rev().take(outer.len()).collect();
        let is_meant = !outer.is_empty()
            && last.len() == outer.len()
            && inner.len() == rest.len()
            && outer.iter().rev().zip(&last).all(is_near)
            && inner.iter().zip(&rest).all(is_near);
        is_meant.then(|| format!("{array}.{index}.{}", rest.join(".")))
    })
}
