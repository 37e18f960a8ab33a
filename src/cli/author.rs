//! Who runs a command.

use crate::config::Config;
use crate::store::{ChangeAuthor, ChangeSurface};
use crate::support::machine_name::machine_name;

/// Returns the author of what a command changes: the user of the process, or, if root runs the
/// command by sudo, the user who called sudo.
pub fn find_command_author() -> ChangeAuthor {
    let uid = rustix::process::getuid().as_raw();
    let user = find_user_name(uid).unwrap_or_else(|| format!("uid {uid}"));
    let caller = Config::env_var("SUDO_USER").filter(|_| uid == 0);
    let actor = match caller {
        Some(caller) => format!("{caller} (sudo)"),
        None => user,
    };
    // The environment can contain any text, and `riskgate audit` prints the actor on terminals.
    let actor = actor.chars().filter(|c| !c.is_control()).take(128).collect();
    ChangeAuthor { actor, via: ChangeSurface::Cli, from: machine_name() }
}

fn find_user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let uid = uid.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, of_user) = (fields.next()?, fields.next()?, fields.next()?);
        (of_user == uid).then(|| name.to_owned())
    })
}
