//! The stand-in upstream server of `riskgate demo`.
//!
//! The stand-in answers `/healthz`, serves the sign-up page, and answers
//! `/v1/check/{email_or_domain}` with the ten fields of the API of Syvel, a service that checks
//! e-mail addresses. It judges by the table inside the binary, and logs nothing.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use super::sign_up::{self, RiskgateFields};
use crate::gate::EmailVerdict;
use crate::gate::address_facts::OtherFacts;
use crate::model::domain::{DomainError, percent_decode};
use crate::model::email::EmailError;
use crate::model::refusal::Refusal;
use crate::model::typed_address::AddressOrDomain;
use crate::support::machine_clock::machine_unix_now;
use crate::table::Table;

/// The longest header that the stand-in reads, with the request line.
const MAX_HEADER_BYTES: u64 = 64 * 1024;
/// The longest request body that the stand-in reads.
const MAX_STAND_IN_BODY_BYTES: usize = 64 * 1024;

struct Request {
    method: String,
    path: String,
    /// The query without its `?`.
    query: String,
    body: Vec<u8>,
    /// What riskgate tells about a posted form.
    told: RiskgateFields,
    /// Whether the stand-in closes the connection after the response: the client asked it to, does
    /// not speak HTTP/1.1, or sends a body that the stand-in does not read.
    closes_connection: bool,
}

struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    fn json(status: &'static str, body: String) -> Response {
        Response { status, content_type: "application/json", body }
    }

    fn page(body: String) -> Response {
        Response { status: "200 OK", content_type: "text/html; charset=utf-8", body }
    }
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
        let Response { status, content_type, body } = answer_request(&request, table);
        let connection = if request.closes_connection { "Connection: close\r\n" } else { "" };
        let mut message = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
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

/// Reads a request with its body. Does not read a body with a transfer coding, or of more than
/// [`MAX_STAND_IN_BODY_BYTES`]. Returns None if the connection has ended, if the first line has no
/// target, or if the header is longer than [`MAX_HEADER_BYTES`].
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut header = reader.by_ref().take(MAX_HEADER_BYTES);
    let mut line = String::new();
    header.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    let mut closes_connection = words.next().as_deref() != Some("HTTP/1.1");
    let (mut told, mut body_length) = (RiskgateFields::default(), 0);
    loop {
        line.clear();
        if header.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.split_once(':') else { break };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "connection" => closes_connection |= value.eq_ignore_ascii_case("close"),
            "content-length" => body_length = value.parse().unwrap_or(usize::MAX),
            "transfer-encoding" => closes_connection = true,
            "x-riskgate-action" => value.clone_into(&mut told.action),
            "x-riskgate-reason" => value.clone_into(&mut told.reason),
            "x-riskgate-score" => value.clone_into(&mut told.score),
            "x-riskgate-suggestion" => value.clone_into(&mut told.suggestion),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if body_length <= MAX_STAND_IN_BODY_BYTES {
        body.resize(body_length, 0);
        reader.read_exact(&mut body)?;
    } else {
        closes_connection = true;
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    Ok(Some(Request { method, path, query, body, told, closes_connection }))
}

fn answer_request(request: &Request, table: &Table) -> Response {
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    match (request.path.strip_prefix("/v1/check/"), request.path.as_str()) {
        (None, sign_up::PATH) if request.method == "POST" => {
            Response::page(sign_up::render_answer_page(&request.body, &request.told))
        }
        (None, sign_up::PATH) if is_read => {
            Response::page(sign_up::render_form_page(&request.query))
        }
        (Some(_), _) | (None, "/healthz") if !is_read => {
            let refusal = Refusal::MethodNotAllowed { allow: "GET, HEAD".into() };
            Response::json("405 Method Not Allowed", refusal.body())
        }
        (None, "/healthz") => Response::json("200 OK", r#"{"status":"ok"}"#.to_owned()),
        (None, _) => Response::json("404 Not Found", Refusal::NotFound.body()),
        (Some(segment), _) => match render_check_result(segment, table) {
            Ok(body) => Response::json("200 OK", body),
            Err(error) => {
                Response::json("422 Unprocessable Content", Refusal::InvalidEmail(error).body())
            }
        },
    }
}

/// Renders the JSON for `/v1/check/`, or says why the path segment has no address and no domain.
fn render_check_result(segment: &str, table: &Table) -> Result<String, EmailError> {
    let decoded = percent_decode(segment.as_bytes())?;
    let text = std::str::from_utf8(&decoded).map_err(|_| DomainError::Utf8)?;
    let checked = AddressOrDomain::parse(text)?;
    let unix_now = machine_unix_now();
    let lookup = table.lookup(checked.domain(), unix_now);
    let others = OtherFacts::look_up(&checked.other_readings(), table, None, unix_now);
    let verdict = EmailVerdict::new(&checked, &lookup, others, table.role_score());
    Ok(verdict.render_check_body(&checked))
}
