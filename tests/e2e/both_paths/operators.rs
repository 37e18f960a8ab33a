//! What an operator sees and changes: commands, config, logs, metrics, admin API and page.

mod check;
mod check_paths;
mod logs;
mod process;
pub mod reload;
mod reload_load;
mod secrets;
mod traces;
mod upgrade;
