//! Lines, fields and framing: riskgate refuses everything that two parsers could understand
//! differently.

use super::{Case, CaseGroup, ForwardedRequest};
use crate::harness::{get, request};

const CHECK: &str = "/v1/check/a@b.com";
const FORWARDED_LINE: &str = "GET /v1/check/a%40b.com HTTP/1.1";
const OWN_FIELDS: &str = "Host: gate.test\r\nAuthorization: Bearer {key}\r\n";

/// A valid request with these additional fields.
fn request_with_fields(fields: &str) -> String {
    format!("GET {CHECK} HTTP/1.1\r\n{OWN_FIELDS}{fields}\r\n")
}

/// A valid POST with this framing, and these bytes after its header.
fn post(framing: &str, rest: &str) -> String {
    format!("POST /v1/signup HTTP/1.1\r\n{OWN_FIELDS}{framing}\r\n{rest}")
}

/// A valid request with this Host.
fn request_with_host(host: &str) -> String {
    format!("GET {CHECK} HTTP/1.1\r\n{host}Authorization: Bearer {{key}}\r\n\r\n")
}

fn request_with_request_line(line: &str) -> String {
    format!("{line}\r\n{OWN_FIELDS}\r\n")
}

fn forwarded_case(name: &str, bytes: String) -> Case {
    Case::forwarded(name, bytes, ForwardedRequest::with_request_line(FORWARDED_LINE))
}

#[test]
fn requests_that_two_parsers_could_read_differently_are_refused() {
    let group =
        CaseGroup::new("framing", 1).with_settings(|s| s.set("listen.max_body_bytes", "1000"));
    group.run(
        [
            body_cases(),
            chunked_body_cases(),
            host_cases(),
            field_cases(),
            connection_option_cases(),
            connection_syntax_cases(),
            request_line_cases(),
            method_cases(),
            unsupported_feature_cases(),
        ]
        .concat(),
    );
}

fn body_cases() -> Vec<Case> {
    let smuggled = request_with_fields("");
    let chunked = format!("5\r\nhello\r\n0\r\n\r\n{smuggled}");
    let five = format!("hello{smuggled}");
    let refused =
        |name, framing: &str, rest: &str| Case::refused_and_closed(name, 400, post(framing, rest));
    vec![
        refused(
            "a length beside a transfer encoding",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            &chunked,
        ),
        refused("an identity transfer encoding", "Transfer-Encoding: identity\r\n", &smuggled),
        refused("an unknown transfer encoding", "Transfer-Encoding: xchunked\r\n", &chunked),
        refused("an empty transfer encoding", "Transfer-Encoding:\r\n", &smuggled),
        refused("two lengths that agree", "Content-Length: 5\r\nContent-Length: 5\r\n", &five),
        refused("two lengths that differ", "Content-Length: 5\r\nContent-Length: 0\r\n", &five),
        refused("a list of lengths", "Content-Length: 5, 5\r\n", &five),
        refused("a length with a plus sign", "Content-Length: +5\r\n", &five),
        refused("a negative length", "Content-Length: -5\r\n", &five),
        refused("a hexadecimal length", "Content-Length: 0x5\r\n", &five),
        refused("an empty length", "Content-Length:\r\n", &smuggled),
        refused("a length of twenty digits", "Content-Length: 00000000000000000005\r\n", &five),
        refused("a length with a space in it", "Content-Length: 0 5\r\n", &five),
        Case::refused_and_closed(
            "a body over the limit",
            413,
            post("Content-Length: 1001\r\n", &"b".repeat(1001)),
        ),
        Case::forwarded(
            "a body at the limit passes",
            post("Content-Length: 1000\r\n", &"b".repeat(1000)),
            ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body(&"b".repeat(1000)),
        ),
        Case::refused_and_closed(
            "a body on a GET",
            400,
            request_with_fields("Content-Length: 5\r\n") + "hello",
        ),
        Case::refused_and_closed(
            "a transfer encoding on a GET",
            400,
            request_with_fields("Transfer-Encoding: chunked\r\n"),
        ),
        Case::answered_by_gateway(
            "a body of a method that the route does not take",
            405,
            format!("DELETE /v1/signup HTTP/1.1\r\n{OWN_FIELDS}Content-Length: 5\r\n\r\nhello"),
        ),
        Case::forwarded(
            "a length of zero on a GET passes",
            request_with_fields("Content-Length: 0\r\n"),
            ForwardedRequest::with_request_line(FORWARDED_LINE).with_field("Content-Length: 0"),
        ),
    ]
}

fn chunked_body_cases() -> Vec<Case> {
    let chunked = format!("5\r\nhello\r\n0\r\n\r\n{}", request_with_fields(""));
    let refused =
        |name, framing: &str, rest: &str| Case::refused_and_closed(name, 400, post(framing, rest));
    vec![
        refused(
            "a chunk whose size has a blank behind it",
            "Transfer-Encoding: chunked\r\n",
            &chunked.replace("5\r\n", "5 \r\n"),
        ),
        refused(
            "a chunk with a bare line feed",
            "Transfer-Encoding: chunked\r\n",
            &chunked.replace("5\r\n", "5\n"),
        ),
        refused(
            "two transfer encodings",
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            &chunked,
        ),
        Case::forwarded(
            "a chunked body goes on with a length",
            post(
                "Transfer-Encoding: chunked\r\n",
                "2;x=\"y\"\r\nhe\r\n3\r\nllo\r\n00\r\nTrailer: x\r\n\r\n",
            ),
            ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body("hello"),
        ),
        Case::forwarded(
            "a chunked body without data has the length 0",
            post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body(""),
        ),
        Case::refused_and_closed(
            "a chunked body over the limit",
            413,
            post("Transfer-Encoding: chunked\r\n", &format!("3e9\r\n{}", "b".repeat(1001))),
        ),
    ]
}

fn host_cases() -> Vec<Case> {
    let long = format!("Host: {}\r\n", "h".repeat(262));
    let refused = |name, text: &str| Case::refused_and_closed(name, 400, request_with_host(text));
    let allowed_host = |name, text: &str| {
        let forwarded = ForwardedRequest::with_request_line(FORWARDED_LINE)
            .with_field(&format!("X-Forwarded-Host: {text}"));
        Case::forwarded(name, request_with_host(&format!("Host: {text}\r\n")), forwarded)
    };
    vec![
        refused("no host", ""),
        refused("two hosts that agree", "Host: gate.test\r\nHost: gate.test\r\n"),
        refused("two hosts that differ", "Host: gate.test\r\nhost: other.test\r\n"),
        refused("an empty host", "Host:\r\n"),
        refused("a host with a space", "Host: gate.test other.test\r\n"),
        refused("a host with a path", "Host: gate.test/x\r\n"),
        refused("a host with a user", "Host: boss@gate.test\r\n"),
        refused("a list of hosts", "Host: gate.test,other.test\r\n"),
        refused("a host with a port that is no number", "Host: gate.test:http\r\n"),
        refused("a host with a port that is no port", "Host: gate.test:65536\r\n"),
        refused("a host that is too long", &long),
        allowed_host("a host with a port passes", "gate.test:65535"),
        allowed_host("an address as a host passes", "[::1]:80"),
        Case::refused_and_closed(
            "an absolute target for another host",
            400,
            request_with_request_line("GET http://other.test/v1/check/a@b.com HTTP/1.1"),
        ),
        Case::answered_by_gateway(
            "an absolute target for this host is no route",
            404,
            request_with_request_line("GET http://gate.test/v1/check/a@b.com HTTP/1.1"),
        ),
        Case::forwarded(
            "HTTP/1.0 without a host is served and closed",
            format!("GET {CHECK} HTTP/1.0\r\nAuthorization: Bearer {{key}}\r\n\r\n"),
            ForwardedRequest::with_request_line(FORWARDED_LINE).without_forwarded_host(),
        )
        .then_closed(),
        Case::refused_and_closed(
            "HTTP/1.0 with two hosts",
            400,
            format!("GET {CHECK} HTTP/1.0\r\nHost: gate.test\r\n{OWN_FIELDS}\r\n"),
        ),
    ]
}

fn field_cases() -> Vec<Case> {
    let refused = |name, text: &str| Case::refused_and_closed(name, 400, request_with_fields(text));
    vec![
        refused("a bare line feed after a field", "A: b\nC: d\r\n"),
        refused("a bare carriage return in a value", "A: b\rC: d\r\n"),
        refused("two carriage returns", "A: b\r\r\n"),
        refused("a NUL in a value", "A: b\0c\r\n"),
        refused("a control character in a value", "A: b\x01c\r\n"),
        refused("a DEL in a value", "A: b\x7fc\r\n"),
        refused("a field folded by a space", "A: b\r\n c\r\n"),
        refused("a field folded by a tab", "A: b\r\n\tc\r\n"),
        refused("a space before the colon", "A : b\r\n"),
        refused("a tab before the colon", "A\t: b\r\n"),
        refused("a field without a name", ": b\r\n"),
        refused("a field without a colon", "A\r\n"),
        refused("a field name with a bracket", "A(: b\r\n"),
        refused("a name with a space", "A B: c\r\n"),
        refused("a name with a NUL", "A\0: c\r\n"),
        Case::refused_and_closed(
            "a name that is not ASCII",
            400,
            request_with_fields("\u{e4}: b\r\n"),
        ),
        Case::refused_and_closed(
            "a first field that is folded",
            400,
            format!("GET {CHECK} HTTP/1.1\r\n A: b\r\n{OWN_FIELDS}\r\n"),
        ),
        Case::refused_and_closed(
            "a bare line feed after the request line",
            400,
            format!("GET {CHECK} HTTP/1.1\n{OWN_FIELDS}\r\n"),
        ),
        Case::refused_and_closed(
            "bare line feeds alone",
            400,
            format!("GET {CHECK} HTTP/1.1\nHost: gate.test\nAuthorization: Bearer {{key}}\n\n"),
        ),
        Case::forwarded(
            "a tab in a value passes",
            request_with_fields("A: b\tc\r\n"),
            ForwardedRequest::with_request_line(FORWARDED_LINE).with_field("A: b\tc"),
        ),
    ]
}

fn connection_option_cases() -> Vec<Case> {
    let refused = |name, text: &str| {
        Case::refused_and_closed(name, 400, request_with_fields(&format!("Connection: {text}\r\n")))
    };
    vec![
        refused("a connection that nominates the key", "Authorization"),
        refused("a connection that nominates the host", "Host"),
        refused("a connection that nominates the origin", "Origin"),
        refused("a connection that nominates the length", "Content-Length"),
        refused("a connection that nominates the encoding", "Transfer-Encoding"),
        refused("a connection that nominates the request id", "X-Request-Id"),
        refused("a connection that nominates the trace", "traceparent"),
        refused("a connection that nominates the client", "X-Forwarded-For"),
        refused("a connection that nominates the asked host", "X-Forwarded-Host"),
        refused("a connection that nominates the protocol", "X-Forwarded-Proto"),
        refused("a connection that nominates the account", "X-Riskgate-Account"),
        refused("a connection that nominates within a list", "close , \tAUTHORIZATION, te"),
        refused("a second connection field that nominates", "close\r\nConnection: host"),
    ]
}

/// Other options of `Connection`: riskgate ignores unknown and malformed options.
fn connection_syntax_cases() -> Vec<Case> {
    let connection = |text: &str| format!("Connection: {text}\r\n");
    let passed = |name, text: &str| forwarded_case(name, request_with_fields(&connection(text)));
    let closes =
        |name, text: &str| passed(name, text).then_closed().expect_header("Connection", "close");
    let ten = (0..10).map(|at| format!("x-{at}")).collect::<Vec<_>>().join(", ");
    let most = vec!["a"; 64].join(",");
    vec![
        passed("a connection option with a parameter", "keep-alive; timeout=5"),
        passed("a close with a semicolon is no close", "close;"),
        passed("a connection option that is no token", "a@b"),
        passed("a quoted connection option", "\"Authorization\""),
        passed("a connection option with a colon", ":authority"),
        passed("a connection option that is not ASCII", "\u{e4}"),
        passed("an empty connection", ""),
        passed("empty connection options", " , ,,\t, "),
        passed("ten connection options", &ten),
        passed("the largest number of connection options", &most),
        Case::refused_and_closed(
            "more connection options than anybody has",
            400,
            request_with_fields(&connection(&format!("{most},a"))),
        ),
        Case::refused_and_closed(
            "as many over several lines",
            400,
            request_with_fields(&(connection(&most) + &connection("a"))),
        ),
        closes("a close after an option that is no token", "a@b, close"),
        closes("a close after a keep-alive", "keep-alive, close"),
        closes("a close after a non-ASCII option", "\u{e4}, close"),
        closes("a close on a second line", "keep-alive\r\nConnection: close"),
        closes("a close on a line after ten options", &format!("{ten}\r\nConnection: Close")),
        Case::forwarded(
            "an option nominates a field for one hop",
            request_with_fields("Connection: X-Hop, close;\r\nX-Hop: 1\r\nX-Kept: 2\r\n"),
            ForwardedRequest::with_request_line(FORWARDED_LINE).with_field("X-Kept: 2"),
        ),
        Case::forwarded(
            "a POST with an option that is no token",
            post("Content-Length: 5\r\nConnection: keep-alive; timeout=5\r\n", "hello"),
            ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body("hello"),
        ),
        Case::forwarded(
            "a POST with ten options",
            post(&format!("Content-Length: 5\r\nConnection: {ten}\r\n"), "hello"),
            ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body("hello"),
        ),
    ]
}

fn request_line_cases() -> Vec<Case> {
    let refused =
        |name, text: &str| Case::refused_and_closed(name, 400, request_with_request_line(text));
    vec![
        Case::refused_and_closed("a line of garbage", 400, "GARBAGE\r\n\r\n"),
        Case::refused_and_closed("the preface of HTTP/2", 400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        Case::refused_and_closed(
            "a TLS ClientHello",
            400,
            b"\x16\x03\x01\0\xa5\x01\0\0\xa1\x03\x03".to_vec(),
        ),
        refused("a line without a version", &format!("GET {CHECK}")),
        refused("HTTP/1.2", &format!("GET {CHECK} HTTP/1.2")),
        refused("HTTP/2.0", &format!("GET {CHECK} HTTP/2.0")),
        refused("HTTP/1.10", &format!("GET {CHECK} HTTP/1.10")),
        refused("a version in lower case", &format!("GET {CHECK} http/1.1")),
        refused("two spaces before the target", &format!("GET  {CHECK} HTTP/1.1")),
        refused("two spaces after the target", &format!("GET {CHECK}  HTTP/1.1")),
        refused("a space after the version", &format!("GET {CHECK} HTTP/1.1 ")),
        refused("a space before the method", &format!(" GET {CHECK} HTTP/1.1")),
        refused("a tab after the method", &format!("GET\t{CHECK} HTTP/1.1")),
        refused("a space in the target", "GET /v1/check/a b HTTP/1.1"),
        refused("a method that is no token", &format!("G@T {CHECK} HTTP/1.1")),
        Case::refused_and_closed(
            "two empty lines before a request",
            400,
            "\r\n\r\n".to_owned() + &request_with_fields(""),
        ),
        forwarded_case(
            "one empty line before a request passes",
            "\r\n".to_owned() + &request_with_fields(""),
        ),
    ]
}

fn method_cases() -> Vec<Case> {
    let other = |name, method: &str| {
        Case::answered_by_gateway(name, 405, request(method, CHECK).key("{key}"))
            .expect_header("Allow", "GET, HEAD, OPTIONS")
    };
    vec![
        Case::refused_and_closed(
            "CONNECT",
            405,
            "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n",
        )
        .expect_header("Allow", "GET, HEAD, OPTIONS"),
        Case::refused_and_closed("TRACE", 405, request("TRACE", CHECK).key("{key}"))
            .expect_header("Allow", "GET, HEAD, OPTIONS"),
        Case::refused_and_closed("TRACE on a route", 405, request("TRACE", "/v1/signup"))
            .expect_header("Allow", "GET, POST, OPTIONS"),
        Case::refused_and_closed("TRACE on an unknown path", 404, request("TRACE", "/nowhere")),
        other("POST on a route without POST", "POST"),
        other("DELETE", "DELETE"),
        other("an unknown method", "BREW"),
        Case::refused_and_closed("GET in lower case", 405, request("get", CHECK).key("{key}"))
            .expect_header("Allow", "GET, HEAD, OPTIONS"),
        Case::refused_and_closed("TRACE in lower case", 405, request("trace", "/v1/signup"))
            .expect_header("Allow", "GET, POST, OPTIONS"),
        Case::refused_and_closed(
            "GET in lower case with a body",
            405,
            request("get", "/v1/signup").body("email=a@b.com"),
        )
        .expect_header("Allow", "GET, POST, OPTIONS"),
        Case::answered_by_gateway(
            "a method that the prefix does not take",
            405,
            request("PUT", "/v1/signup").key("{key}"),
        )
        .expect_header("Allow", "GET, POST, OPTIONS"),
        Case::forwarded(
            "HEAD is forwarded as HEAD",
            request("HEAD", CHECK).key("{key}"),
            ForwardedRequest::with_request_line("HEAD /v1/check/a%40b.com HTTP/1.1"),
        )
        .expect_head_response(),
        Case::answered_by_gateway("OPTIONS asks for no key", 204, request("OPTIONS", CHECK))
            .expect_header("Allow", "GET, HEAD, OPTIONS"),
    ]
}

/// Features that clients may request, but riskgate does not support.
fn unsupported_feature_cases() -> Vec<Case> {
    let upgrade = |protocol: &str, more: &str| {
        request_with_fields(&format!("Connection: Upgrade{more}\r\nUpgrade: {protocol}\r\n"))
    };
    vec![
        forwarded_case("an upgrade to a websocket is not passed on", upgrade("websocket", "")),
        forwarded_case(
            "an upgrade to HTTP/2 is not passed on",
            upgrade("h2c", ", HTTP2-Settings")
                .replace("\r\n\r\n", "\r\nHTTP2-Settings: AA\r\n\r\n"),
        ),
        forwarded_case(
            "an expectation on a GET is ignored",
            request_with_fields("Expect: 100-continue\r\n"),
        ),
        Case::refused_and_closed(
            "an unknown expectation",
            417,
            request_with_fields("Expect: miracles\r\n"),
        ),
        Case::refused_and_closed(
            "an unknown expectation beside a known one",
            417,
            post("Content-Length: 5\r\nExpect: 100-continue, miracles\r\n", "hello"),
        ),
        Case::forwarded(
            "an expectation of HTTP/1.0 is ignored",
            format!("GET {CHECK} HTTP/1.0\r\n{OWN_FIELDS}Expect: miracles\r\n\r\n"),
            ForwardedRequest::with_request_line(FORWARDED_LINE),
        )
        .then_closed(),
        Case::forwarded(
            "an expectation on a POST is not passed on",
            post("Content-Length: 5\r\nExpect: 100-continue\r\n", "hello"),
            ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body("hello"),
        ),
        forwarded_case(
            "a client that asks to close is closed",
            request_with_fields("Connection: close\r\n"),
        )
        .then_closed()
        .expect_header("Connection", "close"),
        Case::forwarded(
            "HTTP/1.0 is closed although it asks to be kept",
            format!("GET {CHECK} HTTP/1.0\r\n{OWN_FIELDS}Connection: keep-alive\r\n\r\n"),
            ForwardedRequest::with_request_line(FORWARDED_LINE),
        )
        .then_closed(),
        Case::forwarded(
            "an ordinary request passes",
            get(CHECK).key("{key}").with_header("Accept", "*/*"),
            ForwardedRequest::with_request_line(FORWARDED_LINE).with_field("Accept: */*"),
        ),
    ]
}
