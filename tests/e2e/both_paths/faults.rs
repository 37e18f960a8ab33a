//! What breaks around riskgate: clocks, disks, memory, networks and file systems.

pub mod clock;
mod disk;
mod limits;
mod memory;
mod one_account;
mod read_only;
mod redis;
pub mod unset_clock;
mod upstream;
