//! `riskgate completions` and `riskgate man`: what shells and `man` know of the commands.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process;

use clap::Command;
use clap_complete::Shell;

use super::failure::CommandFailure;
use super::output::{print_message, print_result};

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write the pages of all commands into this directory instead. A missing directory is created.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the source of the page, as a pipe gets it, on a terminal too.
    #[arg(long, conflicts_with = "dir")]
    roff: bool,
}

/// Prints the completion script of a shell.
pub fn print_completions(
    args: &CompletionsArgs,
    mut command: Command,
) -> Result<(), CommandFailure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "riskgate", &mut script);
    print_result(script)
}

/// Prints the source of riskgate(1), or writes the pages of all commands into a directory. On a
/// terminal, `man` shows the page instead, unless the arguments have `--roff`. If `man` fails, this
/// function prints the long help, which has the same words.
pub fn print_man_page(args: &ManArgs, mut command: Command) -> Result<(), CommandFailure> {
    if let Some(dir) = &args.dir {
        let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
        written.map_err(|error| write_failure(dir, &error))?;
        print_message(format!("the pages are in {}", dir.display()));
        return Ok(());
    }
    let mut page = Vec::new();
    // Writing to a Vec can't fail.
    let _ = clap_mangen::Man::new(command.clone()).render(&mut page);
    match args.roff || !std::io::stdout().is_terminal() {
        true => print_result(page),
        false if show_with_man(&page) => Ok(()),
        false => print_result(command.render_long_help().to_string()),
    }
}

/// Returns true if `man` has shown the page.
fn show_with_man(page: &[u8]) -> bool {
    let mut man = process::Command::new("man");
    let Ok(mut man) = man.args(["-l", "-"]).stdin(process::Stdio::piped()).spawn() else {
        return false;
    };
    // `man` may end before it has read the whole page.
    let written = man.stdin.take().is_some_and(|mut input| input.write_all(page).is_ok());
    man.wait().is_ok_and(|status| status.success()) && written
}

fn write_failure(dir: &Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::failed(format!(
        "{}: expected a directory to write to, but found {error}",
        dir.display()
    ))
}
