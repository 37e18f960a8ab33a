//! The commands of riskgate in the documents: the real binary parses each of them, and runs those
//! that need no network.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use super::markdown::{Document, read_documents};
use super::shell::split_commands;
use super::{project_root, run_riskgate, stderr_text};

/// Names of what is measured in docs/benchmarks.md. They begin with the name of the program, and
/// are no commands.
const NO_COMMANDS: [&str; 3] =
    ["riskgate Pingora path", "riskgate fast path", "riskgate, not screened"];
/// Words before the name of a program. `--` ends the options of a program such as `kubectl exec`.
const PREFIXES: [&str; 5] = ["sudo", "env", "time", "nohup", "--"];
/// Options that a text may mention without a value.
const OPTIONS_WITH_VALUE: [&str; 3] = ["--account", "--dir", "--limit"];
/// Commands that change nothing outside the directory in which they run, and ask no other server.
const HARMLESS: [&str; 16] = [
    "check",
    "config check",
    "config show",
    "config schema",
    "keys create",
    "keys list",
    "accounts set",
    "accounts list",
    "usage",
    "table inspect",
    "table lookup",
    "table build",
    "table diff",
    "table allow",
    "table deny",
    "table clear",
];

/// The arguments of riskgate, if a command runs it or its image.
fn find_arguments(words: &[String]) -> Option<&[String]> {
    let is_prefix = |word: &String| PREFIXES.contains(&word.as_str()) || word.contains('=');
    let is_program = |at: &usize| match words[*at].as_str() {
        "/usr/bin/riskgate" => true,
        word if word.starts_with("ghcr.io/riskgate/riskgate:") => *at + 1 < words.len(),
        word if word == "riskgate" || word.ends_with("/riskgate") => {
            *at == 0 || is_prefix(&words[*at - 1]) || *at > 1 && words[*at - 2] == "-u"
        }
        _ => false,
    };
    let at = (0..words.len()).find(is_program)?;
    Some(&words[at + 1..])
}

#[test]
fn the_arguments_of_riskgate_are_found_behind_other_programs() {
    for (text, expected) in [
        ("riskgate usage", Some("usage")),
        ("sudo target/release/riskgate run -c x", Some("run -c x")),
        ("A=b riskgate check", Some("check")),
        ("kubectl exec -n riskgate deploy/riskgate -- riskgate keys list", Some("keys list")),
        ("sudo -u riskgate riskgate usage", Some("usage")),
        ("podman run -p 8080:8080 ghcr.io/riskgate/riskgate:0.1.0 demo", Some("demo")),
        ("podman exec riskgate /usr/bin/riskgate keys list", Some("keys list")),
        ("podman pull ghcr.io/riskgate/riskgate:0.1.0", None),
        ("kubectl get -n riskgate pods", None),
        ("ls conf/riskgate", None),
    ] {
        let words = split_commands(text).remove(0);
        assert_eq!(find_arguments(&words).map(|it| it.join(" ")).as_deref(), expected, "{text}");
    }
}

/// The commands in code spans, which may have placeholders and optional parts.
fn find_mentions(document: &Document) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for span in document.code_spans() {
        if NO_COMMANDS.contains(&span.as_str()) {
            continue;
        }
        for words in split_commands(&span.replace(['[', ']', '…'], " ")) {
            found.extend(find_arguments(&words).map(<[String]>::to_vec));
        }
    }
    found
}

/// The commands in blocks, which a reader can paste into a shell.
fn find_examples(document: &Document) -> Vec<Vec<String>> {
    let blocks = document.blocks();
    let is_shell = |language: Option<&str>| matches!(language, None | Some("sh" | "bash"));
    let texts = blocks.iter().filter(|block| is_shell(block.language.as_deref()));
    let commands = texts.flat_map(|block| split_commands(&block.text));
    commands.filter_map(|words| find_arguments(&words).map(<[String]>::to_vec)).collect()
}

/// A value in place of a placeholder whose value is not any text.
fn fill_placeholder(word: &str) -> &str {
    match word {
        "ADDR" => "127.0.0.1:1",
        "COMMAND" => "run",
        "DAY" => "2026-12-31",
        "M" => "2026-11",
        "N" => "7",
        "SHELL" => "bash",
        word => word,
    }
}

#[test]
fn riskgate_can_parse_every_command_in_the_documents() {
    let folder = tempfile::tempdir().unwrap();
    let mut commands = BTreeSet::new();
    for document in read_documents() {
        for words in find_mentions(&document).into_iter().chain(find_examples(&document)) {
            commands.insert((words, document.name.clone()));
        }
    }
    assert!(commands.len() > 80, "{}", commands.len());
    for (words, name) in commands {
        let mut filled: Vec<&str> = words.iter().map(|word| fill_placeholder(word)).collect();
        if filled.last().is_some_and(|word| OPTIONS_WITH_VALUE.contains(word)) {
            // A text that mentions an option gives it no value.
            filled.push("value");
        }
        // riskgate parses all words before it prints its help, and runs nothing.
        filled.push("--help");
        let parsed = run_riskgate(folder.path(), &filled);
        let text = words.join(" ");
        assert!(parsed.status.success(), "{name}: riskgate {text}: {}", stderr_text(&parsed));
    }
    for wrong in [&["keys", "make", "--help"][..], &["run", "--no-such", "--help"]] {
        assert_eq!(run_riskgate(folder.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Whether an example runs anywhere: it is in `HARMLESS`, and names only what is there.
fn is_harmless(words: &[String]) -> bool {
    let command = words.iter().take(2).take_while(|word| !word.starts_with('-'));
    let command = command.map(String::as_str).collect::<Vec<_>>().join(" ");
    let is_listed =
        HARMLESS.iter().any(|it| command == *it || command.starts_with(&format!("{it} ")));
    let is_elsewhere = |word: &String| {
        word.starts_with('/') || word.starts_with("target/") || word.starts_with('$')
    };
    let is_placeholder =
        |word: &String| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    is_listed && !words.iter().any(|word| is_elsewhere(word) || is_placeholder(word))
}

#[test]
fn the_examples_of_each_document_run_in_their_order() {
    let mut count = 0;
    for document in read_documents() {
        let folder = tempfile::tempdir().unwrap();
        symlink(project_root().join("data"), folder.path().join("data")).unwrap();
        std::fs::create_dir(folder.path().join("conf")).unwrap();
        for words in find_examples(&document).into_iter().filter(|words| is_harmless(words)) {
            let ran = run_riskgate(folder.path(), &words);
            let text = words.join(" ");
            let failure = format!("{}: riskgate {text}: {}", document.name, stderr_text(&ran));
            assert!(ran.status.success(), "{failure}");
            count += 1;
        }
    }
    assert!(count >= 6, "{count}");
}

#[test]
fn docs_commands_md_has_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let documents = read_documents();
    let document = documents.iter().find(|it| it.name == "docs/commands.md").unwrap();
    let described: BTreeSet<String> = find_mentions(document)
        .into_iter()
        .map(|words| words.into_iter().take_while(|word| is_lower(word)).collect::<Vec<_>>())
        .map(|words| words.join(" "))
        .collect();
    let mut waiting = vec![Vec::<String>::new()];
    let mut count = 0;
    while let Some(words) = waiting.pop() {
        let arguments = [words.as_slice(), &["--help".to_owned()]].concat();
        let help = String::from_utf8(run_riskgate(folder.path(), &arguments).stdout).unwrap();
        let names = list_subcommands(&help);
        if names.is_empty() {
            let command = words.join(" ");
            let is_described =
                described.iter().any(|it| *it == command || it.starts_with(&format!("{command} ")));
            assert!(is_described, "docs/commands.md has no row for {command}");
            count += 1;
        }
        waiting.extend(names.into_iter().map(|name| [words.as_slice(), &[name]].concat()));
    }
    assert!(count > 25, "{count}");
}

fn is_lower(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !word.starts_with('-')
}

/// The names below "Commands:" in a help text.
fn list_subcommands(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}
