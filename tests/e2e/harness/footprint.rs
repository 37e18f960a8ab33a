//! What a gateway's process holds, as the kernel counts it.

use super::Gateway;

impl Gateway {
    /// Descriptors that are open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    pub fn threads(&self) -> u64 {
        self.kernel_says("Threads")
    }

    /// The most memory that it ever had, in KiB.
    pub fn peak_memory(&self) -> u64 {
        self.kernel_says("VmHWM")
    }

    /// The memory that it has now, in KiB.
    pub fn memory(&self) -> u64 {
        self.kernel_says("VmRSS")
    }

    fn kernel_says(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().split_whitespace().next().unwrap().parse().unwrap()
    }
}
