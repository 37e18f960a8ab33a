//! Random forms, with every oddity that a parser may read in its own way.

use super::{BAD, Form, GOOD};
use crate::random_numbers::RandomNumbers;

pub fn random_form(random: &mut RandomNumbers) -> Form {
    match random.number_below(3) {
        0 => random_urlencoded(random),
        1 => random_json(random),
        _ => random_multipart(random),
    }
}

fn random_address(random: &mut RandomNumbers) -> &'static str {
    random.pick_one(&[GOOD, BAD, BAD])
}

fn random_urlencoded(random: &mut RandomNumbers) -> Form {
    let mut body = random.pick_one(&["", "", "", "", "", "\u{feff}", "?", " "]).to_owned();
    for _ in 0..=random.number_below(4) {
        let name = random.pick_one(&[
            "email",
            "email",
            "%65mail",
            "email[]",
            "email%5B%5D",
            "user[email]",
            "user%5bemail%5D",
            "user.email",
            "Email",
            "+email",
            "name",
            "email%00",
            "em+ail",
            "email[0]",
            "user_email",
            "user[email",
            "user+email",
            "user[][email]",
            "user[email][]",
            "ema%C4%B1l",
            "EMA\u{130}L",
            "",
        ]);
        let equals = random.pick_one(&["=", "=", "=", "==", "%3D", ""]);
        let address = random_address(random);
        let value = match random.number_below(5) {
            0 => address.replace('@', "%40"),
            1 => format!("+{address}+"),
            2 => address.replace('.', "%2e"),
            _ => address.to_owned(),
        };
        body += &format!("{name}{equals}{value}{}", random.pick_one(&["&", "&", ";", "&&", "%26"]));
    }
    if random.one_in(20) {
        let before = random.pick_one(&["\u{feff}", "", "/**/"]);
        body = format!("{before}{{\"email\":\"{BAD}\",\"a\":\"&email={GOOD}&\"}}");
    }
    if random.one_in(20) {
        body = format!("/*&email={GOOD}&*/{{\"email\":\"{BAD}\"}}");
    }
    let content_type = random.pick_one(&[
        "application/x-www-form-urlencoded",
        "application/x-www-form-urlencoded; charset=UTF-8",
        "Application/X-WWW-Form-Urlencoded;charset=utf-16",
    ]);
    Form { content_type: content_type.to_owned(), body: body.into_bytes() }
}

fn random_json(random: &mut RandomNumbers) -> Form {
    let mut members = Vec::new();
    for _ in 0..=random.number_below(3) {
        let name = random.pick_one(&[
            "email",
            "e\\u006dail",
            "EMAIL",
            "ema\u{131}l",
            "name",
            "user",
            "email ",
        ]);
        let address = random_address(random);
        let text = match random.number_below(4) {
            0 => format!("\"{}\"", address.replace('@', "\\u0040")),
            1 => format!("\" {address}\""),
            _ => format!("\"{address}\""),
        };
        let value = match random.number_below(6) {
            0 => format!("[{text}]"),
            1 => format!("{{\"email\":{text}}}"),
            2 => format!("{{\"email\":{text},\"email\":\"{GOOD}\"}}"),
            _ => text,
        };
        members.push(format!("\"{name}\":{value}"));
    }
    let object = format!("{{{}}}", members.join(","));
    let body = match random.number_below(8) {
        0 => format!("\u{feff}{object}").into_bytes(),
        1 => object.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        2 => object.replace("}", ",}").into_bytes(),
        3 => format!("{object}{object}").into_bytes(),
        4 => [b"{\"em\xffail\":\"", BAD.as_bytes(), b"\",", &object.as_bytes()[1..]].concat(),
        _ => object.into_bytes(),
    };
    let content_type = random.pick_one(&["application/json", "application/json; charset=utf-8"]);
    Form { content_type: content_type.to_owned(), body }
}

/// Values of `Content-Disposition`, some with a further line.
const DISPOSITIONS: &[&str] = &[
    "form-data; name=\"email\"",
    "form-data; name=\"email\"",
    "form-data; name=email",
    "form-data; name='email'",
    "form-data;name=\"email\"",
    "form-data; name=\"user[email]\"",
    "form-data; name=\"em\\ail\"",
    "form-data; name=\"name\"; name=\"email\"",
    "form-data; name=\"email\"; filename=\"\"",
    "form-data; name=\"email\"; filename=\"a.txt\"",
    "form-data; name*=utf-8''email",
    "form-data; name*=utf-8''email?",
    "form-data; name*=utf-8''Email<x>; y=z",
    "form-data; name*=utf-8''%65mail/x",
    "form-data; name*=utf-8''email\u{17f}",
    "form-data; name*=email\u{200b}",
    "form-data; name=email?x",
    "form-data; name=ema\u{131}l",
    "form-data; name=\"EMA\u{130}L\"",
    "FORM-DATA; NAME=\"email\"",
    "form-data; name=\"name\"",
    "form-data; name=\"x; name=email\"",
    "form-data; name=\"x\"; filename=\"; name=email\"",
    "form-data; name=\"x\"\r\n\u{b};name=\"email\":x",
    "form-data; name=\"x\"\r\n\u{c};name=\"email\":x",
    "attachment; name=\"email\"",
    "form-data; name=\"email\"; size=7",
    "form-data; name=email; filename*=utf-8''a.png",
    "form-data; name=\"=?utf-8?Q?email?=\"",
    "form-data; name=\"\u{feff}email\"",
    "form-data; name*0=em; name*1=ail",
    "form-data; name=\"name\"; name*=utf-8''email",
    "form-data; name=\"x\"; filename=\"it's; a \\\"b\\\".png\"",
    "form-data; name=x'; y=\"'; name=email;\"",
    "form-data; name='x; name=email'",
    "form-data; x=\":\"; name=\"name\"\r\nContent-ID: email",
    "form-data; name=\"=?utf-8?Q?email?=x\"",
    "form-data; name=\"=?windows-1252?Q?email?=\"",
    "form-data; x=\"; name=email\"; y=\";\u{a0}name=foo\"",
    "form-data; x=\"\\\\\"; name=\"email\"; y=\"; name=z\"",
    "form-data\r\nContent-Type: email",
    "form-data; name=\"\"\r\nContent-Type: email",
];

/// Further lines of the header of a part.
const PART_FIELDS: &[&str] = &[
    "",
    "",
    "",
    "Content-Type: text/plain; charset=utf-16",
    "Content-Type: text/plain",
    "Content-Transfer-Encoding: quoted-printable",
    "Content-Transfer-Encoding: 8bit",
    "Content-Type: text/plain; charset=ISO-8859-1",
    "Content-Type: application/json",
    "content-disposition: form-data; name=\"name\"",
    "X: y\r\n folded: z",
    "X-A: Content-Disposition: form-data; name=\"email\"",
    "X-Content-Disposition: form-data; name=\"email\"",
    "Content-Type: text/plain; a=\"Content-Disposition: ; name=email\"",
];

fn random_multipart(random: &mut RandomNumbers) -> Form {
    let boundary = random.pick_one(&[
        "xyz",
        "----WebKitFormBoundary7MA4",
        "----geckoformboundaryc5cf",
        "charset-boundary",
        "a b",
        "x'y",
    ]);
    let end = random.pick_one(&["\r\n", "\r\n", "\r\n", "\n"]);
    let outside = format!("Content-Disposition: form-data; name=\"email\"\r\n\r\n{BAD}\r\n");
    let json = format!("{{\"email\":\"{BAD}\"}}");
    let before = [&outside, "/*\r\n", &format!("{json}\r\n"), &format!("&email={BAD}&\r\n")];
    let mut body = match random.number_below(3) {
        0 => random.pick_one(&before).to_owned(),
        _ => random.pick_one(&["", "", "preamble\r\n"]).to_owned(),
    };
    let is_comment = body.starts_with("/*");
    for _ in 0..=random.number_below(3) {
        let disposition = random.pick_one(DISPOSITIONS);
        let more = random.pick_one(PART_FIELDS);
        let more = if more.is_empty() { String::new() } else { format!("{more}{end}") };
        let address = match random.one_in(10) {
            true => format!("&email={BAD}&"),
            false => random_address(random).to_owned(),
        };
        body += &format!(
            "--{boundary}{end}Content-Disposition: {disposition}{end}{more}{end}{address}{end}"
        );
    }
    body += &format!("--{boundary}{}", random.pick_one(&["--\r\n", "--", "--\r\n", "\r\n", ""]));
    if random.one_in(6) {
        body += &format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\n{BAD}\r\n\
             --{boundary}--\r\n"
        );
    }
    if random.one_in(20) {
        body += &outside;
    }
    if is_comment {
        body += &format!("*/{json}");
    }
    let quoted = format!("\"{boundary}\"");
    let shown = if random.one_in(2) { boundary } else { &quoted };
    let more = random.pick_one(&["", "", "; charset=utf-8", "; boundary=other"]);
    let content_type = format!("multipart/form-data; boundary={shown}{more}");
    match random.one_in(6) {
        true => form_with_two_boundaries(random),
        false => Form { content_type, body: body.into_bytes() },
    }
}

/// A form whose boundary servers may read in two ways. Each of its two readings has another
/// address.
fn form_with_two_boundaries(random: &mut RandomNumbers) -> Form {
    let kinds = [
        ("good", "evil\"", "x=\"boundary=evil\"; boundary=good"),
        ("good", "evil", "x=\"boundary=evil;\"; boundary=good"),
        ("good", "evil", "boundary=good; x=\"boundary=evil\""),
        ("good", "evil", "xboundary=evil; boundary=good"),
        ("good", "evil", "boundary=evil; boundary=good"),
        ("good", "evil", "boundary=good; boundary=evil"),
        ("my-boundary", "evil", "Boundary=my-boundary; x=evil"),
        ("good,evil", "good", "boundary=\"good,evil\""),
        ("good;evil", "good", "boundary=\"good;evil\""),
        ("good=evil", "good", "boundary=good=evil"),
        ("boundary=evil", "evil", "boundary=\"boundary=evil\""),
        ("=?utf-8?Q?evil?=", "evil", "boundary=\"=?utf-8?Q?evil?=\""),
        ("good", "evil", "boundary=good; x=\"boundary=evil\"; y=\"boundary=\""),
        ("good", "evil", r#"x="\\"; boundary=good; y="\"; boundary=evil; z="; w="boundary=good""#),
    ];
    let (outer, inner, boundaries) = kinds[random.number_below(kinds.len())];
    form_with_hidden_part(outer, inner, &format!("multipart/form-data; {boundaries}"))
}

/// A form whose part, to a server that reads the inner boundary, is the field with a throw-away
/// address.
pub fn form_with_hidden_part(outer: &str, inner: &str, content_type: &str) -> Form {
    let part = |boundary: &str, name: &str, content: &str| {
        let header = format!("Content-Disposition: form-data; name=\"{name}\"");
        format!("--{boundary}\r\n{header}\r\n\r\n{content}\r\n")
    };
    let hidden = format!("{}--{inner}--", part(inner, "email", BAD));
    let parts = [part(outer, "email", GOOD), part(outer, "x", &hidden)].concat();
    Form {
        content_type: content_type.to_owned(),
        body: format!("{parts}--{outer}--\r\n").into_bytes(),
    }
}

/// The form of a server action of React, as its client writes it or as only an attacker does.
pub fn random_server_action(random: &mut RandomNumbers) -> Form {
    let parts = match random.one_in(3) {
        true => parts_as_react_writes(random),
        false => parts_of_attacker(random),
    };
    let part = |(name, content): &(String, String)| {
        format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
    };
    let pair = |(name, content): &(String, String)| format!("{name}={content}");
    let (content_type, body) = match random.number_below(8) {
        0 => ("text/plain;charset=UTF-8", parts.last().unwrap().1.clone()),
        1 => {
            let pairs: Vec<String> = parts.iter().map(pair).collect();
            ("application/x-www-form-urlencoded", pairs.join("&"))
        }
        _ => {
            let body = parts.iter().map(part).collect::<String>() + "--xyz--\r\n";
            ("multipart/form-data; boundary=xyz", body)
        }
    };
    let pieces: Vec<&[u8]> = body.split(BAD_BYTE_MARK).map(str::as_bytes).collect();
    Form { content_type: content_type.to_owned(), body: pieces.join(&0xff) }
}

/// Stands for a byte that is not UTF-8.
const BAD_BYTE_MARK: char = '\u{e000}';

fn parts_as_react_writes(random: &mut RandomNumbers) -> Vec<(String, String)> {
    let id = random.pick_one(&["1", "a"]);
    let field = |name: &str, content: &str| (format!("_{id}_{name}"), content.to_owned());
    let address = random.pick_one(&[GOOD, BAD]);
    let state = random.pick_one(&["null", "\"$undefined\"", "{\"error\":\"$$5\"}"]);
    let list = format!("[{state},\"$K{id}\"]");
    vec![field("name", "Joe"), field("email", address), ("0".to_owned(), list)]
}

fn parts_of_attacker(random: &mut RandomNumbers) -> Vec<(String, String)> {
    let mut parts = Vec::new();
    if random.one_in(3) {
        parts.push(("email".to_owned(), random_address(random).to_owned()));
    }
    for _ in 0..=random.number_below(3) {
        let id = random_action_id(random);
        let name = match random.number_below(4) {
            0 => format!("{id}_email"),
            1 => random.pick_one(&["email", "1", "2", "00", "0x0", " 0", "S1", "-0"]).to_owned(),
            _ => format!("_{id}_email"),
        };
        let content = match name.contains("email") {
            true => random_address(random).to_owned(),
            false => random_argument(random, 2),
        };
        parts.push((name, content));
    }
    let arguments: Vec<String> =
        (0..=random.number_below(2)).map(|_| random_argument(random, 2)).collect();
    let list = format!("[{}]", arguments.join(","));
    let list = match random.number_below(8) {
        0 => list.replace('$', "\\u0024"),
        1 => format!("\u{feff}{list}"),
        2 => random_argument(random, 2),
        _ => list,
    };
    let names = ["0", "0", "0", "0", "0.0", "S0", "S 0", " ", "\u{feff}", "9e-999"];
    parts.push((random.pick_one(&names).to_owned(), list));
    parts
}

fn random_action_id(random: &mut RandomNumbers) -> &'static str {
    random.pick_one(&["1", "1", "1", "2", "a", "A", "01", "x", "", "1_1", "_1"])
}

/// An argument of a server action, in JSON. `depth` is how deep lists and objects may be in it.
fn random_argument(random: &mut RandomNumbers, depth: usize) -> String {
    match random.number_below(if depth == 0 { 7 } else { 11 }) {
        0..=2 => format!("\"$K{}\"", random_action_id(random)),
        3 => format!("\"{}\"", random_address(random)),
        4 => format!(
            "\"${}\"",
            random.pick_one(&[
                "1",
                "2",
                "@1",
                "@2",
                "Q1",
                "W1",
                "i1",
                "B1",
                "R1",
                "undefined",
                "$K1",
                "1:0",
                "0:0:email"
            ])
        ),
        5 => "null".to_owned(),
        // What JavaScript takes for JSON, and many parsers do not.
        6 => match random.number_below(4) {
            0 => "-1e999".to_owned(),
            1 => format!("\"{BAD_BYTE_MARK}\""),
            2 => format!("{}{}", "[".repeat(140), "]".repeat(140)),
            _ => "\"\\ud83d\"".to_owned(),
        },
        7 => format!("[{}]", random_argument(random, depth - 1)),
        8 => format!("{{\"length\":1,\"0\":{}}}", random_argument(random, depth - 1)),
        _ => format!("{{\"email\":{}}}", random_argument(random, depth - 1)),
    }
}
