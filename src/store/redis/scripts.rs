//! The scripts that a server runs.

/// Scripts that are loaded where a server does not know them; see [`Script::text`].
#[derive(Clone, Copy)]
pub(super) enum Script {
    State,
    Pulse,
    Write,
    Add,
    Commit,
    Rotate,
    Restore,
    Fill,
    Credit,
    Month,
    Learn,
}

impl Script {
    /// In the order in which they are declared.
    pub(super) const ALL: [Script; 11] = [
        Script::State,
        Script::Pulse,
        Script::Write,
        Script::Add,
        Script::Commit,
        Script::Rotate,
        Script::Restore,
        Script::Fill,
        Script::Credit,
        Script::Month,
        Script::Learn,
    ];

    pub(super) const fn text(self) -> &'static str {
        match self {
            Script::State => include_str!("state.lua"),
            Script::Pulse => include_str!("pulse.lua"),
            Script::Write => {
                concat!(include_str!("ring.lua"), include_str!("write.lua"))
            }
            Script::Add => {
                concat!(include_str!("ring.lua"), include_str!("add.lua"))
            }
            Script::Commit => {
                concat!(include_str!("ring.lua"), include_str!("commit.lua"))
            }
            Script::Restore => {
                concat!(include_str!("ring.lua"), include_str!("restore.lua"))
            }
            Script::Fill => {
                concat!(include_str!("ring.lua"), include_str!("fill.lua"))
            }
            Script::Rotate => {
                concat!(include_str!("ring.lua"), include_str!("rotate.lua"))
            }
            Script::Credit => include_str!("credit.lua"),
            Script::Month => include_str!("month.lua"),
            Script::Learn => include_str!("learned.lua"),
        }
    }
}
