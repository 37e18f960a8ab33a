//! Several requests in one packet: each has its own key, origin and count, and no bytes between
//! them are lost.

use super::{Case, CaseGroup, ForwardedRequest};
use crate::harness::{Request, get, request};

/// A POST without a key.
const POST_WITHOUT_KEY: &str = "POST /v1/signup HTTP/1.1\r\nHost: gate.test\r\n";
const APP: &str = "https://app.example.com";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";

fn verdict_request() -> Request {
    get("/v1/public/domain/first.test").key("{key}")
}

fn check_request(target: &str) -> Request {
    get(format!("/v1/check/{target}")).key("{key}")
}

fn forwarded_check(target: &str) -> ForwardedRequest {
    ForwardedRequest::with_request_line(&format!("GET /v1/check/{target} HTTP/1.1"))
}

fn join_requests(requests: &[Request]) -> Vec<u8> {
    requests.iter().flat_map(Request::to_bytes).collect()
}

fn case_answered_by_gateway(name: &str, status: u16, bytes: Vec<u8>) -> Case {
    Case::answered_by_gateway(name, status, bytes)
}

/// A case whose upstream server answers each request with the target of that request.
fn echoing_case(name: &str, bytes: Vec<u8>) -> Case {
    Case::with_upstream_script(name, bytes, |seen| {
        let body = seen.request_line().split(' ').nth(1).unwrap_or_default().to_owned();
        let text = crate::harness::response_bytes(200, "Connection: close\r\n", &body);
        vec![crate::harness::Step::Send(text), crate::harness::Step::Close]
    })
}

#[test]
fn pipelined_requests_are_authorized_counted_and_answered_one_by_one() {
    CaseGroup::new("pipelining", 7).run(
        [
            order_cases(),
            isolation_cases(),
            framing_isolation_cases(),
            smuggling_cases(),
            boundary_cases(),
            chunk_cases(),
        ]
        .concat(),
    );
}

fn order_cases() -> Vec<Case> {
    let three =
        join_requests(&[check_request("one"), check_request("two"), check_request("three")]);
    let mixed = join_requests(&[
        check_request("one"),
        verdict_request(),
        get("/nowhere"),
        check_request("two"),
    ]);
    let many = join_requests(&vec![verdict_request(); 40]);
    let passed = |case: Case, target: &str| {
        case.then_forwarded(forwarded_check(target)).body(&format!("/v1/check/{target}"))
    };
    let three = echoing_case("responses keep the order of the requests", three);
    let three = ["one", "two", "three"].into_iter().fold(three, passed);
    let mixed = passed(
        echoing_case("riskgate's and the upstream server's responses keep their order", mixed),
        "one",
    );
    let mixed = passed(mixed.then_verdict().then_status(404), "two");
    let many =
        (0..40).fold(echoing_case("forty requests in one packet", many), |c, _| c.then_verdict());
    vec![three, mixed, many]
}

fn isolation_cases() -> Vec<Case> {
    let other = || get("/v1/public/domain/first.test").key("{other}");
    vec![
        echoing_case(
            "each request has its own key",
            join_requests(&[verdict_request(), other(), verdict_request(), other(), other()]),
        )
        .then_verdict()
        .then_verdict()
        .then_verdict()
        .then_verdict()
        .then_verdict()
        .expect_counts(2, 3),
        echoing_case(
            "a key does not authorize the next request",
            join_requests(&[verdict_request(), get("/v1/check/a"), verdict_request()]),
        )
        .then_verdict()
        .then_status(401)
        .then_verdict(),
        echoing_case(
            "a refused key does not affect the next request",
            join_requests(&[get("/v1/check/a"), verdict_request()]),
        )
        .then_status(401)
        .then_verdict(),
        echoing_case(
            "each request has its own origin",
            join_requests(&[
                verdict_request().with_header("Origin", APP),
                verdict_request(),
                get("/nowhere").with_header("Origin", "null"),
            ]),
        )
        .then_verdict()
        .expect_header(ALLOW_ORIGIN, APP)
        .then_verdict()
        .expect_no_headers(&[ALLOW_ORIGIN])
        .then_status(404)
        .expect_no_headers(&[ALLOW_ORIGIN]),
    ]
}

fn framing_isolation_cases() -> Vec<Case> {
    vec![
        echoing_case(
            "each request has its own id",
            join_requests(&[
                verdict_request().with_header("X-Request-Id", "one"),
                verdict_request().with_header("X-Request-Id", "two"),
            ]),
        )
        .then_verdict()
        .expect_header("X-Request-Id", "one")
        .then_verdict()
        .expect_header("X-Request-Id", "two"),
        echoing_case(
            "a HEAD response has no body before the next response",
            join_requests(&[
                request("HEAD", "/v1/public/domain/first.test").key("{key}"),
                verdict_request(),
            ]),
        )
        .then_verdict()
        .expect_head_response()
        .then_verdict(),
        echoing_case(
            "a preflight response has no body before the next response",
            join_requests(&[request("OPTIONS", "/v1/usage"), verdict_request()]),
        )
        .then_status(204)
        .then_verdict(),
        echoing_case(
            "requests after Connection: close are not read",
            join_requests(&[
                verdict_request().with_header("Connection", "close"),
                verdict_request(),
            ]),
        )
        .then_verdict()
        .then_closed(),
    ]
}

fn keyed_post_header(framing: &str) -> Vec<u8> {
    format!(
        "POST /v1/signup HTTP/1.1\r\nHost: gate.test\r\nAuthorization: Bearer \
         {{key}}\r\n{framing}\r\n"
    )
    .into_bytes()
}

/// The length that the request has after the runner fills in the key, and the request itself, which
/// a case sends as a body.
fn smuggled_request() -> (usize, String) {
    let body = String::from_utf8(check_request("smuggled").to_bytes()).unwrap();
    (body.len() - "{key}".len() + "edge.key.pipelining.0011".len(), body)
}

fn smuggling_cases() -> Vec<Case> {
    let smuggled = || check_request("smuggled").to_bytes();
    let (length, body) = smuggled_request();
    vec![
        Case::forwarded(
            "a body that looks like a request is a body",
            [keyed_post_header(&format!("Content-Length: {length}\r\n")), smuggled()].concat(),
            ForwardedRequest {
                body: body.clone(),
                ..ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1")
            }
            .with_field(&format!("Content-Length: {length}")),
        ),
        echoing_case(
            "a POST without a body is followed by a request",
            [keyed_post_header(""), check_request("two").to_bytes()].concat(),
        )
        .then_forwarded(ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1"))
        .body("/v1/signup")
        .then_forwarded(forwarded_check("two"))
        .body("/v1/check/two"),
        case_answered_by_gateway(
            "a request after an unwanted body is not read",
            400,
            [
                &b"GET /v1/usage HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"[..],
                &smuggled(),
            ]
            .concat(),
        )
        .then_closed(),
    ]
}

fn chunk_cases() -> Vec<Case> {
    let smuggled = || check_request("smuggled").to_bytes();
    vec![
        echoing_case(
            "malformed chunks after a valid request are refused",
            [
                verdict_request().to_bytes(),
                keyed_post_header("Transfer-Encoding: chunked\r\n"),
                b"0 \r\n\r\n".to_vec(),
                smuggled(),
            ]
            .concat(),
        )
        .then_verdict()
        .then_status(400)
        .then_closed(),
        echoing_case(
            "bytes beyond a chunked body are the next request",
            [
                keyed_post_header("Transfer-Encoding: chunked\r\n"),
                b"2\r\n{}\r\n0\r\nTrailer: x\r\n\r\n".to_vec(),
                check_request("two").to_bytes(),
            ]
            .concat(),
        )
        .then_forwarded(ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body("{}"))
        .body("/v1/signup")
        .then_forwarded(forwarded_check("two"))
        .body("/v1/check/two"),
    ]
}

fn boundary_cases() -> Vec<Case> {
    let (length, _) = smuggled_request();
    let smuggled = || check_request("smuggled").to_bytes();
    vec![
        echoing_case(
            "garbage after a valid request is refused",
            [verdict_request().to_bytes(), b"NONSENSE\r\n\r\n".to_vec(), smuggled()].concat(),
        )
        .then_verdict()
        .then_status(400)
        .then_closed(),
        echoing_case(
            "a refusal ends the packet",
            [b"GET /v1/usage HTTP/1.1\r\n\r\n".to_vec(), verdict_request().to_bytes()].concat(),
        )
        .then_status(400)
        .then_closed(),
        echoing_case(
            "bytes beyond a body are the next request",
            [
                keyed_post_header("Content-Length: 2\r\n"),
                b"{}".to_vec(),
                check_request("two").to_bytes(),
            ]
            .concat(),
        )
        .then_forwarded(ForwardedRequest::with_request_line("POST /v1/signup HTTP/1.1").body("{}"))
        .body("/v1/signup")
        .then_forwarded(forwarded_check("two"))
        .body("/v1/check/two"),
        echoing_case(
            "a body after a refused key is not parsed as a request",
            [
                format!("{POST_WITHOUT_KEY}Content-Length: {length}\r\n\r\n").into_bytes(),
                smuggled(),
            ]
            .concat(),
        )
        .then_status(401),
        echoing_case(
            "bytes after the body of a refused request are the next request",
            [
                format!("{POST_WITHOUT_KEY}Content-Length: 2\r\n\r\n{{}}").into_bytes(),
                check_request("two").to_bytes(),
            ]
            .concat(),
        )
        .then_status(401)
        .then_forwarded(forwarded_check("two"))
        .body("/v1/check/two"),
    ]
}
