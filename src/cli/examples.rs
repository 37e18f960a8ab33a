//! An example for the help of each command.

use clap::Command;

/// One example for each command that has no commands below it, except `man`: the words that name
/// the command, and its arguments.
const EXAMPLES: [(&str, &str); 40] = [
    ("run", "-c /etc/riskgate/riskgate.toml --upstream 127.0.0.1:9000"),
    ("init", "--upstream 127.0.0.1:3000 --sign-up /signup --account acme"),
    ("demo", ""),
    ("ready", "--admin 127.0.0.1:9090"),
    ("doctor", "--url https://signup.example.com"),
    ("check", "-c riskgate.toml"),
    ("config check", "-c riskgate.toml"),
    ("config show", "--json"),
    ("config schema", ""),
    ("keys create", "--account acme --plan pro --origin https://app.example.com --expires 90d"),
    ("keys list", "--account acme"),
    ("keys rotate", "key_0123456789abcdef --overlap 7d"),
    ("keys revoke", "key_0123456789abcdef"),
    ("keys import", "conf/keys.example.toml"),
    ("accounts list", "--json"),
    ("accounts set", "acme --plan business --limit 250000"),
    ("admin-token create", "--name ada --scope write --expires 90d"),
    ("usage", "--month 2026-11 --csv"),
    ("audit", "--operation key. --actor ada"),
    ("store init", "-c riskgate.toml"),
    ("store check", "--json"),
    ("store copy", "sqlite:state/riskgate.db redis://cache.internal:6379"),
    ("store backup", "/var/backups/riskgate.db"),
    ("store restore", "/var/backups/riskgate.db"),
    ("store repair-month", "2026-11"),
    ("decide", "- --route /signup --fact inbox_accounts_30d=3"),
    ("sign-ups show", "- --json"),
    ("sign-ups delete", "- -c riskgate.toml"),
    ("table build", "data -o lists.bin"),
    ("table inspect", "data"),
    ("table lookup", "mail.yopmail.com gmial.com"),
    ("table diff", "old-data data"),
    ("table allow", "example.com --note ticket-17 --until 2030-12-31"),
    ("table deny", "bad.example.com --exact"),
    ("table clear", "example.com"),
    ("table update", "castle"),
    ("table feeds", "--json"),
    ("table resolve", "names.txt -o facts.csv"),
    ("table suggest-hosts", "--min 5"),
    ("completions", "bash"),
];

/// Adds the examples to the help of all commands below `command`. `command` itself gets no example.
/// `path` has the words that name `command`, each with a blank behind it; it is empty for the root.
pub(super) fn with_examples(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let path = format!("{path}{name}");
        command.mut_subcommand(name, |inner| {
            let example = EXAMPLES.iter().find(|(words, _)| *words == path);
            let inner = with_examples(inner, &format!("{path} "));
            match example {
                Some((words, more)) => {
                    let line = format!("riskgate {words} {more}");
                    inner.after_help(format!("Example:\n  {}", line.trim_end()))
                }
                None => inner,
            }
        })
    })
}

/// Returns the whole line of the example for the command that `words` name.
pub(super) fn find_example(words: &str) -> Option<String> {
    let (_, more) = EXAMPLES.iter().find(|(command, _)| *command == words)?;
    Some(format!("riskgate {words} {more}").trim_end().to_owned())
}

#[cfg(test)]
mod tests;
