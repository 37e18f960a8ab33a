//! Output of commands: results go to standard output, messages to standard error.
//!
//! If a result can't be written, the command fails, and does not panic. If a message can't be
//! written, the command goes on.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use anstream::{AutoStream, ColorChoice};
use serde_json::Value;

use super::failure::CommandFailure;
use crate::keys::hide_keys;

const WARNING: &str = "warning:";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const RESET: &str = "\x1b[0m";

/// Writes a result to standard output. If the reader has closed the pipe, the command fails without
/// a message.
pub fn print_result(result: impl AsRef<[u8]>) -> Result<(), CommandFailure> {
    write_stdout(result.as_ref()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CommandFailure { message_lines: Vec::new(), exit_code: 1 },
        _ => CommandFailure::failed(describe_stdout_error(&error)),
    })
}

/// Writes the result of a command that has changed something. If the result can't be written, the
/// failure contains `done`, which says what the command has changed.
pub fn print_result_of_change(done: &str, result: impl AsRef<[u8]>) -> Result<(), CommandFailure> {
    write_stdout(result.as_ref()).map_err(|error| {
        CommandFailure::failed(format!("{done}; {}", describe_stdout_error(&error)))
    })
}

/// Reports what a command has changed: `done` in words to standard error, or `object` as JSON to
/// standard output.
pub fn report_change(done: &str, object: &Value, json: bool) -> Result<(), CommandFailure> {
    if json {
        return print_result_of_change(done, format!("{object}\n"));
    }
    print_message(done);
    Ok(())
}

/// Writes all bytes directly to the descriptor of standard output. The standard library could write
/// its buffer after the command has reported a failure, so this function does not use that buffer.
pub fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    File::from(io::stdout().as_fd().try_clone_to_owned()?).write_all(bytes)
}

/// Writes a secret that is shown only once to standard output. Returns an error if standard output
/// was closed when the process started, because nobody would see the secret. Rust's runtime has
/// then opened `/dev/null` in its place, for reading and writing.
pub fn write_secret(bytes: &[u8]) -> io::Result<()> {
    let device = |path: &str| fs::metadata(path).map(|meta| meta.rdev()).ok();
    let fields = fs::read_to_string("/proc/self/fdinfo/1").unwrap_or_default();
    let flags = fields.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim);
    let mode = flags.and_then(|flags| i32::from_str_radix(flags, 8).ok());
    let is_read_write = mode.is_some_and(|mode| mode & libc::O_ACCMODE == libc::O_RDWR);
    if is_read_write && device("/proc/self/fd/1") == device("/dev/null") {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    write_stdout(bytes)
}

/// The message for a failed write to standard output.
pub fn describe_stdout_error(error: &io::Error) -> String {
    format!("standard output: expected to write to it, but found {error}")
}

/// Writes one line to standard error. If the line begins with `warning:`, this word is yellow on a
/// terminal that shows colours.
pub fn print_message(line: impl AsRef<str>) {
    let line = line.as_ref();
    match line.strip_prefix(WARNING).filter(|_| shows_colors()) {
        Some(rest) => write_stderr(&format!("{YELLOW}{WARNING}{RESET}{rest}\n")),
        None => write_stderr(&format!("{line}\n")),
    }
}

/// Writes a warning to standard error.
pub fn print_warning(warning: impl Display) {
    print_message(format!("{WARNING} {warning}"));
}

/// Writes one line of a failed command to standard error, with `…` in place of API keys. The line
/// is red on a terminal that shows colours.
pub fn print_failure(line: impl AsRef<str>) {
    let line = hide_keys(line.as_ref());
    match shows_colors() {
        true => write_stderr(&format!("{RED}{line}{RESET}\n")),
        false => write_stderr(&format!("{line}\n")),
    }
}

/// Writes one line about the progress of long work to standard error, if that is a terminal.
pub fn print_progress(line: impl AsRef<str>) {
    if io::stderr().is_terminal() {
        print_message(line);
    }
}

/// Returns true if standard error shows colours, and the user wants colours: see
/// <https://no-color.org>.
fn shows_colors() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

fn write_stderr(line: &str) {
    // One write, so that a line of another process does not split this line.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The narrowest width to which a column is shortened, in characters.
const MIN_COLUMN_WIDTH: usize = 8;

/// Formats rows as aligned columns. Writes control characters as escapes such as `\u{1b}`, so that
/// no label and no name controls the terminal. If standard output is a terminal, shortens the
/// widest columns until the rows fit, as far as [`format_columns_within`] allows.
pub fn format_columns(header: &[&str], rows: &[Vec<String>]) -> String {
    let terminal_width = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let terminal_width = terminal_width.map(|size| usize::from(size.ws_col));
    let escape_row = |row: &Vec<String>| row.iter().map(|cell| escape_controls(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escape_row).collect();
    format_columns_within(header, &rows, terminal_width.filter(|width| *width > 0))
}

/// Formats rows as aligned columns within a width in characters; `None` is any width. Shortens no
/// column below the width of its header or below [`MIN_COLUMN_WIDTH`]. The first column stays
/// whole, because people copy ids and names from it into other commands.
fn format_columns_within(
    header: &[&str],
    rows: &[Vec<String>],
    terminal_width: Option<usize>,
) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].len()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..header.len()).map(width).collect();
    while terminal_width
        .is_some_and(|most| widths.iter().sum::<usize>() + 2 * widths.len() > most + 2)
    {
        let can_shrink =
            |at: &usize| *at > 0 && widths[*at] > header[*at].len().max(MIN_COLUMN_WIDTH);
        let Some(widest) = (0..widths.len()).filter(can_shrink).max_by_key(|at| widths[*at]) else {
            break;
        };
        widths[widest] -= 1;
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        let mut padding = 0;
        for (cell, width) in cells.zip(&widths) {
            let cell = shorten(cell, *width);
            // The blanks come before the next column, so none stand behind the last one. A format
            // string would pad to 65,535 columns at most.
            line.extend(std::iter::repeat_n(' ', padding));
            line += &cell;
            padding = width.saturating_sub(cell.chars().count()) + 2;
        }
        format!("{}\n", line.trim_end())
    };
    let rows = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    [line(&mut header.iter().copied())].into_iter().chain(rows).collect()
}

/// Writes control characters, and characters that change the direction of a text, as escapes.
pub fn escape_controls(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => escaped.extend(c.escape_unicode()),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Returns the text, or its start and `…` if it is longer than `width` characters.
fn shorten(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
