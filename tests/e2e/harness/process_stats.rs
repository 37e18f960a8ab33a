//! Resources of a gateway's process, as the kernel counts them.

use super::Gateway;

impl Gateway {
    /// The number of open file descriptors.
    pub fn open_descriptor_count(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    pub fn thread_count(&self) -> u64 {
        self.read_proc_status("Threads")
    }

    /// The peak memory, in KiB.
    pub fn peak_memory_kib(&self) -> u64 {
        self.read_proc_status("VmHWM")
    }

    /// The current memory, in KiB.
    pub fn resident_memory_kib(&self) -> u64 {
        self.read_proc_status("VmRSS")
    }

    fn read_proc_status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().split_whitespace().next().unwrap().parse().unwrap()
    }
}
