//! What breaks around riskgate: clocks, disks, memory, networks and file systems.

mod blocked_output;
mod clock_trials;
mod file_systems;
#[cfg(debug_assertions)]
mod test_faults;
mod unwritable_output;
