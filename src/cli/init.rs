//! `riskgate init`: a config, a first key, and on request a unit of systemd or a compose file.
//!
//! On a terminal, the command asks the questions that no option has answered. Elsewhere, it takes
//! the defaults. The command overwrites no file. If the command fails, it removes the files that it
//! has finished; a store that it has created stays.

mod answers;
mod files;
mod questions;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::failure::CommandFailure;
use super::keys::create_key;
use super::output::print_message;
use crate::config::{Config, ConfigFile, ConfigSources};
use crate::management::NewKey;
use crate::model::network::loopback_if_unspecified;
use crate::support::regular_file::parent_dir;
use answers::Answers;
pub use answers::Args;
use files::{
    COMPOSE_FILE, UNIT_FILE, check_user_of_unit, quote_for_shell, quote_path_for_shell,
    render_compose_file, render_config, render_unit,
};
use questions::Interview;

/// The plan of the first key's account.
const FIRST_PLAN: &str = "pro";

pub fn run(args: &Args) -> Result<(), CommandFailure> {
    let args = &Args { file: args.config_file(), ..args.clone() };
    let folder = parent_dir(&args.file);
    let extra = match (args.systemd, args.compose) {
        (true, _) => Some(folder.join(UNIT_FILE)),
        (_, true) => Some(folder.join(COMPOSE_FILE)),
        _ => None,
    };
    for file in [Some(&args.file), extra.as_ref()].into_iter().flatten() {
        check_path_is_free(file)?;
    }
    if args.systemd {
        check_user_of_unit(folder)?;
    }
    let answers = Interview::new().ask(args)?;
    let mut written = Vec::new();
    write_files_and_key(args, &answers, extra.as_deref(), &mut written).inspect_err(|_| {
        // `riskgate init` overwrites no file, so the files of a failed run would stop the next run.
        for file in &written {
            let _ = fs::remove_file(file);
        }
    })?;
    print_next_commands(args, &answers);
    Ok(())
}

/// Writes the files, and creates the key unless the arguments have `--compose`. Adds the path of
/// each written file to `written`.
fn write_files_and_key(
    args: &Args,
    answers: &Answers,
    extra: Option<&Path>,
    written: &mut Vec<PathBuf>,
) -> Result<(), CommandFailure> {
    let listen = match args.compose {
        true => answers.listen_in_container(),
        false => answers.listen,
    };
    write_new(&args.file, &render_config(answers, listen))?;
    written.push(args.file.clone());
    if args.compose {
        // The user of the container is another one. The config has no secret.
        fs::set_permissions(&args.file, fs::Permissions::from_mode(0o644))?;
    }
    let file = ConfigFile::Written(args.file.clone());
    let config = Config::read(&ConfigSources { file, flags: Vec::new() });
    let config = config.map_err(CommandFailure::config_faults)?;
    if let Some(extra) = extra {
        let text = match args.systemd {
            true => render_unit(&args.file, answers)?,
            false => render_compose_file(&args.file, answers),
        };
        write_new(extra, &text)?;
        written.push(extra.to_owned());
    }
    if !args.compose {
        let account = answers.account.clone();
        let plan = Some(FIRST_PLAN.to_owned());
        create_key(&config, &NewKey { account, plan, ..NewKey::default() }, false)?;
    }
    let (shown, quoted) = (args.file.display(), quote_path_for_shell(&args.file));
    print_message(format!("wrote {shown}; `riskgate check -c {quoted}` checks it"));
    if let Some(extra) = extra {
        print_message(format!("wrote {}", extra.display()));
    }
    Ok(())
}

fn print_next_commands(args: &Args, answers: &Answers) {
    let (file, account) = (quote_path_for_shell(&args.file), quote_for_shell(&answers.account));
    let address = match args.compose {
        true => SocketAddr::from((Ipv4Addr::LOCALHOST, answers.listen.port())),
        false => loopback_if_unspecified(answers.listen),
    };
    let ask = format!(
        "curl -s -H 'Authorization: Bearer rg_…' http://{address}/v1/public/domain/yopmail.com"
    );
    let folder = parent_dir(&args.file);
    let unit = quote_path_for_shell(&folder.join(UNIT_FILE));
    let compose = quote_path_for_shell(&folder.join(COMPOSE_FILE));
    let (first, second) = match (args.systemd, args.compose) {
        (true, _) => (
            format!("sudo systemctl enable --now \"$(realpath {unit})\""),
            format!("{ask}    # with the key above"),
        ),
        (_, true) => (
            format!("docker compose -f {compose} up --detach"),
            format!(
                "docker compose -f {compose} exec riskgate /usr/bin/riskgate keys \
                 create --account {account} --plan {FIRST_PLAN}"
            ),
        ),
        _ => (format!("riskgate run -c {file}"), format!("{ask}    # with the key above")),
    };
    if args.compose {
        print_message(
            "build the image first: scripts/release in the sources, then the command at the top of \
             compose.yaml",
        );
        if fs::metadata(folder).is_ok_and(|found| found.mode() & 0o005 != 0o005) {
            let folder = quote_path_for_shell(folder);
            print_message(format!(
                "the user of the container can't read the folder of the config: chmod o+rx {folder}"
            ));
        }
    }
    print_message(format!("next:\n    {first}\n    {second}"));
}

/// Fails if there is something at the path, or if the folder of the path does not exist.
fn check_path_is_free(file: &Path) -> Result<(), CommandFailure> {
    let shown = file.display();
    if file.symlink_metadata().is_ok() {
        let expected = "expected no file, because `riskgate init` overwrites none";
        return Err(CommandFailure::failed(format!("{shown}: {expected}, but found one")));
    }
    match parent_dir(file).is_dir() {
        true => Ok(()),
        false => {
            let folder = parent_dir(file).display();
            let found = format!("{shown}: expected the folder {folder}, but found none");
            Err(CommandFailure::failed(format!("{found}; create it first")))
        }
    }
}

/// Writes a file that does not exist yet.
fn write_new(file: &Path, text: &str) -> Result<(), CommandFailure> {
    let write = || -> io::Result<()> {
        let mut created = OpenOptions::new().write(true).create_new(true).open(file)?;
        // A file that is written in part would stop the next run.
        created.write_all(text.as_bytes()).inspect_err(|_| _ = fs::remove_file(file))
    };
    write().map_err(|error| {
        let file = file.display();
        CommandFailure::failed(format!("{file}: expected to write it, but found {error}"))
    })
}
