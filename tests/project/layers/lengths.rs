//! Measures the lengths of functions.

use super::paths::strip_visibility;

/// The index of the first line and the number of lines of each function. The text must be
/// formatted by rustfmt, because the indentation shows where a function ends.
pub fn function_lengths(lines: &[&str]) -> Vec<(usize, usize)> {
    let modifiers = ["const", "async", "unsafe", "extern", "\"C\""];
    let is_function = |line: &str| {
        let mut words = strip_visibility(line).split(' ');
        words.find(|word| !modifiers.contains(word)) == Some("fn")
    };
    let mut lengths = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_function(line.trim_start())) {
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = lines[at..].iter().position(|line| {
            let code = line.strip_prefix(indent).filter(|code| !code.starts_with(' '));
            code.is_some_and(|code| code.starts_with('}') || code.ends_with([';', '}']))
        });
        lengths.push((at, end.map_or(1, |end| end + 1)));
    }
    lengths
}

#[test]
fn functions_of_every_visibility_are_measured() {
    let starts = [
        "fn",
        "pub fn",
        "pub(crate) const fn",
        "pub(in crate::process) fn",
        "    pub(in super::super) async fn",
        "unsafe extern \"C\" fn",
    ];
    for start in starts {
        let indent = &start[..start.len() - start.trim_start().len()];
        let code =
            format!("let x = 1;\n{start} f(\n{indent}    x: u8,\n{indent}) {{\n{indent}}}\n");
        assert_eq!(function_lengths(&code.lines().collect::<Vec<_>>()), [(1, 4)], "{start}");
    }
}
