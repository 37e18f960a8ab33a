//! The line of a text with a fault, and a mark below what is faulty.

use std::ops::Range;

/// The line of a file with a fault, without what may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    line_number: usize,
    line: String,
    /// The characters of `line` that are faulty.
    marked: Range<usize>,
}

impl Excerpt {
    /// `line` is the line as it may be shown, and `marked` are its faulty characters.
    pub fn new(line_number: usize, line: String, marked: Range<usize>) -> Excerpt {
        Excerpt { line_number, line, marked }
    }

    /// The number of the line.
    pub fn line_number(&self) -> usize {
        self.line_number
    }

    /// The line with its number, and below it a mark and what to write instead.
    pub fn render(&self, hint: Option<&str>) -> String {
        let Excerpt { line_number, line, marked } = self;
        let number = line_number.to_string();
        let margin = " ".repeat(number.len());
        let (indent, mark) = (" ".repeat(marked.start), "^".repeat(marked.len().max(1)));
        let hint = hint.map_or(String::new(), |hint| format!(" {hint}"));
        format!("{margin} |\n{number} | {line}\n{margin} | {indent}{mark}{hint}")
    }
}
