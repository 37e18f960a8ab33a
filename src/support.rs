//! Small mechanisms with one job each.

pub(crate) mod byte_sets;
pub mod certificate_probe;
pub mod certificate_validity;
pub mod certificates;
pub mod client_rates;
pub mod counted;
pub mod dns_resolver;
pub mod excerpt;
pub mod exchange_thread;
pub mod line_index;
pub(crate) mod lock;
pub mod log_interval;
pub mod machine_clock;
pub mod machine_name;
#[cfg(all(target_arch = "x86_64", any(test, target_env = "musl")))]
mod memmove;
pub mod memory;
pub mod peer_close;
pub mod per_client_limit;
#[cfg(test)]
#[path = "../tests/support/random_numbers.rs"]
pub(crate) mod random_numbers;
pub mod regular_file;
pub mod send_queue;
pub mod serving_flag;
pub mod snapshot;
pub mod socket_reset;
pub mod test_fault;
pub mod time_limit;
pub mod trusted_authorities;
pub mod url_authority;
pub mod work_dir;
