//! Generates requests with a body, in every framing of HTTP/1.1.

use super::random_requests::KEY;
use crate::random_numbers::RandomNumbers;

pub const POST_TARGETS: [&str; 9] = [
    "/form",
    "/form/",
    "/form?email=x@first.test",
    "/%66orm.json",
    "/page",
    "/paid",
    "/v1/usage",
    "/v1/public/domain/first.test",
    "/a/../form",
];
const EMAILS: [&str; 6] =
    ["jane@gmail.com", "x@first.test", "info@gmail.com", "jane@gmial.com", "jane@gmail,com", ""];

/// A request with a body. Its framing is right in most cases.
pub fn random_post(random: &mut RandomNumbers) -> String {
    let method = random.pick_one(&["POST", "POST", "POST", "PUT", "PATCH", "DELETE", "GET"]);
    let padding = if random.one_in(20) { "y".repeat(70_000) } else { String::new() };
    let (content_type, body) = random_form(random, &padding);
    let mut head =
        format!("{method} {} HTTP/1.1\r\nHost: gate.test\r\n", random.pick_one(&POST_TARGETS));
    if !content_type.is_empty() {
        head += &format!("Content-Type: {content_type}\r\n");
    }
    if random.one_in(3) {
        head += &format!("Authorization: Bearer {KEY}\r\n");
    }
    if random.one_in(4) {
        let accepted = ["text/html,*/*;q=0.8", "application/json", "application/problem+json"];
        head += &format!("Accept: {}\r\n", random.pick_one(&accepted));
    }
    if random.one_in(8) {
        head += "Expect: 100-continue\r\n";
    }
    if random.one_in(8) {
        head += random.pick_one(&["Connection: close\r\n", "X-Riskgate-Action: pass\r\n"]);
    }
    match random.number_below(12) {
        0..5 => format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
        5..10 => {
            let chunks = in_random_chunks(random, &body);
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}")
        }
        10 => {
            let length = random.number_below(body.len() + 3);
            format!("{head}Content-Length: {length}\r\n\r\n{body}")
        }
        _ => {
            let chunks = in_random_chunks(random, &body);
            let fields = [
                "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                "Transfer-Encoding: gzip, chunked\r\n",
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                "Transfer-Encoding: identity\r\n",
            ];
            format!("{head}{}\r\n{chunks}", random.pick_one(&fields))
        }
    }
}

/// A type and a body of that type, which contains the padding.
pub fn random_form(random: &mut RandomNumbers, padding: &str) -> (&'static str, String) {
    let email = random.pick_one(&EMAILS);
    match random.number_below(6) {
        0..2 => ("application/x-www-form-urlencoded", format!("email={email}&x={padding}")),
        2 => ("application/json", format!("{{\"email\":\"{email}\",\"x\":\"{padding}\"}}")),
        3 => (
            "multipart/form-data; boundary=boundary",
            format!(
                "--boundary\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\n{email}\r\n\
                 --boundary--\r\n{padding}"
            ),
        ),
        4 => ("application/x-www-form-urlencoded", format!("name={email}{padding}")),
        _ => ("", format!("email={email}")),
    }
}

/// The body in chunks, some with extensions, trailers or faults.
fn in_random_chunks(random: &mut RandomNumbers, body: &str) -> String {
    let (mut chunks, mut rest) = (String::new(), body);
    while !rest.is_empty() {
        let length = match body.len() > 1_000 {
            true => rest.len().min(30_000),
            false => 1 + random.number_below(rest.len()),
        };
        let (chunk, after) = rest.split_at(length);
        let extension =
            if random.one_in(10) { random.pick_one(&[";a=b", ";a", " ", ";"]) } else { "" };
        chunks += &match random.one_in(4) {
            true => format!("{:X}{extension}\r\n{chunk}\r\n", chunk.len()),
            false => format!("{:x}{extension}\r\n{chunk}\r\n", chunk.len()),
        };
        rest = after;
    }
    let end = match random.number_below(20) {
        0 => "0\r\nX-Trailer: 1\r\n\r\n",
        1 => "00\r\n\r\n",
        2 => "0\r\n",
        3 => "0\n\n",
        _ => "0\r\n\r\n",
    };
    chunks + end
}
