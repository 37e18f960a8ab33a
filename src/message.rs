//! HTTP messages: the parsed request head, the chunks of a body, and the responses that riskgate
//! writes.

pub mod chunks;
pub(crate) mod field_names;
pub(crate) mod forwarded;
pub(crate) mod hop_by_hop;
pub mod request_head;
pub mod request_id;
pub mod response;
pub(crate) mod riskgate_fields;
