//! The name of this machine.

/// Returns the name of this machine, as the kernel has it; `unknown` if it can't be read.
pub fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}
