//! Config text is either accepted completely, or each fault names its place. Neither result shows a
//! secret.

use std::sync::LazyLock;

use riskgate::config::{Config, ConfigFault, ConfigFile, ConfigSources};

use super::ScratchFolder;

static SCRATCH_FOLDER: LazyLock<ScratchFolder> = LazyLock::new(|| ScratchFolder::new("config"));
/// The secret that the seeds contain in passwords and tokens.
const SECRET: &str = "s3cr3t";

/// Panics if a promise is broken for this input.
pub fn check_input(data: &[u8]) {
    let path = SCRATCH_FOLDER.write_file("riskgate.toml", data);
    let place = path.display().to_string();
    let file = ConfigFile::Path(path);
    let (config, faults) =
        Config::read_collecting_faults(&ConfigSources { file, flags: Vec::new() });
    assert!(config.is_some() || !faults.is_empty(), "nothing read and nothing wrong");
    let lines = 1 + data.iter().filter(|byte| **byte == b'\n').count();
    // With the line of the file and what to write, as the command line shows them.
    let faults: Vec<String> = faults.iter().map(ConfigFault::to_text).collect();
    for fault in &faults {
        if let Some(rest) = fault.strip_prefix(&place) {
            let at = rest.strip_prefix(':').and_then(|rest| rest.split_once(": "));
            let at = at.and_then(|(at, _)| at.split_once(':'));
            let column = at.and_then(|(_, column)| column.parse::<usize>().ok());
            let line = at.and_then(|(line, _)| line.parse::<usize>().ok());
            let line = line.filter(|_| column.is_some_and(|column| column <= data.len() + 1));
            let whole_file_faults = [
                ": expected a config file, but found ",
                ": expected settings, but found an empty file",
            ];
            let concerns_whole_file = whole_file_faults.iter().any(|fault| rest.starts_with(fault));
            assert!(
                concerns_whole_file || line.is_some_and(|at| (1..=lines).contains(&at)),
                "{fault}"
            );
        } else {
            assert!(fault.starts_with("config: "), "{fault}");
        }
        assert!(fault.contains("expected ") && fault.contains("found"), "{fault}");
    }
    let is_hidden = is_secret_only_in_secret_settings(data);
    if is_hidden {
        assert!(faults.iter().all(|fault| !fault.contains(SECRET)), "{faults:?}");
    }
    let Some(config) = config else { return };
    if is_hidden {
        let shown = format!("{config:?}");
        assert!(!shown.contains(SECRET), "{shown}");
    }
    assert!(
        config.startup.list_changes(&config.startup.clone()).is_empty(),
        "the config differs from itself"
    );
    if faults.is_empty() {
        assert!(
            config.reloadable.plans.contains_key("free"),
            "accounts without a plan have no limit"
        );
        assert!(
            config.startup.admin.ip().is_loopback() || !config.reloadable.admin_tokens.is_empty()
        );
        assert!(!config.startup.upstream.servers.is_empty());
        for prefix in &config.reloadable.upstream_routes {
            let path = prefix.path_prefix.as_str();
            assert!(path == "/" || path.starts_with('/') && !path.ends_with('/'));
            assert!(prefix.needs_key || !prefix.is_counted);
        }
    }
}

/// Returns true if the secret occurs only where a secret may stand, or may stand by mistake: in the
/// admin token and in the hashes of tokens, in the secret of webhooks, and in the part of a URL
/// before its host.
fn is_secret_only_in_secret_settings(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(written) = text.parse::<toml::Table>() else { return false };
    let setting = |section: &str, key: &str| written.get(section)?.get(key);
    let mut hidden = texts_in(setting("admin", "token"));
    if let Some(tokens) = setting("admin", "token").and_then(toml::Value::as_array) {
        hidden.extend(tokens.iter().flat_map(|token| texts_in(token.get("hash"))));
    }
    hidden.extend(texts_in(setting("webhook", "secret")));
    for url in [setting("store", "url"), setting("webhook", "url")].map(texts_in).concat() {
        let user = url.rsplit_once('@').map_or("", |(user, _)| user);
        // A fault shows the text before `://`, so that the operator sees a mistyped scheme.
        hidden.push(user.split_once("://").map_or(user, |(_, user)| user).to_owned());
    }
    let count = |text: &str| text.matches(SECRET).count();
    count(text) > 0 && count(text) == hidden.iter().map(|text| count(text)).sum::<usize>()
}

/// The texts of a setting, in lists too. A table has settings of its own, whose names are shown.
fn texts_in(value: Option<&toml::Value>) -> Vec<String> {
    match value {
        None | Some(toml::Value::Table(_)) => Vec::new(),
        Some(toml::Value::Array(list)) => {
            list.iter().flat_map(|entry| texts_in(Some(entry))).collect()
        }
        Some(value) => vec![value.to_string()],
    }
}
