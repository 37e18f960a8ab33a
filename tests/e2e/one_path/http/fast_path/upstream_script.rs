//! The upstream server of both compared gateways.

use std::time::Duration;

use crate::harness::{ReceivedRequest, Step, response_bytes};

/// A request for this name gets a response only on a new connection.
pub const RETRIED: &str = "retried";

/// Returns true if riskgate has to send this request again. Whether one of its connections is idle
/// depends on time, so two gateways may differ.
pub fn must_be_retried(seen: &ReceivedRequest) -> bool {
    seen.index_on_connection > 0 && requested_name(seen) == RETRIED
}

fn requested_name(seen: &ReceivedRequest) -> &str {
    let target = seen.request_line().split(' ').nth(1).unwrap_or_default();
    target.trim_start_matches("/v1/check/").split(['?', '%']).next().unwrap_or_default()
}

/// The target alone determines the reaction to a request.
pub fn respond_by_target(seen: &ReceivedRequest) -> Vec<Step> {
    let name = requested_name(seen);
    let is_head = seen.request_line().starts_with("HEAD");
    let send = |text: &str| Step::Send(text.as_bytes().to_vec());
    let body = |text: &str| if is_head { String::new() } else { text.to_owned() };
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n".to_owned();
    let late = |text: &str| Step::Trickle(text.as_bytes().to_vec(), Duration::from_millis(1));
    match name {
        "said" => vec![Step::Send(response_bytes(
            200,
            "Server: x\r\nDate: then\r\nSet-Cookie: a=1\r\nVary: Accept\r\nX-Hop: 1\r\nX-B: 1\r\n\
             Connection: X-Hop, keep-alive\r\nX-Riskgate-Plan: all\r\nRateLimit: \"x\";r=1\r\n\
             Access-Control-Allow-Origin: *\r\nX-B: 2\r\nCache-Control: max-age=5\r\n",
            &body("{}"),
        ))],
        "201" | "404" | "429" | "503" => {
            vec![Step::Send(response_bytes(name.parse().unwrap(), "", &body("said")))]
        }
        "204" => vec![send("HTTP/1.1 204 None\r\nX-A: 1\r\n\r\n")],
        "304" => vec![send("HTTP/1.1 304 Same\r\nETag: \"a\"\r\n\r\n")],
        "empty" => vec![send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
        "long" => vec![Step::Send(response_bytes(200, "", &body(&"long".repeat(50_000))))],
        "chunks" => vec![send(&(chunked + &body("2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n")))],
        "chunks-in-parts" => {
            vec![send(&chunked), late(&body("2\r\nhe\r\n3\r\nllo\r\n0\r\nA: b\r\n\r\n"))]
        }
        "until-close" => {
            vec![send(&format!("HTTP/1.0 200 OK\r\n\r\n{}", body("all"))), Step::Close]
        }
        // The response to HEAD ends with its header. If the server then closed the connection, the
        // next request might be sent before the end arrives, and a POST is not sent again.
        "until-close-empty" if is_head => vec![send("HTTP/1.1 200 OK\r\n\r\n")],
        "until-close-empty" => vec![send("HTTP/1.1 200 OK\r\n\r\n"), Step::Close],
        "interim" => vec![
            send("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
            late(&String::from_utf8(response_bytes(200, "", &body("then"))).unwrap()),
        ],
        "closed-after" => {
            vec![
                Step::Send(response_bytes(200, "Connection: close\r\n", &body("bye"))),
                Step::Close,
            ]
        }
        "broken-begin" => vec![send("HTTP/1.1 200 OK\r\nContent-Le"), Step::Close],
        "broken-length" => {
            vec![send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), Step::Close]
        }
        "broken-chunks" => vec![send(&(chunked + "5\r\nhello\r\nx\r\n")), Step::Close],
        "nominates-its-length" => {
            vec![Step::Send(response_bytes(200, "Connection: content-length\r\n", &body("hello")))]
        }
        "broken-coding" => vec![
            send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            Step::Close,
        ],
        // riskgate sends the request again, on a new connection.
        RETRIED if seen.index_on_connection > 0 => vec![Step::Close],
        "fold" => vec![send("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n")],
        path if path.starts_with('/') => {
            vec![Step::Send(response_bytes(200, "X-Of-Site: 1\r\n", &body("a page")))]
        }
        _ => vec![Step::Send(response_bytes(200, "", &body(r#"{"checked":true}"#)))],
    }
}
