//! The name of this machine.

/// Returns the name of this machine from the kernel, as `uname -n` shows it; `unknown` if the name
/// is empty.
pub fn machine_name() -> String {
    match rustix::system::uname().nodename().to_string_lossy().trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}
