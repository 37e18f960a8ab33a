//! What to write in place of a faulty value or name.
//!
//! A hint for a value is a guess that the setting's own parser accepts, so a hint is never wrong by
//! the rules of the setting.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::description::{SettingKind, toml_duration, toml_list, toml_text};
use super::raw_value::{RawValue, parse_duration, redact_urls_and_long_words};
use super::text_kind::TextKind;
use crate::support::url_authority::split_authority;

/// Names and words of riskgate, each with those that people know from other servers.
const OTHER_NAMES: [(&str, &str); 69] = [
    ("http", "address bind host listen port"),
    ("url", "address host dsn path file type uri endpoint webhook_url"),
    ("h2c", "http2"),
    ("http/protobuf", "http otlp protobuf"),
    ("servers", "url backend backends"),
    ("upstream", "backend backends proxy"),
    ("listen", "server"),
    ("certificate", "tls ssl cert certs"),
    ("chain", "cert cert_file certificate"),
    ("key", "private_key auth require_key key_file"),
    ("log", "logging"),
    ("store", "database redis cache"),
    ("prefix", "path location path_prefix prefix_path uri paths"),
    ("path", "file dir directory filename"),
    ("methods", "method"),
    ("deadline", "timeout proxy_read_timeout read_timeout response_timeout request_timeout"),
    ("fields", "field"),
    ("block_score", "threshold min_score level"),
    ("then", "action verdict"),
    ("mode", "action block dry_run"),
    ("if", "when condition conditions match"),
    ("scope", "access permission role"),
    ("threads", "workers worker_processes nbthread"),
    ("max_per_client", "rate_limit ratelimit rate"),
    ("keys", "key_file api_keys"),
    ("tls_verify", "verify ssl_verify"),
    ("on_failure", "fail_open"),
    ("max_bytes", "max_size"),
    ("learn", "enabled"),
    ("traces", "tracing otel opentelemetry telemetry otlp"),
    ("resolvers", "nameservers"),
    ("origins", "allowed_origins allow_origins allow_origin"),
    ("header_timeout", "read_timeout request_timeout"),
    ("write_timeout", "send_timeout"),
    (
        "max_body_bytes",
        "client_max_body_size max_body_size body_limit max_request_body_size max_request_size",
    ),
    ("max_connections", "worker_connections maxconn max_conns"),
    ("access", "access_log"),
    ("health_path", "health_check healthcheck health_uri"),
    ("tls_name", "server_name sni"),
    ("tls_ca", "ca_file ca cafile"),
    ("host", "upstream_host host_header"),
    ("client_address", "real_ip_header"),
    ("trusted_proxies", "set_real_ip_from trusted_ips"),
    ("keep", "ttl"),
    ("interval", "refresh every schedule period"),
    ("level", "log_level verbosity"),
    ("grace", "grace_period shutdown_timeout"),
    ("keepalive_timeout", "idle_timeout"),
    ("review", "captcha challenge flag quarantine"),
    ("shadow", "monitor observe off log_only log report detect passive test"),
    ("block", "on active strict enforce deny reject refuse"),
    ("x-forwarded-for", "xff"),
    ("closed", "deny"),
    ("pass", "allow accept"),
    ("open", "allow"),
    ("table", "local"),
    ("warn", "warning"),
    ("debug", "verbose"),
    ("off", "silent"),
    ("client", "ip"),
    ("unlimited", "infinite"),
    ("write", "admin"),
    ("read", "readonly"),
    ("logfmt", "text plain"),
    ("text", "plain"),
    ("gateway", "502 504"),
    ("disposable", "temporary temp throwaway burner trash spam"),
    ("role_account", "role"),
    ("undeliverable", "invalid bounce no_mx"),
];

/// Returns the one of `known` that `name` is probably meant for; `None` if none is near enough.
pub fn find_nearest_name<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let folded = name.to_ascii_lowercase().replace('-', "_");
    let is_word = |rest: &str| rest.starts_with('_');
    let is_meant = |candidate| {
        let names_it = |others: &str| others.split(' ').any(|other| other == folded);
        folded == candidate
            || OTHER_NAMES.iter().any(|(own, others)| *own == candidate && names_it(others))
    };
    // Short names have fewer letters that may be wrong.
    let most_edits = (folded.len() / 3).clamp(1, 3);
    let known: Vec<&str> = known.collect();
    let mut nearest: Option<(usize, &str)> = None;
    for candidate in known.iter().copied() {
        let edits = match is_meant(candidate) {
            true => 0,
            false if is_other_form(&folded, candidate) => 1,
            // The shortest names are too near to each other.
            false if candidate.len() < 3 => continue,
            // The name lacks its last word.
            false if folded.len() > 3 && candidate.strip_prefix(&folded).is_some_and(is_word) => 1,
            false => strsim::damerau_levenshtein(&folded, candidate),
        };
        if edits <= most_edits && nearest.is_none_or(|(fewest, _)| edits < fewest) {
            nearest = Some((edits, candidate));
        }
    }
    nearest.map(|(_, candidate)| candidate).or_else(|| find_nearest_by_words(&folded, &known))
}

/// Whether the name is another form of a word: `blocking` of `block`, `annotated` of `annotate`.
fn is_other_form(name: &str, word: &str) -> bool {
    let endings = ["s", "d", "ed", "ing"].into_iter();
    let mut stems = endings.filter_map(|ending| name.strip_suffix(ending));
    word.len() > 3 && stems.any(|stem| stem == word || Some(stem) == word.strip_suffix('e'))
}

/// Returns the one of `known` from which `name` differs by a typing error: two letters at most are
/// wrong, missing, surplus or swapped. `None` if there is none. Unlike [`find_nearest_name`], this
/// takes no other word for the name, so a caller may show `name` even if other texts like it may be
/// secret.
pub fn find_mistyped_name<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let with_edits = known.map(|known| (strsim::damerau_levenshtein(name, known), known));
    let nearest = with_edits.filter(|(edits, _)| *edits <= 2).min_by_key(|(edits, _)| *edits);
    nearest.map(|(_, known)| known)
}

/// Returns the only candidate to which one of these applies:
///
/// - The candidate has as many words as the name, three or more, and only one word differs.
/// - The candidate ends with the name, behind other words.
/// - The name ends with the candidate, behind other words, and the candidate has two words or more.
fn find_nearest_by_words<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let words: Vec<&str> = name.split('_').collect();
    let is_near = |candidate: &&&str| {
        let others: Vec<&str> = candidate.split('_').collect();
        let shared = words.iter().zip(&others).filter(|(one, other)| one == other).count();
        let has_all_but_one = words.len() > 2 && others.len() == words.len();
        has_all_but_one && shared + 1 == words.len()
            || candidate.strip_suffix(name).is_some_and(|before| before.ends_with('_'))
            // Other servers put the owner before the name, as in `client_header_timeout`.
            || others.len() > 1 && words.ends_with(&others)
    };
    let mut near = known.iter().filter(is_near);
    match (near.next(), near.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Returns the word of `expected` that a faulty text was probably meant for, if `is_valid` takes
/// it.
pub fn find_nearest_word(
    found: &str,
    expected: &str,
    is_valid: impl Fn(&str) -> bool,
) -> Option<String> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if found.is_empty() || !found.chars().all(is_of_word) {
        return None;
    }
    // An example with a number in it is no word, and a number is meant for none.
    let is_word = |it: &&str| it.len() > 2 && !it.starts_with(|c: char| c.is_ascii_digit());
    let words = expected.split(|c| !is_of_word(c)).filter(|it| is_word(it) && is_valid(it));
    find_nearest_name(found, words).map(str::to_owned)
}

/// What a setting holds: the kind of its texts, and the unit of its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// The kind of the texts. A guess that is not for this kind is not made.
    kind: TextKind,
    /// What a `k` behind a number stands for.
    kilo: u64,
    /// Whether a number without a unit is always a number of seconds.
    seconds_only: bool,
    /// Whether a number without a unit is a number of days.
    days_only: bool,
    /// What a fraction stands for.
    fraction: Fraction,
    /// The port of an address that has none.
    pub port: u16,
    /// Whether an address has to be of loopback.
    loopback_only: bool,
}

/// What a fraction between 0 and 1 stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fraction {
    /// Nothing but itself.
    Number,
    /// A share of a hundred.
    Percent,
    /// A share, of which the setting has the reciprocal value.
    OneIn,
}

impl Units {
    /// Returns an address as the setting takes it: of loopback in place of all addresses, if it has
    /// to be.
    pub fn move_to_loopback_if_required(self, text: String) -> String {
        match self.loopback_only {
            true => text.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:"),
            false => text,
        }
    }

    /// Returns the whole number that a fraction stands for.
    fn find_whole_number_of(self, fraction: f64) -> Option<i64> {
        let is_share = fraction > 0.0 && fraction <= 1.0;
        let number = match self.fraction {
            Fraction::Percent if is_share || fraction == 0.0 => fraction * 100.0,
            Fraction::OneIn if is_share => 1.0 / fraction,
            _ => return None,
        };
        Some(number.round() as i64)
    }

    /// The units of a setting.
    pub fn of_setting(key: &str, setting_kind: &SettingKind) -> Units {
        Units::of_key(key, TextKind::of_setting(key, setting_kind))
    }

    /// The units of a setting whose texts have this kind.
    fn of_key(key: &str, kind: TextKind) -> Units {
        // Sizes of files and bodies go by powers of two.
        let kilo = if key.ends_with("bytes") { 1_024 } else { 1_000 };
        let is_of_hundred = ["score", "percent", "thresholds"].iter().any(|it| key.ends_with(it));
        let fraction = match key.ends_with("one_in") {
            true => Fraction::OneIn,
            false if is_of_hundred => Fraction::Percent,
            false => Fraction::Number,
        };
        // The field `Strict-Transport-Security` counts seconds.
        let seconds_only = key.ends_with("hsts");
        // The shipped feeds keep names for 90 days.
        let days_only = key.ends_with(".keep");
        // Without a token, any other address is a fault.
        let loopback_only = key == "listen.admin";
        let name = key.rsplit('.').next().unwrap_or_default();
        let port = match name {
            "http" => 8080,
            "https" => 443,
            "admin" => 9090,
            "resolvers" => 53,
            _ => 80,
        };
        Units { kind, kilo, seconds_only, days_only, fraction, port, loopback_only }
    }
}

/// Returns a hint with the first guess at what `raw` was meant for that `is_valid` accepts.
pub fn suggest_value(
    raw: &RawValue,
    units: Units,
    is_valid: impl Fn(&RawValue) -> bool,
) -> Option<String> {
    // Nobody knows what an empty text was meant for.
    if raw.as_text().is_some_and(str::is_empty) {
        return None;
    }
    let each = || guess_each_item(raw, units, &is_valid);
    let guess = list_guesses(raw, units).into_iter().find(&is_valid).or_else(each)?;
    let is_plain = |text: &str| redact_urls_and_long_words(text) == text;
    Some(match (raw, texts_of_list(&guess)) {
        // The value of an environment variable has no quotes.
        (RawValue::Untyped(_), Some(texts)) => {
            let all = texts.join(",");
            let all = is_plain(&all).then_some(all)?;
            match texts.len() {
                1 => format!("write {all}"),
                _ => format!("write {all}: only commas stand between the values of a list"),
            }
        }
        (RawValue::Untyped(_), None) => {
            let text = guess
                .as_text()
                .map_or_else(|| render_unless_secret(&guess), |it| Some(it.to_owned()));
            format!("write {}", text.filter(|it| is_plain(it))?)
        }
        _ => match render_unless_secret(&guess) {
            Some(shown) => format!("write {shown}"),
            // A URL may have a secret in its path, so the hint does not repeat it.
            None => match guess.as_text()?.strip_prefix("https://")?.strip_prefix(raw.as_text()?) {
                Some(_) => "write https:// before it".to_owned(),
                None => "write https in place of http".to_owned(),
            },
        },
    })
}

/// Returns the texts or numbers of a list, each as an environment variable has it.
fn texts_of_list(value: &RawValue) -> Option<Vec<String>> {
    let RawValue::List(items) = value else { return None };
    let text = |item: &RawValue| match item {
        RawValue::Integer(number) => Some(number.to_string()),
        item => item.as_text().map(str::to_owned),
    };
    items.iter().map(text).collect()
}

/// Returns what a text of this kind on the command line or in a request was meant for: the first
/// guess that `is_valid` accepts.
pub fn guess_text(text: &str, kind: TextKind, is_valid: impl Fn(&str) -> bool) -> Option<String> {
    text_guesses(text, Units::of_key("", kind)).find(|it| is_valid(it))
}

/// Returns a value as TOML; `None` if a log must not show the value.
fn render_unless_secret(value: &RawValue) -> Option<String> {
    match value {
        RawValue::Text(text) | RawValue::Untyped(text) => {
            (redact_urls_and_long_words(text) == *text).then(|| toml_text(text))
        }
        RawValue::Integer(integer) => Some(integer.to_string()),
        RawValue::Boolean(flag) => Some(flag.to_string()),
        RawValue::Fraction(number) => Some(number.to_string()),
        RawValue::List(items) => {
            let texts: Option<Vec<&str>> = items.iter().map(RawValue::as_text).collect();
            match texts {
                Some(texts) => texts
                    .iter()
                    .all(|it| redact_urls_and_long_words(it) == *it)
                    .then(|| toml_list(&texts)),
                None => items
                    .iter()
                    .map(render_unless_secret)
                    .collect::<Option<Vec<_>>>()
                    .map(|all| format!("[{}]", all.join(", "))),
            }
        }
        RawValue::Variable(_) | RawValue::Unsupported(_) => None,
    }
}

/// Returns what a value may have been meant for, the likeliest first.
fn list_guesses(raw: &RawValue, units: Units) -> Vec<RawValue> {
    match raw {
        RawValue::Text(text) | RawValue::Untyped(text) => list_guesses_of_text(text, units),
        RawValue::Fraction(number) => {
            let is_whole = number.fract() == 0.0 && number.abs() < 1e15;
            let is_time = units.kind == TextKind::Time;
            let mut guesses: Vec<RawValue> = Vec::new();
            guesses.extend(is_whole.then_some(RawValue::Integer(*number as i64)));
            guesses.extend(is_time.then(|| RawValue::Text(format!("{number}s"))));
            guesses.extend(units.find_whole_number_of(*number).map(RawValue::Integer));
            guesses.extend(list_of_shares(std::slice::from_ref(raw), units));
            guesses
        }
        RawValue::Integer(number) => {
            let text = match units.kind {
                TextKind::Time => time_of_number(*number, units),
                TextKind::ListenAddress | TextKind::ServerAddress => {
                    Some(format!("127.0.0.1:{number}"))
                }
                TextKind::Rate => Some(format!("{number}/h")),
                TextKind::Number => (*number < 0).then(|| "unlimited".to_owned()),
                TextKind::Name | TextKind::Word | TextKind::Free => Some(number.to_string()),
                _ => None,
            };
            let mut guesses: Vec<RawValue> = text.into_iter().map(RawValue::Text).collect();
            guesses.extend(matches!(number, 0 | 1).then_some(RawValue::Boolean(*number == 1)));
            guesses.push(RawValue::List(vec![raw.clone()]));
            guesses
        }
        RawValue::Boolean(flag) => match units.kind {
            TextKind::Name | TextKind::Word | TextKind::Free => {
                vec![RawValue::Text(flag.to_string())]
            }
            _ => Vec::new(),
        },
        RawValue::List(items) => {
            let mut guesses: Vec<RawValue> = Vec::new();
            // Of several values, none is likelier than the others.
            guesses.extend(items.first().filter(|_| items.len() == 1).cloned());
            guesses.extend(flat_list(items, units));
            guesses.extend(guess_items(items, units.kind));
            if units.kind == TextKind::LogLevels {
                let texts: Option<Vec<&str>> = items.iter().map(RawValue::as_text).collect();
                let levels = texts.and_then(|texts| levels_with_commas(&texts.join(",")));
                guesses.extend(levels.map(RawValue::Text));
            }
            guesses.extend(list_of_shares(items, units));
            guesses.extend(list_of_numbers(items));
            guesses
        }
        RawValue::Variable(_) | RawValue::Unsupported(_) => Vec::new(),
    }
}

/// Returns what a text may have been meant for, the likeliest first.
fn list_guesses_of_text(text: &str, units: Units) -> Vec<RawValue> {
    let mut guesses = Vec::new();
    for text in std::iter::once(text.to_owned()).chain(text_guesses(text, units)) {
        guesses.push(RawValue::Text(text.clone()));
        guesses.extend(text.parse().map(RawValue::Integer));
        guesses.extend(parse_switch_word(&text).map(RawValue::Boolean));
        guesses.push(RawValue::List(vec![RawValue::Text(text.clone())]));
        if let Some(list) = parse_loose_list(&text, units.kind) {
            let items = match &list {
                RawValue::List(items) => {
                    guess_items(items, units.kind).into_iter().chain(list_of_numbers(items))
                }
                _ => continue,
            };
            let items: Vec<RawValue> = items.collect();
            guesses.push(list);
            guesses.extend(items);
        }
        let text = RawValue::Text(text);
        guesses.extend(list_of_shares(std::slice::from_ref(&text), units));
        guesses.extend(list_of_numbers(&[text]));
    }
    guesses
}

/// Returns shares, such as `0.8` and `"0.9"`, as a list of the whole numbers that they stand for.
fn list_of_shares(items: &[RawValue], units: Units) -> Option<RawValue> {
    let share = |item: &RawValue| match item {
        RawValue::Fraction(number) => units.find_whole_number_of(*number),
        item => units.find_whole_number_of(item.as_text()?.parse().ok()?),
    };
    let numbers = items.iter().map(|item| share(item).map(RawValue::Integer));
    numbers.collect::<Option<_>>().map(RawValue::List)
}

/// Returns texts with numbers, such as `80` and `80%`, as a list of these numbers.
fn list_of_numbers(texts: &[RawValue]) -> Option<RawValue> {
    let number = |item: &RawValue| item.as_text()?.trim_end_matches('%').parse().ok();
    let numbers: Option<Vec<i64>> = texts.iter().map(number).collect();
    Some(RawValue::List(numbers?.into_iter().map(RawValue::Integer).collect()))
}

/// Returns a list in which each faulty text is replaced by the first guess that the setting takes
/// as a list of one. If a text has none, does so with the parts of all texts. `None` if a part has
/// none.
fn guess_each_item(
    raw: &RawValue,
    units: Units,
    is_valid: impl Fn(&RawValue) -> bool,
) -> Option<RawValue> {
    let lists = match raw {
        RawValue::List(items) => [Some(raw.clone()), flat_list(items, units)],
        raw => [parse_loose_list(raw.as_text()?, units.kind), None],
    };
    let is_valid_text =
        |text: &String| is_valid(&RawValue::List(vec![RawValue::Text(text.clone())]));
    let guess = |item: &RawValue| {
        let text = item.as_text()?;
        let mut guesses = std::iter::once(text.to_owned()).chain(text_guesses(text, units));
        guesses.find(is_valid_text).map(RawValue::Text)
    };
    let guess_all = |list: RawValue| {
        let RawValue::List(items) = list else { return None };
        let guesses: Vec<RawValue> = items.iter().map(guess).collect::<Option<_>>()?;
        Some(RawValue::List(guesses)).filter(&is_valid)
    };
    lists.into_iter().flatten().find_map(guess_all)
}

/// Returns the parts of all texts as one list, if a text has several.
pub(super) fn flat_list(items: &[RawValue], units: Units) -> Option<RawValue> {
    let mut parts = Vec::new();
    let mut is_split = false;
    for item in items {
        match parse_loose_list(item.as_text()?, units.kind) {
            Some(RawValue::List(inner)) => {
                is_split = true;
                parts.extend(inner);
            }
            _ => parts.push(item.clone()),
        }
    }
    is_split.then_some(RawValue::List(parts))
}

/// Returns one list for each rewrite of this kind of text, in which each text is rewritten to which
/// the rewrite applies.
fn guess_items(items: &[RawValue], kind: TextKind) -> Vec<RawValue> {
    let texts: Option<Vec<&str>> = items.iter().map(RawValue::as_text).collect();
    let Some(texts) = texts else { return Vec::new() };
    rewrites_of(kind)
        .map(|rewrite| {
            let item = |text: &&str| RawValue::Text(rewrite(text).unwrap_or((*text).to_owned()));
            RawValue::List(texts.iter().map(item).collect())
        })
        .collect()
}

/// From this number on, a number without a unit means milliseconds, below it seconds.
/// [`time_of_number`] has exceptions.
const MIN_MILLISECONDS: i64 = 1_000;

/// Returns the time that a number without a unit stands for.
fn time_of_number(number: i64, units: Units) -> Option<String> {
    let seconds = Duration::from_secs(u64::try_from(number).ok()?);
    if units.days_only {
        return Some(format!("{number}d"));
    }
    let whole = |length: i64| number >= length && number % length == 0;
    // Nobody writes whole days in milliseconds, or whole hours such as 3600. All other numbers from
    // 1,000 on are milliseconds.
    let is_of_seconds = units.seconds_only
        || number < MIN_MILLISECONDS
        || whole(86_400)
        || whole(3_600) && !whole(MIN_MILLISECONDS);
    let time = if is_of_seconds { seconds } else { seconds / 1_000 };
    match is_of_seconds && number >= 3_600 {
        true => Some(toml_duration(time).trim_matches('"').to_owned()),
        false => Some(format!("{number}{}", if is_of_seconds { "s" } else { "ms" })),
    }
}

/// Header fields whose names have no hyphen.
const FIELDS_OF_ONE_WORD: [&str; 24] = [
    "accept",
    "age",
    "allow",
    "authorization",
    "baggage",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "from",
    "host",
    "link",
    "location",
    "origin",
    "pragma",
    "priority",
    "range",
    "referer",
    "server",
    "traceparent",
    "tracestate",
    "vary",
];

/// The levels of the log.
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A way in which a text may have been meant. Returns the text that was meant.
type Rewrite = fn(&str) -> Option<String>;

/// The kinds of texts with the name or the address of a host.
const KINDS_WITH_HOST: [TextKind; 6] = [
    TextKind::ListenAddress,
    TextKind::ServerAddress,
    TextKind::Network,
    TextKind::Host,
    TextKind::Origin,
    TextKind::Domain,
];

/// The rewrites of each kind of text, the likeliest first. But for the rewrites of all kinds in
/// [`rewrites_of`], no other rewrite runs for a kind, so that no path becomes an address, and no
/// name loses its second word.
const REWRITES: &[(&[TextKind], &[Rewrite])] = &[
    (
        &[TextKind::Number],
        &[without_separators, calls_in_month, |text| {
            let is_endless = matches!(text, "-1" | "infinity" | "inf");
            is_endless.then(|| "unlimited".to_owned())
        }],
    ),
    (&[TextKind::Network], &[with_prefix_length]),
    // In a path, a header field and a free text, the case says nothing, or is the author's own.
    (&KINDS_WITH_HOST, &[in_lower_case]),
    (
        &[TextKind::Name, TextKind::Word, TextKind::Time, TextKind::Rate, TextKind::Number],
        &[in_lower_case],
    ),
    (&[TextKind::Word], &[|text| Some(text.to_ascii_uppercase())]),
    (
        &[
            TextKind::ListenAddress,
            TextKind::ServerAddress,
            TextKind::Network,
            TextKind::Host,
            TextKind::Domain,
        ],
        &[without_scheme_and_path],
    ),
    // A listener without a host takes connections from everywhere; a server without one is near.
    (&[TextKind::ListenAddress], &[|text| Some(format!("0.0.0.0{}", port_of_any_host(text)?))]),
    (&[TextKind::ServerAddress], &[|text| Some(format!("127.0.0.1{}", port_of_any_host(text)?))]),
    (
        &[TextKind::ListenAddress, TextKind::ServerAddress, TextKind::Network],
        &[|text| Some(format!("127.0.0.1{}", text.strip_prefix("localhost")?))],
    ),
    (
        &[TextKind::ListenAddress, TextKind::ServerAddress],
        &[with_brackets, |text| is_digits(text).then(|| format!("127.0.0.1:{text}"))],
    ),
    (&[TextKind::ListenAddress, TextKind::ServerAddress], &[with_port_of_scheme]),
    (
        &[TextKind::Url, TextKind::Origin],
        &[|text| Some(format!("https://{}", text.strip_prefix("http://")?))],
    ),
    (
        &[TextKind::Url],
        &[
            |text| {
                let (host, _) = text.split_once('/')?;
                let is_host = host.contains('.') && host.chars().all(is_name_char);
                (is_host && !host.starts_with('.')).then(|| format!("https://{text}"))
            },
            |text| text.starts_with("www.").then(|| format!("https://{text}")),
            |text| (!text.contains(['.', ':'])).then(|| format!("/{}", text.trim_matches('/'))),
        ],
    ),
    (
        &[TextKind::Path, TextKind::RuleRoute],
        &[
            // Of a URL, the path is the end.
            |text| (!text.contains("://")).then(|| format!("/{}", text.trim_matches('/'))),
            |text| {
                let start = text.strip_suffix(".*").unwrap_or(text).trim_end_matches(['*', '/']);
                (!text.contains("://")).then(|| format!("/{}", start.trim_start_matches('/')))
            },
        ],
    ),
    (
        &[TextKind::Origin, TextKind::Host, TextKind::Network, TextKind::Domain],
        &[|text| Some(text.trim_end_matches('/').to_owned())],
    ),
    // `null` is what a browser writes for a page that has no origin.
    (
        &[TextKind::Origin],
        &[|text| {
            let host = text.trim_end_matches('/');
            (!host.eq_ignore_ascii_case("null")).then(|| format!("https://{host}"))
        }],
    ),
    (
        &[TextKind::Time, TextKind::Rate],
        &[duration_or_rate, |text| duration_or_rate(&text.replace(',', "."))],
    ),
    (&[TextKind::Time], &[sum_of_durations, interval_of_cron]),
    (&[TextKind::FieldName], &[plain_field_name]),
    (&[TextKind::LogLevels], &[levels_with_commas]),
    (
        &[TextKind::ListenAddress, TextKind::ServerAddress, TextKind::Network, TextKind::Host],
        &[without_path],
    ),
    (&[TextKind::HeaderName], &[header_name]),
    (&[TextKind::EmailSource], &[place_of_email, source_of_bare_name]),
    (
        &[TextKind::Name, TextKind::Word],
        &[
            |text| Some(text.to_ascii_lowercase().replace([' ', '_'], "-")),
            |text| Some(text.replace([' ', '-'], "_")),
        ],
    ),
    (
        &[TextKind::Domain],
        &[
            |text| Some(text.strip_prefix("*.")?.to_owned()),
            |text| Some(text.strip_prefix('.')?.to_owned()),
            |text| Some(text.rsplit_once('@')?.1.to_owned()),
        ],
    ),
    // An address or a host without its port.
    (&[TextKind::Network], &[|text| Some(text.parse::<SocketAddr>().ok()?.ip().to_string())]),
    (
        &[TextKind::Host],
        &[|text| {
            let (host, port) = text.rsplit_once(':')?;
            port.parse::<u16>().is_ok().then(|| host.to_owned())
        }],
    ),
    (
        &[TextKind::Time],
        &[
            |text| {
                let is_date = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'/');
                is_date.then(|| text.replace('/', "-"))
            },
            |text| Some(format!("{text}T00:00:00Z")),
        ],
    ),
    // Two dots in a name.
    (&KINDS_WITH_HOST, &[|text| text.contains("..").then(|| text.replace("..", "."))]),
    // A number of requests without a time.
    (&[TextKind::Rate], &[|text| is_digits(text).then(|| format!("{text}/h"))]),
    // Words behind a value, such as `ssl`, `weight=3` and `burst=5` of other servers.
    (
        &[TextKind::ListenAddress, TextKind::ServerAddress, TextKind::Network, TextKind::Rate],
        &[|text| Some(text.split_once(' ')?.0.to_owned())],
    ),
    // A share of a hundred, and a rate of each second.
    (
        &[TextKind::Number],
        &[|text| Some(text.strip_suffix('%').or(text.strip_suffix("/s"))?.trim().to_owned())],
    ),
];

/// The rewrites of a kind of text, the likeliest first.
fn rewrites_of(kind: TextKind) -> impl Iterator<Item = Rewrite> {
    // Quotes of a shell, of a text processor, or of JSON.
    let of_all: [Rewrite; 2] =
        [|text| Some(text.trim().to_owned()), |text| Some(text.trim_matches(is_quote).to_owned())];
    let own = REWRITES.iter().filter(move |(kinds, _)| kinds.contains(&kind));
    of_all.into_iter().chain(own.flat_map(|(_, rewrites)| rewrites.iter().copied()))
}

fn in_lower_case(text: &str) -> Option<String> {
    Some(text.to_ascii_lowercase())
}

/// Returns `warn,riskgate::dns=debug` for `warning; riskgate:dns = debug`, `warn
/// riskgate.dns=debug` and `warn:riskgate:dns=debug`.
fn levels_with_commas(text: &str) -> Option<String> {
    let around_signs: Vec<&str> = text.split('=').map(str::trim).collect();
    let around_signs = around_signs.join("=");
    let is_between = |c: char| matches!(c, ',' | ';' | '|') || c.is_whitespace();
    let parts = around_signs.split(is_between).filter(|part| !part.is_empty());
    let parts = parts.map(|part| match part.split_once('=') {
        Some((module, level)) => {
            let level = find_level(level).unwrap_or(level);
            let module = module.replace("::", ":").replace([':', '.'], "::");
            match module.split_once("::") {
                Some((own, module)) if LOG_LEVELS.contains(&own) => {
                    format!("{own},{module}={level}")
                }
                _ => format!("{module}={level}"),
            }
        }
        None => find_level(part).unwrap_or(part).to_owned(),
    });
    Some(parts.collect::<Vec<_>>().join(","))
}

/// Returns the level of the log that a word is probably meant for.
fn find_level(word: &str) -> Option<&'static str> {
    find_nearest_name(word, LOG_LEVELS.into_iter())
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.')
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn text_guesses(text: &str, units: Units) -> impl Iterator<Item = String> {
    let of_kind = match units.kind {
        TextKind::Time => time_of_text(text, units),
        TextKind::Number => sized_number(text, units.kilo).map(|number| number.to_string()),
        _ => None,
    };
    let is_address = matches!(units.kind, TextKind::ListenAddress | TextKind::ServerAddress);
    let served = with_port(text, units.port).filter(|_| is_address);
    let rewrites = rewrites_of(units.kind).filter_map(move |rewrite| rewrite(text));
    let guesses = of_kind.into_iter().chain(rewrites).chain(served);
    guesses.map(move |guess| units.move_to_loopback_if_required(guess))
}

/// Returns the time of a number without a unit, of a word for no time, of a duration of ISO 8601
/// such as `PT2S`, and of the value of the field `Strict-Transport-Security`.
fn time_of_text(text: &str, units: Units) -> Option<String> {
    let no_time = ["none", "off", "never", "unlimited", "infinite", "infinity", "-1"];
    if no_time.contains(&text.to_ascii_lowercase().as_str()) {
        return Some("0s".to_owned());
    }
    let of_iso = text.strip_prefix("PT").or(text.strip_prefix('P').filter(|it| it.ends_with('D')));
    if let Some(time) = of_iso {
        return Some(time.to_ascii_lowercase());
    }
    let field = text.strip_prefix("max-age=").and_then(|it| it.split(';').next());
    time_of_number(field.unwrap_or(text).trim().parse().ok()?, units)
}

/// Returns `:80` for `:80` and `*:80`.
fn port_of_any_host(text: &str) -> Option<&str> {
    Some(text.strip_prefix('*').unwrap_or(text)).filter(|port| port.starts_with(':'))
}

/// Returns `10000` for `10000 calls per month` and `10,000/mo`.
fn calls_in_month(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase().replace(" per ", "/").replace("calls", "");
    let number = text.strip_suffix("/month").or(text.strip_suffix("/mo")).unwrap_or(&text);
    let number = number.trim();
    Some(without_separators(number).unwrap_or_else(|| number.to_owned()))
}

/// Returns `a.test:1` for `a.test:1/path`.
fn without_path(text: &str) -> Option<String> {
    let (server, _) = text.split_once('/')?;
    server.contains(':').then(|| server.to_owned())
}

/// Returns `X-Api-Key` for `X Api Key:` and `X_Api_Key`. `None` for other words, which may be
/// several names.
fn header_name(text: &str) -> Option<String> {
    let name = text.trim().trim_end_matches(':').trim();
    let words: Vec<&str> = name.split_whitespace().collect();
    let is_one = match words[..] {
        [_] => true,
        ["X" | "x", ..] => !words.iter().any(|word| is_whole_field(word)),
        _ => false,
    };
    is_one.then(|| words.join("-").replace('_', "-"))
}

/// Whether a word is surely the whole name of a header field.
fn is_whole_field(word: &str) -> bool {
    word.contains(['-', '_']) || FIELDS_OF_ONE_WORD.contains(&word.to_ascii_lowercase().as_str())
}

/// Returns `user.email` for `user[email]` and `$.user.email`. A name with a blank stays as it is.
fn plain_field_name(text: &str) -> Option<String> {
    let name = text.strip_prefix("$.").unwrap_or(text).replace(']', "").replace('[', ".");
    let name = name.trim_matches('.').replace("..", ".");
    (name != text).then_some(name)
}

/// Returns `header:X-Email` for `header.X-Email`, and `body:email` for `form:email`: where a proxy
/// that asks has the address.
fn place_of_email(text: &str) -> Option<String> {
    let at = text.find([':', '.', '='])?;
    let (place, name) = (text[..at].to_ascii_lowercase(), &text[at + 1..]);
    let own = match place.as_str() {
        "body" | "query" | "header" => place.as_str(),
        "headers" => "header",
        // The name of a field may have dots, as in `data.email`.
        _ if text[at..].starts_with('.') => return None,
        "form" | "json" | "post" | "data" | "field" => "body",
        "args" | "arg" | "param" | "params" | "get" | "url" => "query",
        _ => return None,
    };
    let name = match own {
        "header" => header_name(name)?,
        _ => plain_field_name(name).unwrap_or_else(|| name.to_owned()),
    };
    Some(format!("{own}:{name}"))
}

/// Returns `body:email` for `email`, and `header:X-Email` for `X-Email`. A text that names a place
/// of its own, such as `cookie:email`, has none.
fn source_of_bare_name(text: &str) -> Option<String> {
    let name = plain_field_name(text).unwrap_or_else(|| text.to_owned());
    let place = if name.contains('-') && !name.contains('.') { "header" } else { "body" };
    (!name.contains([':', '='])).then(|| format!("{place}:{name}"))
}

/// Whether a character is a quote, as people or their programs write quotes.
pub fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '´') || is_curly_quote(c)
}

/// Whether a character is a quote that a text processor writes in place of `"` or `'`.
pub fn is_curly_quote(c: char) -> bool {
    matches!(c, '“' | '”' | '„' | '‟' | '‘' | '’' | '‚' | '«' | '»' | '″' | '′')
}

/// Returns `10000` for `10,000`, `10 000`, `10.000` and `10'000`.
fn without_separators(text: &str) -> Option<String> {
    let is_separator = |c: char| matches!(c, ',' | '.' | '\'' | '’' | '_') || c.is_whitespace();
    let mut groups = text.trim().split(is_separator);
    let first = groups.next().filter(|it| (1..=3).contains(&it.len()))?;
    let rest: Vec<&str> = groups.collect();
    let is_number = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let is_grouped = !rest.is_empty() && rest.iter().all(|it| it.len() == 3 && is_number(it));
    (is_grouped && is_number(first)).then(|| format!("{first}{}", rest.concat()))
}

/// Returns `10.0.0.0/8` for `10.0.0.0/255.0.0.0`, and `10.0.0.0/24` for `10.0.0.*`.
fn with_prefix_length(text: &str) -> Option<String> {
    if let Some((network, mask)) = text.split_once('/') {
        let bits = u32::from(mask.parse::<Ipv4Addr>().ok()?);
        let is_mask = bits.leading_ones() + bits.trailing_zeros() == 32;
        return is_mask.then(|| format!("{network}/{}", bits.leading_ones()));
    }
    let numbers = text.trim_end_matches(['*', 'x', '.']);
    let given = numbers.split('.').count();
    let is_pattern = numbers.len() < text.len() && (1..=3).contains(&given);
    let zeros = ".0".repeat(4_usize.saturating_sub(given));
    let network = format!("{numbers}{zeros}");
    (is_pattern && network.parse::<Ipv4Addr>().is_ok()).then(|| format!("{network}/{}", 8 * given))
}

/// Returns `[fd00::7]:9000` for `fd00::7:9000`.
fn with_brackets(text: &str) -> Option<String> {
    let (address, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|_| port.len() > 1)?;
    Some(format!("[{}]:{port}", address.parse::<Ipv6Addr>().ok()?))
}

/// Returns an address without a port with this port behind it.
fn with_port(text: &str, port: u16) -> Option<String> {
    let host = text.trim_matches(['[', ']']);
    let is_v6 = host.parse::<Ipv6Addr>().is_ok() && with_brackets(text).is_none();
    let is_host = !host.contains(':') && text.contains(|c: char| c == '.' || !c.is_ascii_digit());
    match (is_v6, is_host) {
        (true, _) => Some(format!("[{host}]:{port}")),
        (false, true) => Some(format!("{text}:{port}")),
        _ => None,
    }
}

/// Returns `90m` for `1h30m`.
fn sum_of_durations(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase().replace(' ', "");
    let starts = text.char_indices().filter(|(at, c)| {
        c.is_ascii_digit() && text[..*at].ends_with(|c: char| c.is_ascii_alphabetic())
    });
    let starts: Vec<usize> = std::iter::once(0).chain(starts.map(|(at, _)| at)).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let parts = starts.iter().zip(ends).map(|(start, end)| &text[*start..end]);
    let sum: Option<Duration> = parts.map(|part| parse_duration(&duration_or_rate(part)?)).sum();
    sum.filter(|_| starts.len() > 1).map(|sum| toml_duration(sum).trim_matches('"').to_owned())
}

/// Returns `6h` for `0 */6 * * *`, and `1d` for `30 4 * * *` and `@daily`.
fn interval_of_cron(text: &str) -> Option<String> {
    if let Some(word) = text.strip_prefix('@') {
        return duration_or_rate(word);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, "*", "*", "*"] = fields[..] else { return None };
    let is_number = |field: &str| field.bytes().all(|byte| byte.is_ascii_digit());
    match (minute.strip_prefix("*/"), hour.strip_prefix("*/")) {
        (Some(minutes), None) if hour == "*" && is_number(minutes) => Some(format!("{minutes}m")),
        (None, Some(hours)) if is_number(minute) && is_number(hours) => Some(format!("{hours}h")),
        (None, None) if is_number(minute) && hour == "*" => Some("1h".to_owned()),
        (None, None) if is_number(minute) && is_number(hour) => Some("1d".to_owned()),
        _ => None,
    }
}

/// Returns `127.0.0.1:9000` for `http://127.0.0.1:9000/path`.
fn without_scheme_and_path(text: &str) -> Option<String> {
    let rest = text.split_once("://")?.1;
    Some(split_authority(rest).0.to_owned())
}

/// Returns `backend:80` for `http://backend`.
fn with_port_of_scheme(text: &str) -> Option<String> {
    let port = if text.starts_with("https://") { 443 } else { 80 };
    Some(format!("{}:{port}", without_scheme_and_path(text)?))
}

/// Returns `30s` for `30`, `30 s`, `30sec` and `30 seconds`, `1d` for `daily`, and `20/h` for `20
/// per hour`.
fn duration_or_rate(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase().replace(" per ", "/").replace(' ', "");
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = match text.as_str() {
        "hourly" => ("1", "h"),
        "daily" | "midnight" => ("1", "d"),
        "weekly" => ("7", "d"),
        _ => text.split_at(unit_at),
    };
    // Other servers write `10r/m` and `600rpm`.
    let unit = unit.strip_prefix("requests").or(unit.strip_prefix("req")).unwrap_or(unit);
    let unit = unit.strip_prefix('r').unwrap_or(unit);
    let (slash, unit) = match unit.strip_prefix(['/', 'p']) {
        Some(unit) => ("/", unit),
        None => ("", unit),
    };
    // The time may have a number of its own, as in `100/10min`.
    let count_end = unit.find(|c: char| !c.is_ascii_digit()).unwrap_or(unit.len());
    let (count, unit) = unit.split_at(if slash.is_empty() { 0 } else { count_end });
    let short = match unit {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "ms" | "msec" | "millis" | "milliseconds" => "ms",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => return to_days(number, 7),
        "mo" | "month" | "months" if slash.is_empty() => return to_days(number, 30),
        "y" | "year" | "years" => return to_days(number, 365),
        _ => return None,
    };
    (!number.is_empty()).then(|| format!("{number}{slash}{count}{short}"))
}

/// Returns weeks or years in days, such as `14d` for `2 weeks`.
fn to_days(number: &str, length: u64) -> Option<String> {
    Some(format!("{}d", number.parse::<u64>().ok()?.checked_mul(length)?))
}

/// Returns the number that a size such as `32MiB`, `64k` or `1 MB` stands for.
fn sized_number(text: &str, kilo: u64) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let factor: u64 = match unit.trim() {
        "b" => 1,
        "k" | "kb" | "kib" => kilo,
        "m" | "mb" | "mib" => kilo.pow(2),
        "g" | "gb" | "gib" => kilo.pow(3),
        "t" | "tb" | "tib" => kilo.pow(4),
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Returns what a word means as a switch: `on` and `off`, as other servers write them.
pub fn parse_switch_word(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" | "enabled" | "enable" | "always" | "required" => Some(true),
        "false" | "no" | "off" | "0" | "disabled" | "disable" | "never" | "none" => Some(false),
        _ => None,
    }
}

/// Returns a text with commas, blanks or semicolons, perhaps between brackets, as a list without
/// repeated parts. Blanks separate nothing in a kind of text that keeps its blanks.
fn parse_loose_list(text: &str, kind: TextKind) -> Option<RawValue> {
    let inner = text.trim().strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let list = inner.unwrap_or(text);
    let is_separator = |c: char| matches!(c, ',' | ';' | '|');
    // A path and the name of a header field have no blank, but ones that were mistyped may have.
    let are_whole = |is_whole: fn(&str) -> bool| {
        let words = list.split(|c: char| is_separator(c) || c.is_whitespace());
        let words = words.map(|word| word.trim_matches(is_quote));
        words.filter(|word| !word.is_empty()).all(is_whole)
    };
    let are_blanks_between = match kind {
        TextKind::Path => are_whole(|word| word.starts_with('/')),
        TextKind::HeaderName => are_whole(is_whole_field),
        _ => !kind.keeps_blanks(),
    };
    let is_between = |c: char| is_separator(c) || c.is_whitespace() && are_blanks_between;
    let parts = list.split(is_between);
    let parts = parts.map(|it| it.trim().trim_matches(is_quote)).filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    let is_first = |(at, part): &(usize, &&str)| !parts[..*at].contains(*part);
    let once = parts.iter().enumerate().filter(is_first);
    let once = once.map(|(_, part)| RawValue::Text((*part).to_owned())).collect();
    let is_list = parts.len() > 1 || inner.is_some() || list.trim_end().ends_with(is_separator);
    is_list.then_some(RawValue::List(once))
}

#[cfg(test)]
mod tests;
