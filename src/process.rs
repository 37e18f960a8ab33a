//! The process around the gateway: start, signals, listeners, reload, upgrade, admin pages.

pub mod admin;
pub mod listener;
mod mount;
pub mod reload;
pub mod runtime_dir;
pub mod served_store;
pub mod served_store_sockets;
pub mod server;
pub mod systemd;
mod trace_exporter;
pub mod upgrade;

pub use mount::Mount;
