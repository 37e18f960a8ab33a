//! The examples in the documents: configs, JSON, shell and Python.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Deserializer, Value};

use super::markdown::{Block, read_documents};
use super::{run_riskgate, stderr_text};

/// The first words of the info strings of fenced blocks. riskgate must accept a block `toml` as its
/// config; TOML for another program has a second word, such as `toml cargo`.
const LANGUAGES: [&str; 16] = [
    "toml", "json", "sh", "bash", "python", "rust", "yaml", "nginx", "text", "promql", "ini",
    "html", "js", "php", "ruby", "",
];

/// The blocks of the documents with one of these info strings, and where they are. `None` stands
/// for an indented block.
fn find_blocks(languages: &[Option<&str>]) -> Vec<(String, Block)> {
    let mut found = Vec::new();
    for document in read_documents() {
        for block in document.blocks() {
            if languages.contains(&block.language.as_deref()) {
                found.push((format!("{}:{}", document.name, block.line), block));
            }
        }
    }
    found
}

/// Runs a program that reads a block from its standard input.
fn pipe_into(program: &str, arguments: &[&str], text: &str) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Has the real `riskgate check` read a config.
fn check_config(folder: &Path, toml: &str) -> Output {
    fs::write(folder.join("riskgate.toml"), toml).unwrap();
    run_riskgate(folder, &["check", "-c", "riskgate.toml"])
}

#[test]
fn every_block_has_a_known_language() {
    for document in read_documents() {
        for block in document.blocks() {
            let language = block.language.as_deref().unwrap_or("").split(' ').next().unwrap();
            let at = format!("{}:{}", document.name, block.line);
            assert!(LANGUAGES.contains(&language), "{at}: unknown language {language:?}");
        }
    }
}

#[test]
fn riskgate_accepts_every_config_in_the_documents() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = find_blocks(&[Some("toml")]);
    assert!(blocks.len() >= 2, "{}", blocks.len());
    for (at, block) in blocks {
        let checked = check_config(folder.path(), &block.text);
        assert!(checked.status.success(), "{at}: {}", stderr_text(&checked));
    }
    let refused = check_config(folder.path(), "[upstream]\nserver = \"127.0.0.1:9000\"\n");
    assert_eq!(refused.status.code(), Some(78), "{}", stderr_text(&refused));
}

#[test]
fn every_block_of_a_program_parses() {
    for (language, program, arguments, lead) in [
        ("python", "python3", &["-c", "import ast, sys; ast.parse(sys.stdin.read())"][..], ""),
        ("ruby", "ruby", &["-c"], ""),
        ("js", "node", &["--check", "-"], ""),
        ("php", "php", &["-l"], "<?php\n"),
    ] {
        let blocks = find_blocks(&[Some(language)]);
        assert!(!blocks.is_empty(), "{language}");
        for (at, block) in blocks {
            let parsed = pipe_into(program, arguments, &format!("{lead}{}", block.text));
            assert!(parsed.status.success(), "{at}: {}", stderr_text(&parsed));
        }
    }
    let broken = pipe_into("php", &["-l"], "<?php\nif (");
    assert!(!broken.status.success());
}

#[test]
fn every_json_block_is_json() {
    let blocks = find_blocks(&[Some("json")]);
    assert!(blocks.len() >= 4, "{}", blocks.len());
    for (at, block) in blocks {
        // `…` stands for further members.
        let text = block.text.replace(",…", "");
        let values: Result<Vec<Value>, _> = Deserializer::from_str(&text).into_iter().collect();
        assert!(values.as_ref().is_ok_and(|it| !it.is_empty()), "{at}: {values:?}");
    }
}

#[test]
fn bash_can_parse_every_shell_block() {
    let blocks = find_blocks(&[Some("sh"), Some("bash"), None]);
    assert!(blocks.len() >= 10, "{}", blocks.len());
    for (at, block) in blocks {
        let parsed = pipe_into("bash", &["-n"], &block.text);
        assert!(parsed.status.success(), "{at}: {}", stderr_text(&parsed));
    }
    assert!(!pipe_into("bash", &["-n"], "echo $(").status.success());
}

#[test]
fn python_can_parse_every_python_block() {
    let blocks = find_blocks(&[Some("python")]);
    assert!(!blocks.is_empty());
    for (at, block) in blocks {
        let parse = "import ast, sys; ast.parse(sys.stdin.read())";
        let parsed = pipe_into("python3", &["-c", parse], &block.text);
        assert!(parsed.status.success(), "{at}: {}", stderr_text(&parsed));
    }
}
