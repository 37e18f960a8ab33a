//! What a listener does that only sends clients to HTTPS: `listen.redirect`.
//!
//! It answers one request on each connection, with 308 and the same host and target (RFC 9110
//! section 15.4.9), and forwards nothing.

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use super::client_io::ClientIo;
use super::context::ListenerContext;
use crate::message::request_head::{
    RequestHead, RequestLimits, RequestLineGuess, parse_request_head,
};
use crate::model::refusal::Refusal;

/// The port of an `https` URL that names none.
const HTTPS_PORT: u16 = 443;

/// Reads a request, and sends its client to this port. The whole header must arrive by `deadline`.
pub(super) async fn redirect_to_https(
    context: &ListenerContext,
    mut client_io: Box<ClientIo>,
    https_port: u16,
    deadline: Instant,
) {
    let Some(found) = read_location(context, &mut client_io, https_port, deadline).await else {
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
    let write = async {
        client_io.write_all(&bytes).await?;
        client_io.flush().await
    };
    let is_sent = matches!(timeout(context.options.write_timeout, write).await, Ok(Ok(())));
    answer.count_and_log(is_sent);
    if is_sent {
        let header_timeout = context.options.header_timeout;
        client_io.shut_down_and_linger(Instant::now(), header_timeout, &context.tracker).await;
    }
}

/// Returns the location to send the client to and the length of the request header, or why the
/// request is refused; `None` if the client left or is too slow.
async fn read_location(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    https_port: u16,
    deadline: Instant,
) -> Option<Result<(String, usize), Refusal>> {
    // No body is read.
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

/// Returns the URL of the request at the HTTPS listener; `None` if it names no host, or if its
/// target is neither a path nor a URL.
fn find_location(head: &RequestHead<'_>, https_port: u16) -> Option<String> {
    let host = std::str::from_utf8(head.fields.single_host()?).ok()?;
    let name = host_without_port(host)?;
    let target = encode_non_ascii(path_and_query(head.request_line.target)?);
    let port = match https_port {
        HTTPS_PORT => String::new(),
        other => format!(":{other}"),
    };
    let slash = if target.starts_with('/') { "" } else { "/" };
    Some(format!("https://{name}{port}{slash}{target}"))
}

/// Returns the path and the query of a target; `None` if it is neither a path nor a URL (RFC 9112
/// section 3.2). The path of a URL may be empty.
fn path_and_query(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return Some(target);
    }
    let (scheme, rest) = target.split_at_checked(b"http://".len())?;
    let is_end = |byte: &u8| matches!(byte, b'/' | b'?');
    let end = rest.iter().position(is_end).unwrap_or(rest.len());
    scheme.eq_ignore_ascii_case(b"http://").then(|| &rest[end..])
}

/// Percent-encodes the bytes of other characters than those of ASCII.
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

/// Returns the host of a `Host` field; `None` if it is no host with an optional port.
fn host_without_port(host: &str) -> Option<&str> {
    let end = match host.starts_with('[') {
        true => host.find(']')? + 1,
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_name_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let is_name = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.len() <= 255 && name.bytes().all(is_name_byte),
    };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (is_name && has_port).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_url_is_kept() {
        for (target, expected) in [
            ("/a?b", Some("/a?b")),
            ("http://gate.test/a?b", Some("/a?b")),
            ("HTTP://gate.test", Some("")),
            ("http://gate.test?b", Some("?b")),
            ("*", None),
            ("gate.test:80", None),
        ] {
            let found = path_and_query(target.as_bytes()).map(encode_non_ascii);
            assert_eq!(found.as_deref(), expected, "{target}");
        }
        assert_eq!(encode_non_ascii("/ü".as_bytes()), "/%C3%BC");
    }

    #[test]
    fn only_a_host_with_an_optional_port_is_repeated() {
        for (host, expected) in [
            ("gate.test", Some("gate.test")),
            ("~gate.test", Some("~gate.test")),
            ("gate.test:80", Some("gate.test")),
            ("127.0.0.1:8080", Some("127.0.0.1")),
            ("[::1]:80", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("", None),
            (":80", None),
            ("a b", None),
            ("user@gate.test", None),
            ("gate.test/path", None),
            ("gate.test:80x", None),
            ("[gate.test]", None),
            ("[::1", None),
        ] {
            assert_eq!(host_without_port(host), expected, "{host}");
        }
    }
}
