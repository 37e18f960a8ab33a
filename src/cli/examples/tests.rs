use clap::{CommandFactory as _, Parser as _};

use super::*;
use crate::cli::Cli;

/// Lists the words of all commands that have no commands below them.
fn list_leaf_commands(command: &Command, path: &str, out: &mut Vec<String>) {
    for inner in command.get_subcommands() {
        let words = format!("{path}{}", inner.get_name());
        match inner.has_subcommands() {
            true => list_leaf_commands(inner, &format!("{words} "), out),
            false => out.push(words),
        }
    }
}

#[test]
fn each_command_has_an_example_that_is_right() {
    let mut commands = Vec::new();
    list_leaf_commands(&Cli::command(), "", &mut commands);
    for words in commands.iter().filter(|words| *words != "man") {
        let example = EXAMPLES.iter().find(|(command, _)| command == words);
        let (_, more) = example.unwrap_or_else(|| panic!("{words} has no example"));
        let line = format!("riskgate {words} {more}");
        if let Err(error) = Cli::try_parse_from(line.split_whitespace()) {
            panic!("{line}: {error}");
        }
    }
    assert!(EXAMPLES.iter().all(|(words, _)| commands.iter().any(|it| it == words)));
}
