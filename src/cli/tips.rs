//! What to write in place of wrong words of the command line.

use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::config_args::guess_address;
use super::examples::find_example;
use crate::config::{TextKind, find_nearest_name, redact_if_url};

/// Commands of other programs that riskgate does not have, each with a tip.
const FOREIGN_COMMANDS: [(&[&str], &str); 9] = [
    (&["version"], "riskgate --version prints the version"),
    (&["start", "serve", "server", "up"], "`riskgate run` runs the gateway"),
    (
        &["feed"],
        "`riskgate table feeds` shows the feeds of the config, and `riskgate table update` fetches \
         them",
    ),
    (
        &["status", "health", "ping"],
        "`riskgate doctor` checks what runs; `riskgate ready` asks whether it is",
    ),
    (&["validate", "verify", "test", "configtest", "lint"], "`riskgate check` reads everything"),
    (
        &["reload", "restart", "stop"],
        "a running gateway reads a changed config within two seconds, and SIGTERM ends it; \
         `riskgate check` says whether the config is good",
    ),
    (
        &["plans", "plan"],
        "the config has the plans: [plans] and pro = 10000; `riskgate accounts set NAME --plan \
         pro` gives one to an account",
    ),
    (
        &["users", "user", "customers", "consumers", "tenants"],
        "`riskgate keys create --account NAME` makes an account, and `riskgate accounts list` \
         shows all",
    ),
    (
        &["metrics", "logs"],
        "the metrics are at /metrics of listen.admin; a running gateway writes its logs to \
         standard output and standard error",
    ),
];

/// Options of other programs that riskgate does not have, each with a tip.
const FOREIGN_OPTIONS: [(&[&str], &str); 6] = [
    (
        &["check", "config-check", "configtest", "test", "t", "T", "validate", "dry-run", "n"],
        "`riskgate check -c FILE` reads the config and everything that it names, and starts nothing",
    ),
    (
        &["workers", "threads", "j", "jobs"],
        "write [listen] and threads = 2 in the config; without it, riskgate uses all cores",
    ),
    (
        &["daemon", "daemonize", "detach", "background", "d", "foreground"],
        "riskgate runs in the foreground; systemd or `&` runs it in the background",
    ),
    (
        &["reload", "s", "signal"],
        "a running gateway reads a changed config within two seconds, and SIGTERM ends it",
    ),
    (
        &["url", "store", "store-url", "redis", "redis-url", "dsn", "database"],
        "write [store] and url = \"…\" in the config, or set RISKGATE__STORE__URL",
    ),
    (
        &["verbose", "v", "debug", "log-level", "loglevel", "vv", "quiet", "q"],
        "write [log] and level = \"debug\" in the config, or set RISKGATE__LOG__LEVEL=debug",
    ),
];

/// Names of commands in other programs, each with the names that riskgate's command may have.
const COMMAND_SYNONYMS: [(&[&str], &[&str]); 20] = [
    (&["add", "new", "generate", "gen", "issue", "make", "mint"], &["create", "allow", "init"]),
    (&["ls", "show", "get", "all", "describe"], &["list", "show", "lookup", "inspect"]),
    (
        &["delete", "del", "rm", "remove", "disable", "drop", "expire", "invalidate"],
        &["revoke", "clear"],
    ),
    (&["renew", "regenerate", "roll", "replace"], &["rotate"]),
    (&["block", "ban", "blacklist", "denylist", "blocklist", "reject"], &["deny"]),
    (&["unblock", "whitelist", "allowlist", "permit", "unban"], &["allow"]),
    (&["undo", "unset", "reset", "undeny", "unallow"], &["clear"]),
    (&["query", "find", "search", "domain", "check", "risk"], &["lookup", "list"]),
    (&["token", "tokens", "admin", "hash"], &["admin-token"]),
    (&["refresh", "fetch", "sync", "pull"], &["update", "copy"]),
    (&["dump", "save", "export", "snapshot"], &["backup"]),
    (&["load", "upload"], &["restore", "import"]),
    (&["migrate", "move", "clone"], &["copy"]),
    (&["update", "change", "edit", "modify", "limit", "plan"], &["set", "update"]),
    (&["compile", "generate", "make"], &["build"]),
    (&["validate", "verify", "test", "lint"], &["check"]),
    (&["print", "dump", "view", "cat", "get"], &["show"]),
    (&["stats", "calls", "quota"], &["usage"]),
    (&["logs", "log", "history", "journal"], &["audit"]),
    (&["score", "assess", "judge", "explain"], &["decide"]),
];

/// Options of other programs, each with the option of riskgate that may be meant. Behind the option
/// is a value if the option takes one.
const OPTION_SYNONYMS: [(&[&str], &str); 9] = [
    (&["port", "p", "bind", "http", "address", "host"], "listen 0.0.0.0:8080"),
    (&["server", "servers", "backend", "target", "proxy", "to"], "upstream 127.0.0.1:9000"),
    (&["config-file", "conf", "f", "file", "cfg"], "config riskgate.toml"),
    (&["name", "user", "customer", "id", "owner"], "account NAME"),
    (&["domain", "domains", "origins", "host"], "origin https://app.example.com"),
    (&["ttl", "expiry", "expire", "expires-in", "valid-for"], "expires 90d"),
    (&["quota", "calls", "max", "plan-limit", "monthly-limit"], "limit 1000"),
    (&["comment", "reason", "message"], "note TEXT"),
    (&["output", "format", "o"], "json"),
];

/// Commands, each with the option whose value people write without the option.
const OPTIONS_OF_LONE_VALUES: [(&str, &str); 3] =
    [("accounts set", "plan"), ("doctor", "url"), ("ready", "admin")];

/// Says what to write in place of an unknown command or argument. `words` are the arguments of the
/// process. `None` for other errors, and if nothing better than the error's own words is known.
pub(super) fn find_tip(error: &clap::Error, root: &Command, words: &[String]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if let Some(name) = text(ContextKind::InvalidSubcommand) {
        let (path, parent) = find_named_command(root, words);
        return find_command_tip(root, &path, parent, name);
    }
    let (path, command) = find_named_command(root, words);
    let mut positionals = command.get_positionals();
    if error.kind() == ErrorKind::MissingRequiredArgument {
        let is_dash = |it: &clap::Arg| {
            it.get_value_names().is_some_and(|names| names.iter().any(|name| name == "-"))
        };
        let reads_address = positionals.any(is_dash);
        return reads_address.then(|| format!("echo ADDRESS | riskgate {path} -"));
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let word = text(ContextKind::InvalidArg)?;
    if word.starts_with('-') {
        return find_option_tip(&path, command, word, error, words);
    }
    let is_config = Path::new(word).extension().is_some_and(|extension| extension == "toml");
    if is_config {
        return Some(format!("write -c {word}: -c names the config"));
    }
    if let Some(tip) = find_tip_for_blank(command, word, words) {
        return Some(tip);
    }
    let is_given = |long: &str| words.iter().any(|it| it.trim_start_matches('-').starts_with(long));
    let required = command
        .get_arguments()
        .find(|it| it.is_required_set() && it.get_long().is_some_and(|long| !is_given(long)));
    let of_account = || {
        let mut arguments = command.get_arguments();
        arguments.find(|it| it.get_long() == Some("account") && !is_given("account"))
    };
    let of_lone_value = OPTIONS_OF_LONE_VALUES.iter().find(|(command, _)| *command == path);
    let of_lone_value = match of_lone_value {
        Some((_, "plan")) if word.parse::<u64>().is_ok() => Some("limit"),
        other => other.map(|(_, option)| *option),
    };
    let meant = required.or_else(of_account).and_then(|it| it.get_long()).or(of_lone_value);
    let long = meant?;
    let value = match long {
        "admin" => guess_address(word, TextKind::ServerAddress)?,
        _ => redact_if_url(word),
    };
    Some(format!("write --{long} {value}"))
}

/// Returns the tip for a word behind the value of an option: both were meant as one value.
fn find_tip_for_blank(command: &Command, word: &str, words: &[String]) -> Option<String> {
    let at = words.iter().position(|it| it == word)?;
    let (option, value) = (words.get(at.checked_sub(2)?)?, words.get(at - 1)?);
    let long = option.strip_prefix("--")?;
    let argument = command.get_arguments().find(|it| it.get_long() == Some(long))?;
    let takes_value = argument.get_action().takes_values() && !value.starts_with('-');
    match long {
        _ if !takes_value => None,
        "account" => {
            Some(format!("write {option} {value}-{word}: the name of an account has no blanks"))
        }
        "listen" | "upstream" if word.parse::<u16>().is_ok() => {
            Some(format!("write {option} {value}:{word}"))
        }
        "note" | "label" => {
            let (value, word) = (redact_if_url(value), redact_if_url(word));
            Some(format!("write {option} \"{value} {word}\""))
        }
        _ => None,
    }
}

/// Finds the command that the arguments name. Returns the words that name it, and the command.
fn find_named_command<'c>(root: &'c Command, words: &[String]) -> (String, &'c Command) {
    let (mut path, mut command) = (String::new(), root);
    // `riskgate help keys create` names a command as `riskgate keys create` does.
    for word in words.iter().filter(|it| *it != "help") {
        let Some(inner) = command.find_subcommand(word) else { break };
        path = format!("{path} {word}").trim_start().to_owned();
        command = inner;
    }
    (path, command)
}

/// Returns the tip for an unknown command below `parent`. `None` if nothing is near and `parent`
/// has no commands.
fn find_command_tip(root: &Command, path: &str, parent: &Command, name: &str) -> Option<String> {
    let other = FOREIGN_COMMANDS.iter().find(|(words, _)| path.is_empty() && words.contains(&name));
    if let Some((_, tip)) = other {
        return Some((*tip).to_owned());
    }
    let ends_account = path == "accounts" && ["delete", "rm", "remove", "del"].contains(&name);
    if ends_account {
        let tip = "an account stays; `riskgate accounts set NAME --limit 0` refuses its calls, and \
                   `riskgate keys revoke ID` ends a key";
        return Some(tip.to_owned());
    }
    if path == "config" && ["set", "edit", "write", "update", "change", "add"].contains(&name) {
        let tip = "no command changes the config: edit the file; a running gateway reads it within \
                   two seconds";
        return Some(tip.to_owned());
    }
    let near = guess_command(parent, name).map(|it| format!("{path} {it}"));
    let meant = near.or_else(|| {
        let mut all = Vec::new();
        list_commands(root, "", &mut all);
        let mut of_name = all.iter().filter(|it| it.rsplit(' ').next() == Some(name));
        let first = of_name.next();
        // Behind a command, a common word such as `list` means none of the others.
        let is_meant = path.is_empty() || of_name.next().is_none();
        first.filter(|_| is_meant).cloned()
    });
    match meant.map(|it| it.trim_start().to_owned()) {
        Some(meant) => Some(match find_example(&meant) {
            Some(example) => format!("did you mean `riskgate {meant}`? For example: {example}"),
            None => format!("did you mean `riskgate {meant}`?"),
        }),
        None => {
            let names: Vec<&str> = parent.get_subcommands().map(Command::get_name).collect();
            (!names.is_empty()).then(|| format!("the commands are {}", names.join(", ")))
        }
    }
}

/// Guesses which command below `parent` a wrong name is meant for.
fn guess_command<'c>(parent: &'c Command, name: &str) -> Option<&'c str> {
    let names = || parent.get_subcommands().map(Command::get_name);
    let others = COMMAND_SYNONYMS.iter().filter(|(others, _)| others.contains(&name));
    let mut own = others.flat_map(|(_, own)| own.iter());
    own.find_map(|own| names().find(|it| it == own)).or_else(|| find_nearest_name(name, names()))
}

/// Adds the words of each command below `command` to `out`. `path` has the words of `command`.
fn list_commands(command: &Command, path: &str, out: &mut Vec<String>) {
    for inner in command.get_subcommands() {
        let words = format!("{path} {}", inner.get_name()).trim_start().to_owned();
        out.push(words.clone());
        list_commands(inner, &words, out);
    }
}

fn find_option_tip(
    path: &str,
    command: &Command,
    word: &str,
    error: &clap::Error,
    words: &[String],
) -> Option<String> {
    let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    let without = || FOREIGN_OPTIONS.iter().find(|(others, _)| others.contains(&name));
    if path.is_empty()
        && let Some((_, tip)) = without()
    {
        return Some((*tip).to_owned());
    }
    if command.has_subcommands() {
        let inner = command.get_subcommands().find(|inner| has_option(inner, name))?;
        let inner = format!("{path} {}", inner.get_name());
        let (inner, value) = (inner.trim_start(), if name == "json" { "" } else { " …" });
        return Some(format!("write {word} behind the command: riskgate {inner} {word}{value}"));
    }
    let others = OPTION_SYNONYMS.iter().filter(|(others, _)| others.contains(&name));
    let mut own = others.map(|(_, own)| *own);
    let is_known = |own: &&str| has_option(command, own.split(' ').next().unwrap_or_default());
    if let Some(own) = own.find(is_known) {
        let own = with_given_port(own, word, words);
        return Some(format!("write --{own}"));
    }
    if let Some((_, tip)) = without() {
        return Some((*tip).to_owned());
    }
    let words = ["account", "name", "id", "key", "domain", "file", "month"];
    let mut positional = command.get_positionals();
    if let (true, Some(positional)) = (words.contains(&name), positional.next()) {
        let value = positional.get_id().as_str().to_uppercase();
        return Some(format!("write {value} without {word}: riskgate {path} {value}"));
    }
    if error.get(ContextKind::SuggestedArg).is_some() {
        return None;
    }
    let longs: Vec<String> =
        command.get_arguments().filter_map(|it| Some(format!("--{}", it.get_long()?))).collect();
    (!longs.is_empty()).then(|| format!("`riskgate {path}` has {}", longs.join(", ")))
}

/// Returns a synonym of an option with the port that the words give behind the option.
fn with_given_port(own: &str, option: &str, words: &[String]) -> String {
    let name = option.split('=').next().unwrap_or_default();
    let behind = |at: usize| words.get(at + 1).map(String::as_str);
    let mut at = words.iter().enumerate();
    let given = at.find_map(|(at, it)| match it.split_once('=') {
        Some((own, value)) if own == name => Some(value),
        None if it == name => behind(at),
        _ => None,
    });
    let port = given.and_then(|it| it.parse::<u16>().ok());
    match port.filter(|_| own.starts_with("listen ")) {
        Some(port) => format!("listen 127.0.0.1:{port}"),
        None => own.to_owned(),
    }
}

/// Whether a command has an option with this long or short name.
fn has_option(command: &Command, name: &str) -> bool {
    command.get_arguments().any(|it| {
        let short = it.get_short().map(String::from);
        it.get_long() == Some(name) || short.as_deref() == Some(name)
    })
}
