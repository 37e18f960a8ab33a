//! Reads what the tests need of Markdown: code, links and headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::project_root;

/// A document of the repository.
pub struct Document {
    /// Its path in the repository.
    pub name: String,
    pub text: String,
}

/// A block of code.
pub struct Block {
    pub line: usize,
    /// The info string of a fenced block; none for an indented block.
    pub language: Option<String>,
    pub text: String,
}

/// Returns all documents that people write.
pub fn read_documents() -> Vec<Document> {
    let mut names = Vec::new();
    for (folder, depth) in [("", 0), ("docs", 0), ("data", 0), ("contrib", 4), ("conf", 2)] {
        collect_documents(&project_root().join(folder), depth, &mut names);
    }
    names.sort();
    let root = project_root();
    let read = |path: std::path::PathBuf| Document {
        name: path.strip_prefix(root).unwrap().display().to_string(),
        text: fs::read_to_string(&path).unwrap(),
    };
    let documents: Vec<Document> = names.into_iter().map(read).collect();
    assert!(documents.len() >= 15, "expected the project's documents, found {}", documents.len());
    documents
}

fn collect_documents(folder: &Path, depth: usize, names: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() && depth > 0 {
            collect_documents(&path, depth - 1, names);
        } else if path.extension().is_some_and(|it| it == "md") {
            names.push(path);
        }
    }
}

impl Document {
    pub fn blocks(&self) -> Vec<Block> {
        split_blocks(&self.text).0
    }

    /// The code spans outside blocks, each on one line.
    pub fn code_spans(&self) -> Vec<String> {
        split_spans(&split_blocks(&self.text).1).0
    }

    /// The targets of all links.
    pub fn links(&self) -> Vec<String> {
        find_links(&split_spans(&split_blocks(&self.text).1).1)
    }

    /// The anchors that GitHub gives the headings.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let prose = split_blocks(&self.text).1;
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let base = anchor_of(line.trim_start_matches('#').trim());
                let count = counts.entry(base.clone()).or_default();
                *count += 1;
                if *count == 1 { base } else { format!("{base}-{}", *count - 1) }
            })
            .collect()
    }
}

fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || matches!(it, '-' | '_' | ' '));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// How many spaces begin a line.
fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Where the text of a list item begins.
fn list_indent(line: &str) -> Option<usize> {
    let text = line.trim_start();
    let marker = match text.strip_prefix(['-', '*']) {
        Some(_) => 1,
        None => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            (digits > 0 && text[digits..].starts_with('.')).then_some(digits + 1)?
        }
    };
    text[marker..].starts_with(' ').then_some(indent_of(line) + marker + 1)
}

/// Returns the blocks of code, and the text with an empty line for each line of a block.
fn split_blocks(text: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut prose): (Vec<Block>, String) = (Vec::new(), String::new());
    let (mut is_fenced, mut is_indented, mut after_blank, mut list) = (false, false, true, 0);
    for (at, line) in text.lines().enumerate() {
        let mut in_prose = "";
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            if is_fenced {
                let language = Some(line.trim().trim_start_matches('`').to_owned());
                blocks.push(Block { line: at + 1, language, text: String::new() });
            }
            is_indented = false;
        } else if is_fenced {
            push_line(&mut blocks, line);
        } else if line.trim().is_empty() {
            if is_indented {
                push_line(&mut blocks, "");
            }
        } else if (is_indented || after_blank) && indent_of(line) >= list + 4 {
            if !is_indented {
                blocks.push(Block { line: at + 1, language: None, text: String::new() });
                is_indented = true;
            }
            push_line(&mut blocks, &line[list + 4..]);
        } else {
            is_indented = false;
            list = list_indent(line).unwrap_or(if indent_of(line) < list { 0 } else { list });
            in_prose = line;
        }
        after_blank = line.trim().is_empty();
        prose.push_str(in_prose);
        prose.push('\n');
    }
    (blocks, prose)
}

fn push_line(blocks: &mut [Block], line: &str) {
    let text = &mut blocks.last_mut().expect("a block has begun").text;
    text.push_str(line);
    text.push('\n');
}

/// Returns the code spans, and the text without them.
fn split_spans(prose: &str) -> (Vec<String>, String) {
    let (mut spans, mut rest) = (Vec::new(), String::new());
    for paragraph in prose.split("\n\n") {
        let mut left = paragraph;
        while let Some(start) = left.find('`') {
            let ticks = left[start..].bytes().take_while(|byte| *byte == b'`').count();
            let begin = start + ticks;
            let Some(end) = left[begin..].find(&left[start..begin]) else { break };
            let span = left[begin..begin + end].split_whitespace().collect::<Vec<_>>().join(" ");
            spans.push(span.replace("\\|", "|"));
            rest.push_str(&left[..start]);
            left = &left[begin + end + ticks..];
        }
        rest.push_str(left);
        rest.push_str("\n\n");
    }
    (spans, rest)
}

/// The targets of inline links, of link definitions and of addresses between `<` and `>`.
fn find_links(text: &str) -> Vec<String> {
    let between = |start: &str, end: char| -> Vec<String> {
        let parts = text.split(start).skip(1);
        let ends = parts.filter_map(|part| part.split_once(end)).map(|(target, _)| target);
        ends.map(|target| target.split_whitespace().next().unwrap_or_default().to_owned()).collect()
    };
    let mut links = between("](", ')');
    links.extend(between("<http", '>').into_iter().map(|rest| format!("http{rest}")));
    let definitions = text.lines().filter(|line| line.starts_with('['));
    links.extend(definitions.filter_map(|line| Some(line.split_once("]: ")?.1.trim().to_owned())));
    links
}

#[test]
fn code_links_and_headings_are_found() {
    let text = "# A `[b]` c\n\n# A b c\n\nSee [it\nhere](a.md#b) and `[no](link)`,\n\
                <http://x.test>.\n\n    one\n\n    two\n\n1. Item\n\n       three\n\n   more\n\n\
                ```toml\nfour = 4\n```\n[ref]: https://y.test\n";
    let document = Document { name: String::new(), text: text.to_owned() };
    let blocks: Vec<_> =
        document.blocks().into_iter().map(|block| (block.language, block.text)).collect();
    let expected = [
        (None, "one\n\ntwo\n\n".to_owned()),
        (None, "three\n\n".to_owned()),
        (Some("toml".to_owned()), "four = 4\n".to_owned()),
    ];
    assert_eq!(blocks, expected);
    assert_eq!(document.links(), ["a.md#b", "http://x.test", "https://y.test"]);
    assert_eq!(document.anchors(), ["a-b-c", "a-b-c-1"].map(str::to_owned).into());
    assert_eq!(document.code_spans(), ["[b]", "[no](link)"]);
}
