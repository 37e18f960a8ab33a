//! Resources of a gateway's process, as the kernel counts them.

use std::net::SocketAddr;

use super::Gateway;

impl Gateway {
    /// The number of open file descriptors.
    pub fn open_descriptor_count(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// The number of its TCP connections whose other end has the address, an IPv4 one.
    pub fn count_connections_to(&self, address: SocketAddr) -> usize {
        let SocketAddr::V4(address) = address else { panic!("expected an IPv4 address") };
        let in_hex = u32::from_ne_bytes(address.ip().octets());
        let wanted = format!("{in_hex:08X}:{:04X}", address.port());
        let folder = format!("/proc/{}/fd", self.pid());
        let own: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .collect();
        let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", self.pid())).unwrap();
        let is_counted = |line: &str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let socket = format!("socket:[{}]", fields[9]);
            fields[2] == wanted && own.iter().any(|link| link.as_os_str() == socket.as_str())
        };
        table.lines().skip(1).filter(|line| is_counted(line)).count()
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
