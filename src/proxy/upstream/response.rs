//! Converts the bytes of an upstream server's response (RFC 9112) into a response over HTTP/1.1 or
//! HTTP/2, for the fast path. This module does no I/O.

mod body;
mod client_header;

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use httparse::{Header, ParserConfig, Response, Status};

use crate::exchange::{
    BodyFraming, InformationalResponseCounter, MalformedResponse, ResponseFraming, StatusKind,
    is_html_type, may_have_framing_fields,
};
use crate::message::response::{CommonHeaders, header_field};

pub use body::ResponseBody;
pub use client_header::{ClientResponseHeader, Http1Header, Http2Header};

use crate::exchange::forwarding::{
    AllowedResponseFields, is_framing_field, is_response_field_forwarded,
    write_riskgate_response_fields,
};

/// The most fields of a response header. Pingora has the same limit.
const MAX_RESPONSE_FIELDS: usize = 256;
/// The most bytes of a response header. Pingora has the same limit, less one byte.
const MAX_RESPONSE_HEADER_BYTES: usize = 1 << 20;

/// The facts about the client's request that a response's header depends on.
pub struct ResponseContext<'l> {
    /// The fields that riskgate adds to the response.
    pub common_headers: &'l CommonHeaders,
    /// Whether the request's method is HEAD.
    pub is_head_method: bool,
    /// The fields that the server may set.
    pub allowed_fields: AllowedResponseFields,
}

/// What riskgate needs to know of a response once it has forwarded the header.
#[derive(Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code.
    pub status: u16,
    /// Whether the body is a page of HTML.
    pub is_html: bool,
    /// The body, which is still to be forwarded.
    pub body: ResponseBody,
    /// Whether the connection to the server can be reused once the whole body has arrived.
    pub is_connection_reusable: bool,
}

/// If the header at the front of `arrived` is complete, removes the header, and writes the header
/// for the client to `out`. Returns `None` if the header is incomplete. Drops informational
/// responses (1xx).
///
/// # Errors
/// Returns an error if the bytes are no response that riskgate can forward.
pub fn forward_response_head<H: ClientResponseHeader>(
    arrived: &mut BytesMut,
    context: &ResponseContext<'_>,
    informational: &mut InformationalResponseCounter,
    out: &mut H,
) -> Result<Option<ResponseHead>, MalformedResponse> {
    loop {
        let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_RESPONSE_FIELDS];
        let mut response = Response::new(&mut []);
        let mut parser = ParserConfig::default();
        parser.allow_spaces_after_header_name_in_responses(true);
        parser.allow_obsolete_multiline_headers_in_responses(true);
        let parsed = parser.parse_response_with_uninit_headers(&mut response, arrived, &mut fields);
        let length = match parsed {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if arrived.len() <= MAX_RESPONSE_HEADER_BYTES => return Ok(None),
            Ok(Status::Partial) => return Err(MalformedResponse::TooLongHeader),
            Err(httparse::Error::TooManyHeaders) => return Err(MalformedResponse::TooManyFields),
            Err(_) => return Err(MalformedResponse::Header),
        };
        let status = response.code.ok_or(MalformedResponse::Header)?;
        match StatusKind::from(status) {
            StatusKind::Informational => {
                informational.count_next()?;
                arrived.advance(length);
            }
            StatusKind::Final => {
                let head = write_client_header(status, &response, context, out)?;
                arrived.advance(length);
                return Ok(Some(head));
            }
            StatusKind::Invalid => return Err(MalformedResponse::Status),
        }
    }
}

fn write_client_header<H: ClientResponseHeader>(
    status: u16,
    response: &Response<'_, '_>,
    context: &ResponseContext<'_>,
    out: &mut H,
) -> Result<ResponseHead, MalformedResponse> {
    let fields = &*response.headers;
    let values = |name: &'static str| {
        let named = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value)
    };
    let framing = ResponseFraming::read(
        values("connection"),
        values("transfer-encoding"),
        values("content-length"),
    )?;
    let body = framing.body_framing(status, context.is_head_method);
    let ResponseFraming { connection_options, is_chunked, content_length } = framing;
    out.set_status(status)?;
    let mut keeps_cache_control = context.allowed_fields != AllowedResponseFields::OfCheck;
    let has_own_hsts = context.common_headers.hsts.is_some();
    for field in fields {
        let name = field.name.as_bytes();
        if !is_framing_field(name)
            && is_response_field_forwarded(name, &connection_options, context.allowed_fields)
            && !(has_own_hsts && name.eq_ignore_ascii_case(b"strict-transport-security"))
        {
            keeps_cache_control |= field.name.eq_ignore_ascii_case("cache-control");
            let unfolded;
            let value = if field.value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                unfolded = pingora::http::header_value_from_slice(field.value);
                unfolded.as_bytes()
            } else {
                field.value
            };
            out.add_server_field(name, value)?;
        }
    }
    if may_have_framing_fields(status) {
        if is_chunked || body == BodyFraming::UntilClose {
            if H::HAS_CHUNKS {
                out.add_own_field(&header_field::TRANSFER_ENCODING, b"chunked");
            }
        } else if let Some(length) = content_length {
            let mut digits = itoa::Buffer::new();
            out.add_own_field(&header_field::CONTENT_LENGTH, digits.format(length).as_bytes());
        }
    }
    write_riskgate_response_fields(status, keeps_cache_control, &mut |field, value| {
        out.add_own_field(field, value)
    });
    context.common_headers.for_each_field(&mut |field, value| out.add_own_field(field, value));
    // riskgate does not reuse the connection if the end of the connection ends the body, or if a
    // server of HTTP/1.0 sends chunks.
    let is_last = body == BodyFraming::UntilClose || is_chunked && response.version != Some(1);
    Ok(ResponseHead {
        status,
        is_html: values("content-type").any(is_html_type),
        body: ResponseBody::new(body, H::HAS_CHUNKS),
        is_connection_reusable: !is_last
            && does_server_keep_alive(response.version, &connection_options),
    })
}

/// Returns true if the server keeps the connection open (RFC 9112 section 9.3). `minor_version` is
/// 1 for HTTP/1.1.
fn does_server_keep_alive(minor_version: Option<u8>, options: &[&[u8]]) -> bool {
    let has = |option: &str| options.iter().any(|o| o.eq_ignore_ascii_case(option.as_bytes()));
    !has("close") && (minor_version == Some(1) || has("keep-alive"))
}

#[cfg(test)]
mod tests;
