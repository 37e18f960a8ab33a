//! HTTP messages: the parser of request heads, the chunks of a body, and the writer of riskgate's
//! responses.

pub mod chunks;
pub(crate) mod field_names;
pub(crate) mod forwarded;
pub(crate) mod hop_by_hop;
pub(crate) mod pingora_fields;
pub mod request_head;
pub mod request_id;
pub mod response;
pub(crate) mod riskgate_fields;
