//! `riskgate completions` and `riskgate man`: what shells and `man` know of the commands.

use std::path::{Path, PathBuf};

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
    /// Write the pages of all commands into this directory instead, which must exist.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
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

/// Prints riskgate(1), or writes the pages of all commands.
pub fn print_man_page(args: &ManArgs, command: Command) -> Result<(), CommandFailure> {
    if let Some(dir) = &args.dir {
        let written = clap_mangen::generate_to(command, dir);
        written.map_err(|error| write_failure(dir, &error))?;
        print_message(format!("the pages are in {}", dir.display()));
        return Ok(());
    }
    let mut page = Vec::new();
    // Writing to a Vec can't fail.
    let _ = clap_mangen::Man::new(command).render(&mut page);
    print_result(page)
}

fn write_failure(dir: &Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::failed(format!(
        "{}: expected a directory to write to, but found {error}",
        dir.display()
    ))
}
