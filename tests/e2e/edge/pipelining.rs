//! Several requests in one packet: each with its own key, origin and count, and nothing between.

use super::{Case, Group, Saw};
use crate::harness::{Request, get, request};

/// A POST that has no key.
const POST: &str = "POST /v1/signup HTTP/1.1\r\nHost: gate.test\r\n";
const APP: &str = "https://app.example.com";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";

fn verdict() -> Request {
    get("/v1/public/domain/first.test").key("{key}")
}

fn check(target: &str) -> Request {
    get(format!("/v1/check/{target}")).key("{key}")
}

fn saw(target: &str) -> Saw {
    Saw::line(&format!("GET /v1/check/{target} HTTP/1.1"))
}

fn packet(requests: &[Request]) -> Vec<u8> {
    requests.iter().flat_map(Request::bytes).collect()
}

fn case(name: &str, status: u16, bytes: Vec<u8>) -> Case {
    Case::answered(name, status, bytes)
}

fn begun(name: &str, bytes: Vec<u8>) -> Case {
    Case::played(name, bytes, |seen| {
        let body = seen.line().split(' ').nth(1).unwrap_or_default().to_owned();
        let text = crate::harness::answer(200, "Connection: close\r\n", &body);
        vec![crate::harness::Step::Send(text), crate::harness::Step::Close]
    })
}

#[test]
fn requests_of_one_packet_are_judged_one_by_one() {
    Group::new("pipelining", 7).run([order(), own(), smuggled()].concat());
}

fn order() -> Vec<Case> {
    let three = packet(&[check("one"), check("two"), check("three")]);
    let mixed = packet(&[check("one"), verdict(), get("/nowhere"), check("two")]);
    let many = packet(&vec![verdict(); 40]);
    let passed = |case: Case, target: &str| {
        case.then_passed(saw(target)).body(&format!("/v1/check/{target}"))
    };
    let three = begun("answers come in the order of the requests", three);
    let three = ["one", "two", "three"].into_iter().fold(three, passed);
    let mixed = passed(begun("answers of ours and others come in order", mixed), "one");
    let mixed = passed(mixed.then_verdict().then(404), "two");
    let many = (0..40).fold(begun("forty requests in one packet", many), |c, _| c.then_verdict());
    vec![three, mixed, many]
}

fn own() -> Vec<Case> {
    let other = || get("/v1/public/domain/first.test").key("{other}");
    vec![
        begun(
            "each request has its own key",
            packet(&[verdict(), other(), verdict(), other(), other()]),
        )
        .then_verdict()
        .then_verdict()
        .then_verdict()
        .then_verdict()
        .then_verdict()
        .counts(2, 3),
        begun(
            "a key does not open the next request",
            packet(&[verdict(), get("/v1/check/a"), verdict()]),
        )
        .then_verdict()
        .then(401)
        .then_verdict(),
        begun(
            "a refused key does not close the next request",
            packet(&[get("/v1/check/a"), verdict()]),
        )
        .then(401)
        .then_verdict(),
        begun(
            "each request has its own origin",
            packet(&[
                verdict().with("Origin", APP),
                verdict(),
                get("/nowhere").with("Origin", "null"),
            ]),
        )
        .then_verdict()
        .has(ALLOW_ORIGIN, APP)
        .then_verdict()
        .lacks(&[ALLOW_ORIGIN])
        .then(404)
        .lacks(&[ALLOW_ORIGIN]),
        begun(
            "each request has its own id",
            packet(&[verdict().with("X-Request-Id", "one"), verdict().with("X-Request-Id", "two")]),
        )
        .then_verdict()
        .has("X-Request-Id", "one")
        .then_verdict()
        .has("X-Request-Id", "two"),
        begun(
            "a HEAD does not take the next answer for its body",
            packet(&[request("HEAD", "/v1/public/domain/first.test").key("{key}"), verdict()]),
        )
        .then_verdict()
        .without_body()
        .then_verdict(),
        begun(
            "a preflight does not take the next answer for its body",
            packet(&[request("OPTIONS", "/v1/usage"), verdict()]),
        )
        .then(204)
        .then_verdict(),
        begun(
            "what follows a wish to close is not read",
            packet(&[verdict().with("Connection", "close"), verdict()]),
        )
        .then_verdict()
        .closed(),
    ]
}

fn smuggled() -> Vec<Case> {
    let post = |framing: &str| {
        format!(
            "POST /v1/signup HTTP/1.1\r\nHost: gate.test\r\nAuthorization: Bearer \
             {{key}}\r\n{framing}\r\n"
        )
        .into_bytes()
    };
    let smuggled = || check("smuggled").bytes();
    let length = smuggled().len() - "{key}".len() + "edge.key.pipelining.0011".len();
    let body = String::from_utf8(smuggled()).unwrap();
    vec![
        Case::passed(
            "a body that looks like a request is a body",
            [post(&format!("Content-Length: {length}\r\n")), smuggled()].concat(),
            Saw { body: body.clone(), ..Saw::line("POST /v1/signup HTTP/1.1") }
                .field(&format!("Content-Length: {length}")),
        ),
        begun(
            "a POST without a body is followed by a request",
            [post(""), check("two").bytes()].concat(),
        )
        .then_passed(Saw::line("POST /v1/signup HTTP/1.1"))
        .body("/v1/signup")
        .then_passed(saw("two"))
        .body("/v1/check/two"),
        case(
            "a request behind a body that nobody takes is not read",
            400,
            [
                &b"GET /v1/usage HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"[..],
                &smuggled(),
            ]
            .concat(),
        )
        .closed(),
        begun(
            "garbage behind a good request is refused",
            [verdict().bytes(), b"NONSENSE\r\n\r\n".to_vec(), smuggled()].concat(),
        )
        .then_verdict()
        .then(400)
        .closed(),
        begun(
            "a chunked body behind a good request is refused",
            [
                verdict().bytes(),
                post("Transfer-Encoding: chunked\r\n"),
                b"0\r\n\r\n".to_vec(),
                smuggled(),
            ]
            .concat(),
        )
        .then_verdict()
        .then(400)
        .closed(),
        begun(
            "a refusal ends the packet",
            [b"GET /v1/usage HTTP/1.1\r\n\r\n".to_vec(), verdict().bytes()].concat(),
        )
        .then(400)
        .closed(),
        begun(
            "bytes beyond a body are the next request",
            [post("Content-Length: 2\r\n"), b"{}".to_vec(), check("two").bytes()].concat(),
        )
        .then_passed(Saw::line("POST /v1/signup HTTP/1.1").body("{}"))
        .body("/v1/signup")
        .then_passed(saw("two"))
        .body("/v1/check/two"),
        begun(
            "a body behind a refused key is not taken for a request",
            [format!("{POST}Content-Length: {length}\r\n\r\n").into_bytes(), smuggled()].concat(),
        )
        .then(401),
        begun(
            "what is behind the body of a refused request is the next one",
            [format!("{POST}Content-Length: 2\r\n\r\n{{}}").into_bytes(), check("two").bytes()]
                .concat(),
        )
        .then(401)
        .then_passed(saw("two"))
        .body("/v1/check/two"),
    ]
}
