//! What an operator sees and changes: commands, config, logs, metrics, admin API and page.

mod admin;
pub mod admin_api;
mod admin_shutdown;
mod audit;
mod cli;
mod config_errors;
mod config_show;
mod decide_command;
mod demo_upstream;
mod dns_commands;
mod doctor;
mod feeds;
mod file_reads;
mod init;
mod overrides;
mod prometheus;
mod sign_ups;
mod stored_overrides;
mod systemd;
mod waiting_successor;
mod webhooks;
