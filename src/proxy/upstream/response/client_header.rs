//! The header of a forwarded response, over HTTP/1.1 and over HTTP/2.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use pingora::http::ResponseHeader;

use crate::exchange::MalformedResponse;
use crate::message::response::{FieldName, finish_http1_header, header_field, write_status_line};

/// The number of fields for which a header of HTTP/2 has space at first.
const EXPECTED_FIELDS: usize = 16;

/// A header that riskgate writes for a forwarded response.
pub trait ClientResponseHeader: Send {
    /// Whether the client gets a body without a length in chunks. HTTP/2 marks the end of a body
    /// without chunks.
    const HAS_CHUNKS: bool;

    /// Sets the status. The caller calls this method first.
    fn set_status(&mut self, status: u16) -> Result<(), MalformedResponse>;

    /// Adds a field of the server.
    fn add_server_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), MalformedResponse>;

    /// Adds a field of riskgate.
    fn add_own_field(&mut self, field: &FieldName, value: &[u8]);
}

/// The header of an HTTP/1.1 response, as bytes.
#[derive(Default)]
pub struct Http1Header(Vec<u8>);

impl Http1Header {
    /// Empties this buffer and begins a header in it.
    pub fn in_buffer(mut buffer: Vec<u8>) -> Http1Header {
        buffer.clear();
        Http1Header(buffer)
    }

    /// Ends the header with `Date`, `Connection` and the empty line. Returns its bytes.
    pub fn finish(mut self, date: &[u8], should_close: bool) -> Vec<u8> {
        finish_http1_header(date, should_close, &mut self.0);
        self.0
    }
}

impl ClientResponseHeader for Http1Header {
    const HAS_CHUNKS: bool = true;

    fn set_status(&mut self, status: u16) -> Result<(), MalformedResponse> {
        write_status_line(status, &mut self.0);
        Ok(())
    }

    fn add_server_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), MalformedResponse> {
        header_field::write_h1_line(name, value, &mut self.0);
        Ok(())
    }

    fn add_own_field(&mut self, field: &FieldName, value: &[u8]) {
        field.write_h1_line(value, &mut self.0);
    }
}

/// The header of a response on a stream of HTTP/2. Pingora adds `Date`.
#[derive(Default)]
pub struct Http2Header(Option<Box<ResponseHeader>>);

impl Http2Header {
    /// Returns the header as Pingora sends it; `None` if it has no status.
    pub fn finish(self) -> Option<Box<ResponseHeader>> {
        self.0
    }

    fn append(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), MalformedResponse> {
        let header = self.0.as_mut().ok_or(MalformedResponse::Header)?;
        header.append_header(name, value).map(drop).map_err(|_| MalformedResponse::Header)
    }
}

impl ClientResponseHeader for Http2Header {
    const HAS_CHUNKS: bool = false;

    fn set_status(&mut self, status: u16) -> Result<(), MalformedResponse> {
        let header = ResponseHeader::build_no_case(status, Some(EXPECTED_FIELDS));
        self.0 = Some(Box::new(header.map_err(|_| MalformedResponse::Header)?));
        Ok(())
    }

    fn add_server_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), MalformedResponse> {
        let name = HeaderName::from_bytes(name).map_err(|_| MalformedResponse::Header)?;
        self.append(name, HeaderValue::from_bytes(value).map_err(|_| MalformedResponse::Header)?)
    }

    fn add_own_field(&mut self, field: &FieldName, value: &[u8]) {
        // riskgate's own values are visible ASCII. Any other value is a bug, and is left out.
        if let Ok(value) = field.to_header_value(Bytes::copy_from_slice(value)) {
            let _ = self.append(field.name.clone(), value);
        }
    }
}
