//! Values that other modules share. No I/O, no clock, no logging.

pub mod believed_time;
pub mod domain;
pub mod email;
pub mod letter_case;
pub mod month;
pub mod monthly_limit;
pub mod network;
pub mod origin;
pub mod path_prefix;
pub mod plan;
pub mod public_address;
pub mod rate_charge;
pub mod refusal;
mod role_names;
pub mod route_label;
pub mod sign_up;
pub mod typed_address;
pub mod verdict;
pub mod visible_text;
