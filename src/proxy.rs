//! The exchange with an upstream server, for a request that passed the gates.

pub mod gateway;
pub mod request_body;
pub mod upstream;
