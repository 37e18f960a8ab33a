//! HTTP/1 and HTTP/2 as such: framing, limits, slow clients, TLS.

mod fast_path;
mod reading_ahead;
