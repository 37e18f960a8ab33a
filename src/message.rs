//! HTTP messages: the parsed request head, the responses that riskgate writes, and the header
//! fields that riskgate forwards in each direction.

pub mod forwarding;
mod forwarding_headers;
pub mod request_head;
pub mod request_id;
pub mod response;
