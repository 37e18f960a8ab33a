//! Redirects all clients of a listener to HTTPS: `listen.redirect`.
//!
//! riskgate answers one request on each connection: with 308 (RFC 9110 section 15.4.9), or with a
//! refusal. The new location has the host, the path and the query of the request.

use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use super::client_io::ClientIo;
use super::context::ListenerContext;
use super::idle_wait::finish_unless_shutdown;
use crate::message::request_head::{
    RequestHead, RequestLimits, RequestLineGuess, host_without_port, parse_request_head,
};
use crate::model::refusal::Refusal;

/// The port of an `https` URL without a port.
const DEFAULT_HTTPS_PORT: u16 = 443;

/// Reads a request, and redirects its client to this port. The whole header must arrive by
/// `deadline`.
pub(super) async fn redirect_to_https(
    context: &ListenerContext,
    mut client_io: Box<ClientIo>,
    https_port: u16,
    deadline: Instant,
    shutdown: &ShutdownWatch,
) {
    let read = read_location(context, &mut client_io, https_port, deadline);
    let Some(Some(found)) = finish_unless_shutdown(shutdown, &context.tracker, read).await else {
        return;
    };
    let _request = context.tracker.track_request();
    let (connection, received) = (client_io.connection_facts(), client_io.read_buf.split());
    let mut answer = match found {
        Ok((location, head_length)) => {
            context.gate.redirect(&location, &connection, &received[..head_length])
        }
        Err(refusal) => {
            let line = RequestLineGuess::guess(&received);
            let (protocol, is_head) = (line.protocol(), line.is_head_method);
            context.gate.refuse_before_gates(&refusal, &connection, protocol, is_head)
        }
    };
    let bytes = answer.render_as_http1();
    let is_sent = client_io.send_bytes(&bytes, context.options.write_timeout, None).await;
    answer.count_and_log(is_sent);
    if is_sent {
        let header_timeout = context.options.header_timeout;
        client_io.shut_down_and_linger(Instant::now(), header_timeout, &context.tracker).await;
    }
}

/// Returns the location to which riskgate redirects the client and the length of the request
/// header, or the refusal of the request. `None` if the client left or is too slow.
async fn read_location(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    https_port: u16,
    deadline: Instant,
) -> Option<Result<(String, usize), Refusal>> {
    // riskgate reads no body here, so the length of the body does not matter.
    let limits = RequestLimits { body_bytes: usize::MAX, ..context.options.request_limits.clone() };
    let mut scanned = 0;
    loop {
        match parse_request_head(&client_io.read_buf, scanned, &limits) {
            Ok(Some(head)) => {
                let location = find_location(&head, https_port).ok_or(Refusal::BadRequest);
                return Some(location.map(|location| (location, head.head_length)));
            }
            Ok(None) => {}
            Err(refusal) => return Some(Err(refusal)),
        }
        scanned = client_io.read_buf.len();
        if !client_io.read_more(deadline).await {
            return None;
        }
    }
}

/// Returns the URL of the request at the HTTPS listener. `None` if the request names no valid host,
/// or if its target is neither a path nor an `http://` URL.
fn find_location(head: &RequestHead<'_>, https_port: u16) -> Option<String> {
    let host = host_without_port(head.fields.single_host()?)?;
    let name = std::str::from_utf8(host).ok()?;
    let target = encode_non_ascii(find_path_and_query(head.request_line.target)?);
    let port = match https_port {
        DEFAULT_HTTPS_PORT => String::new(),
        other => format!(":{other}"),
    };
    let slash = if target.starts_with('/') { "" } else { "/" };
    Some(format!("https://{name}{port}{slash}{target}"))
}

/// Returns the path and the query of a target. `None` if the target is neither a path nor an
/// `http://` URL. A URL of another scheme, such as `https://…`, is neither. The path of a URL may
/// be empty.
fn find_path_and_query(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return Some(target);
    }
    let (scheme, rest) = target.split_at_checked(b"http://".len())?;
    let is_end = |byte: &u8| matches!(byte, b'/' | b'?');
    let end = rest.iter().position(is_end).unwrap_or(rest.len());
    scheme.eq_ignore_ascii_case(b"http://").then(|| &rest[end..])
}

/// Percent-encodes the bytes of all characters that are not ASCII.
fn encode_non_ascii(text: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text {
        match byte.is_ascii() {
            true => encoded.push(char::from(*byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
