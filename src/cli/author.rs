//! Who runs a command.

use crate::store::{ChangeAuthor, ChangeSurface};
use crate::support::machine_name::machine_name;

/// Returns the author of what a command changes: the user who runs it, on this machine. With sudo,
/// the user who called sudo.
pub fn command_author() -> ChangeAuthor {
    let uid = rustix::process::getuid().as_raw();
    let user = user_name(uid).unwrap_or_else(|| format!("uid {uid}"));
    let caller = std::env::var("SUDO_USER").ok().filter(|_| uid == 0);
    let actor = match caller {
        Some(caller) => format!("{caller} (sudo)"),
        None => user,
    };
    // The name of a user may come from the environment, and goes into a log.
    let actor = actor.chars().filter(|c| !c.is_control()).take(128).collect();
    ChangeAuthor { actor, surface: ChangeSurface::Cli, place: machine_name() }
}

fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let uid = uid.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, of_user) = (fields.next()?, fields.next()?, fields.next()?);
        (of_user == uid).then(|| name.to_owned())
    })
}
