//! HTTP messages: request heads as the gates read them, responses as riskgate writes them, and
//! what riskgate forwards in each direction.

pub mod forwarding;
mod forwarding_headers;
pub mod request_head;
pub mod request_id;
pub mod response;
