//! The name of this machine.

/// Returns the name of this machine from the kernel; `unknown` if riskgate can't read the name.
pub fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}
