//! The lines and columns of a text.

/// Where the lines of a text end. Without this index, each place would cost a pass over the text,
/// which would take minutes for the keys of a file with a hundred thousand keys.
pub struct LineIndex<'t> {
    text: &'t str,
    line_ends: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    /// Finds the lines of a text.
    pub fn new(text: &'t str) -> LineIndex<'t> {
        LineIndex { text, line_ends: text.match_indices('\n').map(|(at, _)| at).collect() }
    }

    /// Returns the number of a byte's line, and the text of the line before the byte. Lines count
    /// from 1.
    pub fn line_and_text_before(&self, offset: usize) -> (usize, &'t str) {
        let line = self.line_ends.partition_point(|end| *end < offset);
        let start = if line == 0 { 0 } else { self.line_ends[line - 1] + 1 };
        (line + 1, self.text.get(start..offset).unwrap_or_default())
    }

    /// Formats the place of a byte as `file:line:column`. Columns count from 1, and each character
    /// has one.
    pub fn format_place(&self, file: &str, offset: usize) -> String {
        let (line, before) = self.line_and_text_before(offset);
        format!("{file}:{line}:{}", before.chars().count() + 1)
    }
}

#[cfg(test)]
mod tests;
