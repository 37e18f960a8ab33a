//! Checks whether memory is available before much of it is needed, because a failed allocation ends
//! the process.
//!
//! Knows the limits of the process (`RLIMIT_AS`, `RLIMIT_DATA`) and those of its control groups.
//! The answer may be wrong a moment later: other threads and processes use memory too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// What the other threads may need meanwhile. Without these bytes, the next allocation of another
/// thread could end the process, or no thread could start.
const BYTES_FOR_OTHER_THREADS: u64 = 16 << 20;

/// How much address space the allocator takes for each byte in use. Measured with 50,000 keys of a
/// store, and rounded up: 85 MiB of addresses for 60 MiB.
const ADDRESS_SPACE_PER_USED_BYTE: u64 = 2;

/// Where Linux shows the control groups.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Fails if the process can't get this many more bytes. The error says what was expected and found.
pub fn check_available(bytes: u64) -> io::Result<()> {
    let needed =
        bytes.saturating_mul(ADDRESS_SPACE_PER_USED_BYTE).saturating_add(BYTES_FOR_OTHER_THREADS);
    let needed = usize::try_from(needed).unwrap_or(usize::MAX);
    // A reservation shows whether the limits of the process allow `needed` bytes. riskgate writes
    // nothing to the reservation, so it takes only address space. But the allocator keeps this
    // address space for the calling thread. So riskgate reserves nothing if a limit leaves enough
    // address space. If a limit leaves too little, the allocator may have kept enough from before,
    // and the reservation succeeds.
    let can_reserve =
        has_address_space(needed) || Vec::<u8>::new().try_reserve_exact(needed).is_ok();
    let own_groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let free_in_groups = find_free_bytes_of_groups(Path::new(CGROUP_ROOT), &own_groups);
    let found = match free_in_groups {
        Some(free) if free < bytes => format!("{} MiB within its control group", free >> 20),
        _ if !can_reserve => {
            "less within the limits of the process (RLIMIT_AS, RLIMIT_DATA)".to_owned()
        }
        _ => return Ok(()),
    };
    let mebibytes = bytes.div_ceil(1 << 20);
    let text = format!("expected {mebibytes} MiB of free memory, but found {found}");
    Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
}

/// Whether the limits of the process leave this many bytes of address space unused. False without a
/// limit: then a reservation takes nothing from other threads.
fn has_address_space(needed: usize) -> bool {
    // With this setting, Linux grants no more than it can keep, whatever the limits of a process
    // are.
    if fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|it| it.trim() == "2") {
        return false;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = [(Resource::As, "VmSize:"), (Resource::Data, "VmData:")];
    let free = limits.into_iter().filter_map(|(resource, field)| {
        let limit = getrlimit(resource).current?;
        Some(limit.saturating_sub(parse_kibibytes(&status, field)? << 10))
    });
    free.min().is_some_and(|free| free >= needed as u64)
}

/// The value of a field of `/proc/self/status`.
fn parse_kibibytes(status: &str, field: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

/// The free bytes of the control group that has the fewest: that of the process, or one above it.
/// `None` if none of them has a limit. `own_groups` is the text of `/proc/self/cgroup`.
fn find_free_bytes_of_groups(root: &Path, own_groups: &str) -> Option<u64> {
    let mut free: Vec<u64> = Vec::new();
    for line in own_groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        // Version 2 has one hierarchy without controllers in its line; version 1 has one for
        // memory.
        let (root, [limit, usage, cache]) = match controllers {
            "" => (root.to_owned(), ["memory.max", "memory.current", "inactive_file "]),
            "memory" => (
                root.join("memory"),
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
            ),
            _ => continue,
        };
        // In a container, the root may be the group of the process already.
        let group = root.join(group.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|path| path.starts_with(&root));
        let groups: Vec<PathBuf> = groups.map(Path::to_owned).chain([root.clone()]).collect();
        free.extend(groups.iter().filter_map(|group| {
            let read = |name: &str| fs::read_to_string(group.join(name)).ok();
            let number = |text: String| text.trim().parse::<u64>().ok();
            let (limit, usage) = (number(read(limit)?)?, number(read(usage)?)?);
            let stat = read("memory.stat").unwrap_or_default();
            // The kernel drops cached files before the limit is reached.
            let cached = stat.lines().find_map(|line| line.strip_prefix(cache)?.parse().ok());
            Some(limit.saturating_sub(usage.saturating_sub(cached.unwrap_or(0))))
        }));
    }
    free.into_iter().min()
}

#[cfg(test)]
mod tests;
