//! Tests that run once: both data paths share what they test, such as commands, stores and the
//! admin listener, or they run both paths themselves.

pub mod browsers;
mod faults;
mod http;
pub mod operators;
pub mod proxies;
pub mod quota;
pub mod stores;
