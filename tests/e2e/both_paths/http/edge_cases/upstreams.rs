//! The upstream server sends malformed, broken or oversized responses. No other client may receive
//! them, no truncated response may look complete, and riskgate must not reuse the connection.

use super::{Case, CaseGroup, ForwardedRequest};
use crate::harness::{Step, get, response_bytes};

const CHECK: &str = "/v1/check/a@b.com";

fn forwarded_check() -> ForwardedRequest {
    ForwardedRequest::with_request_line("GET /v1/check/a%40b.com HTTP/1.1")
}

/// The upstream server performs these steps.
fn upstream_case(name: &str, steps: Vec<Step>) -> Case {
    Case::with_upstream_script(name, get(CHECK).key("{key}"), move |_| steps.clone())
        .then_upstream_gets(forwarded_check())
}

fn upstream_text_case(name: &str, text: &str) -> Case {
    upstream_case(name, vec![Step::Send(text.as_bytes().to_vec())])
}

/// riskgate answers with a complete 500 and closes the connection.
fn expect_upstream_failure(case: Case) -> Case {
    Case { logs: vec![(500, "upstream_unavailable", None)], ..case.then_status(500).then_closed() }
        .also_check_next_client()
}

/// The upstream server's response was truncated, and the client must notice it.
fn expect_truncation(case: Case) -> Case {
    case.then_status(200)
        .expect_truncated()
        .expect_counts(1, 0)
        .then_closed()
        .expect_logs(&[(200, "aborted", None)])
        .also_check_next_client()
}

/// The client receives the upstream server's response completely.
fn expect_forwarded_response(case: Case, status: u16, body: &str) -> Case {
    let outcome = match status {
        400..=499 => "upstream_4xx",
        500..=599 => "upstream_5xx",
        _ => "ok",
    };
    case.then_status(status).body(body).expect_counts(1, 0).expect_logs(&[(status, outcome, None)])
}

#[test]
fn a_broken_upstream_response_never_looks_complete_or_reaches_another_client() {
    CaseGroup::new("upstreams", 10).run(
        [early_close_cases(), malformed_response_cases(), length_cases(), informational_cases()]
            .concat(),
    );
}

#[test]
fn response_fields_reserved_to_riskgate_are_dropped() {
    let header = |name: &str, field: &'static str, value: &str| {
        let case =
            upstream_text_case(name, &ok_response_with_fields(&format!("{field}: {value}\r\n")));
        expect_forwarded_response(case, 200, "{}").expect_no_headers(&[field])
    };
    let stays = |name: &str, field: &'static str, value: &str| {
        let case =
            upstream_text_case(name, &ok_response_with_fields(&format!("{field}: {value}\r\n")));
        expect_forwarded_response(case, 200, "{}").expect_header(field, value)
    };
    let overwritten = |name: &str, fields: &str, field: &'static str, value: &str| {
        expect_forwarded_response(
            upstream_text_case(name, &ok_response_with_fields(fields)),
            200,
            "{}",
        )
        .expect_header(field, value)
    };
    CaseGroup::new("fields", 11).run(vec![
        header("a cookie", "Set-Cookie", "a=b"),
        header("the server's name", "Server", "secret/1.0"),
        header("Access-Control-Allow-Origin", "Access-Control-Allow-Origin", "*"),
        header("Access-Control-Allow-Credentials", "Access-Control-Allow-Credentials", "true"),
        header("Access-Control-Expose-Headers", "Access-Control-Expose-Headers", "X-Secret"),
        header("an account", "X-Riskgate-Account", "x"),
        header("X-Fail-Open on a success", "X-Fail-Open", "true"),
        header("the version of a table", "X-Table-Version", "forged"),
        header("a domain that matched", "X-Matched-Domain", "forged"),
        header("Keep-Alive", "Keep-Alive", "timeout=5"),
        header("Proxy-Authenticate", "Proxy-Authenticate", "Basic"),
        header("an upgrade", "Upgrade", "h2c"),
        expect_forwarded_response(
            upstream_text_case(
                "a field nominated by Connection",
                &ok_response_with_fields("Connection: X-Hop\r\nX-Hop: 1\r\n"),
            ),
            200,
            "{}",
        )
        .expect_no_headers(&["X-Hop"]),
        overwritten("the source", "X-Riskgate-Source: me\r\n", "X-Riskgate-Source", "upstream"),
        overwritten(
            "another limit",
            "RateLimit-Policy: \"other\";q=1\r\n",
            "RateLimit-Policy",
            "\"monthly\";q=10000",
        ),
        cors_case(),
        overwritten("an answer that may not be stored", "", "Cache-Control", "no-store"),
        stays("an answer that may be stored stays so", "Cache-Control", "max-age=60"),
        stays("its content type stays", "Content-Type", "application/problem+json"),
        stays("its tag stays", "ETag", "\"7\""),
        stays("its language stays", "Content-Language", "en"),
        stays("an unknown header stays", "X-Other", "stays"),
    ]);
}

#[test]
fn an_upstream_status_is_forwarded_and_429_and_5xx_have_x_fail_open() {
    let status = |status: u16, fails_open: bool| {
        let case = upstream_text_case(
            &format!("a status of {status} passes"),
            &response_with_status(status),
        );
        let case = expect_forwarded_response(case, status, "{}")
            .expect_header("X-Riskgate-Source", "upstream");
        if fails_open {
            case.expect_header("X-Fail-Open", "true")
        } else {
            case.expect_no_headers(&["X-Fail-Open"])
        }
    };
    CaseGroup::new("statuses", 14).run(vec![
        status(201, false),
        status(301, false),
        status(400, false),
        status(401, false),
        status(404, false),
        status(422, false),
        status(429, true),
        status(500, true),
        status(502, true),
        status(503, true),
        status(599, true),
    ]);
}

/// Only riskgate's own CORS fields reach a browser.
fn cors_case() -> Case {
    let app = "https://app.example.com";
    let request = get(CHECK).key("{key}").with_header("Origin", app);
    let theirs = "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: X-Secret\r\n";
    let case = Case::with_upstream_script(
        "CORS fields of the upstream server are replaced",
        request,
        move |_| vec![Step::Send(response_bytes(200, theirs, "{}"))],
    );
    let exposed = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Fail-Open, \
                   X-Table-Version, X-Matched-Domain, X-Verdict-Source, X-Did-You-Mean, \
                   X-Evidence-Date";
    expect_forwarded_response(
        case.then_upstream_gets(forwarded_check().with_field(&format!("Origin: {app}"))),
        200,
        "{}",
    )
    .expect_header("Access-Control-Allow-Origin", app)
    .expect_header("Access-Control-Expose-Headers", exposed)
    .expect_header("Vary", "Origin")
}

fn ok_response_with_fields(fields: &str) -> String {
    String::from_utf8(response_bytes(200, fields, "{}")).unwrap()
}

fn response_with_status(status: u16) -> String {
    String::from_utf8(response_bytes(status, "Content-Type: text/plain\r\n", "{}")).unwrap()
}

fn early_close_cases() -> Vec<Case> {
    vec![
        expect_upstream_failure(upstream_case("it closes before its answer", vec![Step::Close])),
        expect_upstream_failure(upstream_case("it resets before its answer", vec![Step::Reset])),
        expect_upstream_failure(upstream_case(
            "it closes within its header",
            vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()), Step::Close],
        )),
        expect_truncation(upstream_case(
            "it closes after its header",
            vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n".to_vec()),
                Step::Close,
            ],
        )),
        expect_truncation(upstream_case(
            "it closes within a body of known length",
            vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec()),
                Step::Close,
            ],
        )),
        expect_truncation(upstream_case(
            "it closes between two chunks",
            vec![Step::Send(chunked_response("3\r\nabc\r\n")), Step::Close],
        )),
        expect_truncation(upstream_case(
            "it closes within a chunk",
            vec![Step::Send(chunked_response("9\r\nabc")), Step::Close],
        )),
        expect_truncation(upstream_case(
            "it closes before the last line of the last chunk",
            vec![Step::Send(chunked_response("3\r\nabc\r\n0\r\n")), Step::Close],
        )),
    ]
}

fn chunked_response(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

fn malformed_response_cases() -> Vec<Case> {
    let garbage = |name, text: &str| {
        expect_upstream_failure(upstream_case(
            name,
            vec![Step::Send(text.as_bytes().to_vec()), Step::Close],
        ))
    };
    let huge = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "h".repeat(2_000_000));
    let many = "X: y\r\n".repeat(5_000);
    vec![
        garbage("it speaks SSH", "SSH-2.0-OpenSSH_9.9\r\n\r\n"),
        garbage("it sends NULs", "\0\0\0\0\r\n\r\n"),
        garbage("its status is in words", "HTTP/1.1 two hundred\r\n\r\n"),
        garbage("its status has four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"),
        garbage("its version is another", "HTTP/3.7 200 OK\r\nContent-Length: 0\r\n\r\n"),
        garbage("a field has no colon", "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"),
        garbage("a name has a space", "HTTP/1.1 200 OK\r\nA B: c\r\nContent-Length: 0\r\n\r\n"),
        garbage("a value has a NUL", "HTTP/1.1 200 OK\r\nA: b\0c\r\nContent-Length: 0\r\n\r\n"),
        garbage("its header is huge", &huge),
        garbage("it sends 5,000 fields", &format!("HTTP/1.1 200 OK\r\n{many}\r\n")),
    ]
}

fn length_cases() -> Vec<Case> {
    let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{{}}{forged}");
    let chunks = String::from_utf8(chunked_response("3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")).unwrap();
    let failing = |name, text: &str| expect_upstream_failure(upstream_text_case(name, text));
    vec![
        expect_forwarded_response(
            upstream_text_case("more bytes than its length", &long),
            200,
            "{}",
        )
        .also_check_next_client(),
        expect_forwarded_response(
            upstream_text_case("bytes after its last chunk", &format!("{chunks}{forged}")),
            200,
            "abcdefg",
        )
        .also_check_next_client(),
        expect_forwarded_response(upstream_text_case("chunks come whole", &chunks), 200, "abcdefg"),
        expect_forwarded_response(
            upstream_case(
                "a body without a length comes whole",
                vec![Step::Send(b"HTTP/1.1 200 OK\r\n\r\nabc".to_vec()), Step::Close],
            ),
            200,
            "abc",
        )
        .also_check_next_client(),
        failing(
            "two lengths that differ",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\n{}",
        ),
        failing("a length that is no number", "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}"),
        failing("a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"),
        expect_forwarded_response(
            upstream_text_case(
                "a body after 204",
                "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nforged",
            ),
            204,
            "",
        )
        .also_check_next_client(),
        expect_forwarded_response(
            upstream_text_case(
                "a body after 304",
                &format!("HTTP/1.1 304 Not Modified\r\nETag: \"7\"\r\n\r\n{forged}"),
            ),
            304,
            "",
        )
        .also_check_next_client(),
        expect_truncation(upstream_text_case(
            "a chunk whose size is no number",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        )),
        expect_truncation(upstream_text_case(
            "a chunk that is longer than its size",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        )),
    ]
}

fn informational_cases() -> Vec<Case> {
    let then = |first: &str| format!("{first}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{{}}");
    vec![
        expect_upstream_failure(upstream_text_case(
            "an unrequested upgrade",
            &then("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
        )),
        expect_forwarded_response(
            upstream_text_case(
                "an early hint is not passed on",
                &then("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
            ),
            200,
            "{}",
        )
        .expect_no_headers(&["Link"]),
        expect_forwarded_response(
            upstream_text_case(
                "a continue is not passed on",
                &then("HTTP/1.1 100 Continue\r\n\r\n"),
            ),
            200,
            "{}",
        ),
        expect_upstream_failure(upstream_text_case(
            "so many early hints",
            &then(&"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".repeat(65)),
        )),
        expect_forwarded_response(
            upstream_text_case(
                "several of them are not passed on",
                &then(&"HTTP/1.1 102 Processing\r\n\r\n".repeat(5)),
            ),
            200,
            "{}",
        ),
    ]
}
