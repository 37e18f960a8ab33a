//! Measures the lengths of functions.

/// The index of the first line and the number of lines of each function. The text must be
/// formatted by rustfmt, because the indentation shows where a function ends.
pub fn function_lengths(lines: &[&str]) -> Vec<(usize, usize)> {
    let is_function = |line: &str| {
        let words = line.split(' ').take_while(|word| !word.contains(['"', '/', '=']));
        let mut words = words.skip_while(|word| {
            word.starts_with("pub") || ["const", "async", "unsafe"].contains(word)
        });
        words.next() == Some("fn")
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
