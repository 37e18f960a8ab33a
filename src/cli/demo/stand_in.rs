//! The stand-in checking service of `riskgate demo`.
//!
//! The stand-in answers `/healthz`, and `/v1/check/{email_or_domain}` with the ten fields of the
//! API of Syvel, a service that checks e-mail addresses. It judges by the table inside the binary, and
//! logs nothing.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use crate::gate::EmailVerdict;
use crate::model::domain::{DomainError, percent_decode};
use crate::model::email::{AddressOrDomain, EmailError};
use crate::model::refusal::Refusal;
use crate::quota::unix_now;
use crate::table::Table;

/// The longest request header that is read.
const MAX_HEADER_BYTES: u64 = 64 * 1024;

struct Request {
    method: String,
    path: String,
    /// True if the stand-in closes the connection after the response, because the client asked for
    /// that, does not use HTTP/1.1, or sends a body. (The stand-in does not parse bodies.)
    closes_connection: bool,
}

struct Response {
    status: &'static str,
    body: String,
}

/// Serves each connection in a thread of its own, for as long as the process runs.
pub fn serve_stand_in_upstream(listener: &TcpListener, table: Table) {
    let table = Arc::new(table);
    for stream in listener.incoming().flatten() {
        let table = Arc::clone(&table);
        std::thread::spawn(move || {
            // An error ends only this connection.
            let _ = serve_connection(stream, &table);
        });
    }
}

fn serve_connection(stream: TcpStream, table: &Table) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader)? {
        let Response { status, body } = stand_in_response(&request, table);
        let connection = if request.closes_connection { "Connection: close\r\n" } else { "" };
        let mut message = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             {connection}\r\n",
            body.len()
        );
        if request.method != "HEAD" {
            message += &body;
        }
        reader.get_mut().write_all(message.as_bytes())?;
        if request.closes_connection {
            reader.get_mut().shutdown(Shutdown::Write)?;
            // If the stand-in closed with bytes unread, the kernel would reset the connection, and
            // the client might lose the response.
            io::copy(&mut reader, &mut io::sink())?;
            break;
        }
    }
    Ok(())
}

/// Reads a request header. Returns None if the connection has ended, or if the header is malformed
/// or too large.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut header = reader.by_ref().take(MAX_HEADER_BYTES);
    let mut line = String::new();
    header.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    let mut closes_connection = words.next().as_deref() != Some("HTTP/1.1");
    loop {
        line.clear();
        if header.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.split_once(':') else { break };
        let value = value.trim();
        closes_connection |= match name.to_ascii_lowercase().as_str() {
            "connection" => value.eq_ignore_ascii_case("close"),
            "content-length" => value != "0",
            "transfer-encoding" => true,
            _ => false,
        };
    }
    let path = target.split('?').next().unwrap_or_default().to_owned();
    Ok(Some(Request { method, path, closes_connection }))
}

fn stand_in_response(request: &Request, table: &Table) -> Response {
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    match (request.path.strip_prefix("/v1/check/"), request.path.as_str()) {
        (Some(_), _) | (None, "/healthz") if !is_read => {
            let refusal = Refusal::MethodNotAllowed { allow: "GET, HEAD".into() };
            Response { status: "405 Method Not Allowed", body: refusal.body() }
        }
        (None, "/healthz") => Response { status: "200 OK", body: r#"{"status":"ok"}"#.to_owned() },
        (None, _) => Response { status: "404 Not Found", body: Refusal::NotFound.body() },
        (Some(segment), _) => match render_check_result(segment, table) {
            Ok(body) => Response { status: "200 OK", body },
            Err(error) => Response {
                status: "422 Unprocessable Content",
                body: Refusal::InvalidEmail(error).body(),
            },
        },
    }
}

/// The JSON of the answer to a check, or why the path segment contains no address and no domain.
fn render_check_result(segment: &str, table: &Table) -> Result<String, EmailError> {
    let decoded = percent_decode(segment.as_bytes())?;
    let text = std::str::from_utf8(&decoded).map_err(|_| DomainError::Utf8)?;
    let checked = AddressOrDomain::parse(text)?;
    let lookup = table.lookup(checked.domain(), unix_now());
    Ok(EmailVerdict::new(&checked, &lookup, table.role_score()).render_check_body(&checked))
}
