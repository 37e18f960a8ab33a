//! What to write in place of a faulty value or name.
//!
//! A hint for a value is a guess that the setting's own parser accepts, so a hint is never wrong by
//! the rules of the setting.

use super::description::{toml_list, toml_text};
use super::raw_value::{RawValue, redact_secrets};

/// Names and words that people know from other servers, each with those that riskgate uses.
const OTHER_NAMES: [(&str, &[&str]); 80] = [
    ("address", &["http", "url"]),
    ("bind", &["http"]),
    ("host", &["http", "url"]),
    ("listen", &["http"]),
    ("http2", &["h2c"]),
    ("port", &["http"]),
    ("dsn", &["url"]),
    ("url", &["servers"]),
    ("backend", &["upstream", "servers"]),
    ("backends", &["upstream", "servers"]),
    ("proxy", &["upstream"]),
    ("server", &["listen"]),
    ("tls", &["certificate"]),
    ("ssl", &["certificate"]),
    ("cert", &["chain", "certificate"]),
    ("cert_file", &["chain"]),
    ("certificate", &["chain"]),
    ("private_key", &["key"]),
    ("logging", &["log"]),
    ("database", &["store"]),
    ("redis", &["store"]),
    ("cache", &["store"]),
    ("path", &["prefix", "url"]),
    ("file", &["url"]),
    ("location", &["prefix"]),
    ("method", &["methods"]),
    ("timeout", &["deadline"]),
    ("field", &["fields"]),
    ("threshold", &["block_score"]),
    ("min_score", &["block_score"]),
    ("level", &["block_score"]),
    ("action", &["then", "mode"]),
    ("verdict", &["then"]),
    ("when", &["if"]),
    ("condition", &["if"]),
    ("conditions", &["if"]),
    ("match", &["if"]),
    ("access", &["scope"]),
    ("permission", &["scope"]),
    ("role", &["scope"]),
    ("workers", &["threads"]),
    ("rate_limit", &["max_per_client"]),
    ("block", &["mode"]),
    ("dir", &["path"]),
    ("directory", &["path"]),
    ("auth", &["key"]),
    ("require_key", &["key"]),
    ("type", &["url"]),
    ("key_file", &["key", "keys"]),
    ("api_keys", &["keys"]),
    ("verify", &["tls_verify"]),
    ("insecure_skip_verify", &["tls_verify"]),
    ("dry_run", &["mode"]),
    ("fail_open", &["on_failure"]),
    ("max_size", &["max_bytes"]),
    ("enabled", &["learn"]),
    ("tracing", &["traces"]),
    ("otel", &["traces"]),
    ("opentelemetry", &["traces"]),
    ("nameservers", &["resolvers"]),
    ("ratelimit", &["max_per_client"]),
    ("certs", &["certificate"]),
    // Words of values.
    ("monitor", &["shadow"]),
    ("observe", &["shadow"]),
    ("off", &["shadow"]),
    ("log_only", &["shadow"]),
    ("enforce", &["block"]),
    ("deny", &["block", "closed"]),
    ("reject", &["block"]),
    ("refuse", &["block"]),
    ("allow", &["pass", "open"]),
    ("accept", &["pass"]),
    ("local", &["table"]),
    ("warning", &["warn"]),
    ("verbose", &["debug"]),
    ("silent", &["off"]),
    ("ip", &["client"]),
    ("infinite", &["unlimited"]),
    ("admin", &["write"]),
    ("readonly", &["read"]),
];

/// Returns the one of `known` that `name` is surely meant for.
pub fn nearest_name<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let folded = name.to_ascii_lowercase().replace('-', "_");
    let others = OTHER_NAMES.iter().find(|(other, _)| *other == folded).map(|(_, own)| *own);
    let is_word = |rest: &str| rest.starts_with('_');
    let is_meant =
        |candidate| folded == candidate || others.is_some_and(|it| it.contains(&candidate));
    // Short names have fewer letters that may be wrong.
    let most_edits = (folded.len() / 3).clamp(1, 3);
    let known: Vec<&str> = known.collect();
    let mut nearest: Option<(usize, &str)> = None;
    for candidate in known.iter().copied() {
        let edits = match is_meant(candidate) {
            true => 0,
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
    nearest.map(|(_, candidate)| candidate).or_else(|| nearest_by_words(&folded, &known))
}

/// Returns the only candidate that has all words of a name but one, or a word before the name.
fn nearest_by_words<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let words: Vec<&str> = name.split('_').collect();
    let is_near = |candidate: &&&str| {
        let others: Vec<&str> = candidate.split('_').collect();
        let shared = words.iter().zip(&others).filter(|(one, other)| one == other).count();
        let has_all_but_one = words.len() > 2 && others.len() == words.len();
        has_all_but_one && shared + 1 == words.len()
            || candidate.strip_suffix(name).is_some_and(|before| before.ends_with('_'))
    };
    let mut near = known.iter().filter(is_near);
    match (near.next(), near.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Returns the word of `expected` that a faulty text was surely meant for, if `is_valid` takes it.
pub fn nearest_word(
    found: &str,
    expected: &str,
    is_valid: impl Fn(&str) -> bool,
) -> Option<String> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if found.is_empty() || !found.chars().all(is_of_word) {
        return None;
    }
    let words = expected.split(|c| !is_of_word(c)).filter(|it| it.len() > 2 && is_valid(it));
    nearest_name(found, words).map(str::to_owned)
}

/// Returns the hint for a text in which somebody expects a variable to be replaced.
pub fn hint_for_variable(key: &str, text: &str) -> Option<String> {
    let has_variable = text.contains("${") || text.starts_with('$') || text.contains("{{");
    let is_of_entry = key.split('.').any(|part| part.parse::<usize>().is_ok());
    let variable = key.to_ascii_uppercase().replace('.', "__");
    match (has_variable, is_of_entry) {
        (false, _) => None,
        (true, true) => Some("write the value: riskgate replaces no variables".to_owned()),
        (true, false) => Some(format!(
            "set RISKGATE__{variable} in the environment: riskgate replaces no variables here"
        )),
    }
}

/// Returns a hint with the first guess at what `raw` was meant for that `is_valid` accepts. `kilo`
/// is what a `k` behind a number stands for.
pub fn suggest_value(
    raw: &RawValue,
    kilo: u64,
    is_valid: impl Fn(&RawValue) -> bool,
) -> Option<String> {
    let guess = guesses(raw, kilo).into_iter().find(is_valid)?;
    Some(format!("write {}", render(&guess)?))
}

/// Returns a value as TOML.
fn render(value: &RawValue) -> Option<String> {
    match value {
        RawValue::Text(text) | RawValue::Untyped(text) => {
            (redact_secrets(text) == *text).then(|| toml_text(text))
        }
        RawValue::Integer(integer) => Some(integer.to_string()),
        RawValue::Boolean(flag) => Some(flag.to_string()),
        RawValue::Fraction(number) => Some(number.to_string()),
        RawValue::List(items) => {
            let texts: Option<Vec<&str>> = items.iter().map(RawValue::as_text).collect();
            texts
                .filter(|all| all.iter().all(|it| redact_secrets(it) == *it))
                .map(|it| toml_list(&it))
        }
        RawValue::Unsupported(_) => None,
    }
}

/// Returns what a value may have been meant for, the likeliest first.
fn guesses(raw: &RawValue, kilo: u64) -> Vec<RawValue> {
    match raw {
        RawValue::Text(text) | RawValue::Untyped(text) => {
            let mut guesses = Vec::new();
            for text in std::iter::once(text.clone()).chain(text_guesses(text, kilo)) {
                guesses.push(RawValue::Text(text.clone()));
                guesses.extend(text.parse().map(RawValue::Integer));
                guesses.extend(boolean(&text).map(RawValue::Boolean));
                guesses.push(RawValue::List(vec![RawValue::Text(text.clone())]));
                guesses.extend(list_in(&text));
            }
            guesses
        }
        RawValue::Fraction(number) => {
            let percent = (number * 100.0).round();
            let percent = (0.0..=100.0).contains(&percent).then_some(percent as i64);
            let mut guesses = vec![RawValue::Text(format!("{number}s"))];
            guesses.extend(percent.map(RawValue::Integer));
            guesses
        }
        RawValue::Integer(number) => {
            // Whoever writes thousands thinks of milliseconds.
            let time = if *number < MIN_MILLISECONDS { "{}s" } else { "{}ms" };
            let mut guesses: Vec<RawValue> = [time, "127.0.0.1:{}", "{}", "{}/h"]
                .iter()
                .map(|form| RawValue::Text(form.replace("{}", &number.to_string())))
                .collect();
            guesses.extend(matches!(number, 0 | 1).then_some(RawValue::Boolean(*number == 1)));
            guesses
        }
        RawValue::Boolean(flag) => vec![RawValue::Text(flag.to_string())],
        RawValue::List(items) => {
            let mut guesses: Vec<RawValue> = items.iter().take(1).cloned().collect();
            guesses.extend(guess_items(items));
            guesses
        }
        RawValue::Unsupported(_) => Vec::new(),
    }
}

/// Returns lists in which the same kind of change was made to each text that it changes.
fn guess_items(items: &[RawValue]) -> Vec<RawValue> {
    let texts: Option<Vec<&str>> = items.iter().map(RawValue::as_text).collect();
    let Some(texts) = texts else { return Vec::new() };
    REWRITES
        .iter()
        .map(|rewrite| {
            let item = |text: &&str| RawValue::Text(rewrite(text).unwrap_or((*text).to_owned()));
            RawValue::List(texts.iter().map(item).collect())
        })
        .collect()
}

/// A number without a unit that is as high as this means milliseconds, below it seconds.
const MIN_MILLISECONDS: i64 = 1_000;

/// Ways in which a text may have been meant. Each returns the text that was meant.
const REWRITES: [fn(&str) -> Option<String>; 17] = [
    |text| Some(text.trim().to_owned()),
    |text| Some(text.to_ascii_lowercase()),
    |text| Some(text.to_ascii_uppercase()),
    without_scheme_and_path,
    // An address without its host, or with a name for it.
    |text| {
        let port = text.strip_prefix('*').unwrap_or(text);
        port.starts_with(':').then(|| format!("0.0.0.0{port}"))
    },
    |text| Some(format!("127.0.0.1{}", text.strip_prefix("localhost")?)),
    |text| Some(format!("127.0.0.1:{text}")),
    with_port_of_scheme,
    // A path.
    |text| Some(format!("/{}", text.trim_matches('/'))),
    |text| Some(format!("/{}", text.trim_end_matches(['*', '/']).trim_start_matches('/'))),
    // An origin.
    |text| Some(text.trim_end_matches('/').to_owned()),
    |text| Some(format!("https://{}", text.trim_end_matches('/'))),
    // A store.
    |text| Some(format!("sqlite:{}", text.strip_prefix("sqlite://")?)),
    duration_or_rate,
    // A server with a path.
    |text| {
        text.split_once('/')
            .map(|(server, _)| server)
            .filter(|it| it.contains(':'))
            .map(str::to_owned)
    },
    // A server without its port.
    |text| (!text.contains(':')).then(|| format!("{text}:80")),
    // Where a proxy that asks has the address.
    |text| Some(format!("{}:{text}", if text.contains('-') { "header" } else { "body" })),
];

fn text_guesses(text: &str, kilo: u64) -> impl Iterator<Item = String> {
    let sized = sized_number(text, kilo).map(|number| number.to_string());
    REWRITES.iter().filter_map(move |rewrite| rewrite(text)).chain(sized)
}

/// Returns `127.0.0.1:9000` for `http://127.0.0.1:9000/path`.
fn without_scheme_and_path(text: &str) -> Option<String> {
    let rest = text.split_once("://")?.1;
    Some(rest.split(['/', '?', '#']).next()?.to_owned())
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
        "daily" => ("1", "d"),
        "weekly" => ("7", "d"),
        _ => text.split_at(unit_at),
    };
    let (slash, unit) = match unit.strip_prefix('/') {
        Some(unit) => ("/", unit),
        None => ("", unit),
    };
    let short = match unit {
        "" if number.parse().is_ok_and(|it: i64| it >= MIN_MILLISECONDS) => "ms",
        "" | "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "ms" | "msec" | "millis" | "milliseconds" => "ms",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        _ => return None,
    };
    (!number.is_empty()).then(|| format!("{number}{slash}{short}"))
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
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" | "enabled" => Some(true),
        "false" | "no" | "off" | "0" | "disabled" => Some(false),
        _ => None,
    }
}

/// Returns a text with commas or blanks as a list.
fn list_in(text: &str) -> Option<RawValue> {
    let parts = text.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty());
    let parts: Vec<RawValue> = parts.map(|part| RawValue::Text(part.to_owned())).collect();
    (parts.len() > 1).then_some(RawValue::List(parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::raw_value::parse_duration;

    fn text(text: &str) -> RawValue {
        RawValue::Text(text.to_owned())
    }

    #[test]
    fn a_hint_is_a_value_that_the_setting_takes() {
        let is_duration =
            |raw: &RawValue| raw.as_text().and_then(parse_duration).is_some_and(|it| !it.is_zero());
        for (found, meant) in
            [("30", "30s"), ("30 sec", "30s"), ("2 minutes", "2m"), (" 5s", "5s"), ("5S", "5s")]
        {
            let expected = Some(format!("write \"{meant}\""));
            assert_eq!(suggest_value(&text(found), 1_024, is_duration), expected, "{found}");
        }
        assert_eq!(
            suggest_value(&RawValue::Integer(30), 1_024, is_duration).as_deref(),
            Some("write \"30s\"")
        );
        assert_eq!(suggest_value(&text("soon"), 1_024, is_duration), None);
        let is_number = |raw: &RawValue| matches!(raw, RawValue::Integer(1..));
        let hint = suggest_value(&text("32MiB"), 1_024, is_number);
        assert_eq!(hint.as_deref(), Some("write 33554432"));
        let hint = suggest_value(&text("10k"), 1_000, is_number);
        assert_eq!(hint.as_deref(), Some("write 10000"));
        let hint = suggest_value(&RawValue::Integer(10_000), 1_024, is_duration);
        assert_eq!(hint.as_deref(), Some("write \"10000ms\""));
        let is_flag = |raw: &RawValue| matches!(raw, RawValue::Boolean(_));
        assert_eq!(suggest_value(&text("yes"), 1_024, is_flag).as_deref(), Some("write true"));
    }

    #[test]
    fn an_address_is_found_in_other_forms() {
        let is_address = |raw: &RawValue| {
            raw.as_text().is_some_and(|it| it.parse::<std::net::SocketAddr>().is_ok())
        };
        for (found, meant) in [
            (":8080", "0.0.0.0:8080"),
            ("*:8080", "0.0.0.0:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("8080", "127.0.0.1:8080"),
            ("http://10.0.0.1:9000/", "10.0.0.1:9000"),
            ("https://10.0.0.1", "10.0.0.1:443"),
        ] {
            let expected = Some(format!("write \"{meant}\""));
            assert_eq!(suggest_value(&text(found), 1_024, is_address), expected, "{found}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_for_slips_and_for_names_of_other_servers() {
        let known = ["http", "https", "admin", "redirect", "threads"];
        for (found, meant) in [
            ("httpp", Some("http")),
            ("htps", Some("https")),
            ("HTTP", Some("http")),
            ("bind", Some("http")),
            ("thread", Some("threads")),
            ("colour", None),
            ("host", Some("http")),
        ] {
            assert_eq!(nearest_name(found, known.into_iter()), meant, "{found}");
        }
    }
}
