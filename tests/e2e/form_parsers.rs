//! Real parsers of sign-up backends beside riskgate's: whenever one of them reads a throw-away
//! address out of a form, riskgate has judged it, or says that it could not read the form.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use serde_json::{Value, json};

use crate::fast_path::random_requests::RandomNumbers;
use crate::harness::{MockUpstream, Setup, free_address, request, wait_until};

const CASES: u64 = 1_500;
const GOOD: &str = "jane.doe@gmail.com";
const BAD: &str = "x@yopmail.com";

/// A form as a client sends it.
struct Form {
    content_type: String,
    body: Vec<u8>,
}

fn random_form(random: &mut RandomNumbers) -> Form {
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
        body = format!("\u{feff}{{\"email\":\"{BAD}\",\"a\":\"&email={GOOD}&\"}}");
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
        let name = random.pick_one(&["email", "e\\u006dail", "EMAIL", "name", "user", "email "]);
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
        _ => object.into_bytes(),
    };
    let content_type = random.pick_one(&["application/json", "application/json; charset=utf-8"]);
    Form { content_type: content_type.to_owned(), body }
}

fn random_multipart(random: &mut RandomNumbers) -> Form {
    let boundary = random.pick_one(&["xyz", "----WebKitFormBoundary7MA4", "a b", "x'y"]);
    let end = random.pick_one(&["\r\n", "\r\n", "\r\n", "\n"]);
    let mut body = random.pick_one(&["", "", "", "preamble\r\n"]).to_owned();
    for _ in 0..=random.number_below(3) {
        let disposition = random.pick_one(&[
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
            "FORM-DATA; NAME=\"email\"",
            "form-data; name=\"name\"",
            "form-data; name=\"x; name=email\"",
            "form-data; name=\"x\"; filename=\"; name=email\"",
            "form-data; name=\"x\"\r\n\u{b};name=\"email\":x",
            "form-data; name=\"x\"\r\n\u{c};name=\"email\":x",
            "attachment; name=\"email\"",
        ]);
        let more = random.pick_one(&[
            "",
            "",
            "",
            "Content-Type: text/plain; charset=utf-16",
            "Content-Type: text/plain",
            "Content-Transfer-Encoding: quoted-printable",
            "content-disposition: form-data; name=\"name\"",
            "X: y\r\n folded: z",
            "X-A: Content-Disposition: form-data; name=\"email\"",
            "X-Content-Disposition: form-data; name=\"email\"",
            "Content-Type: text/plain; a=\"Content-Disposition: ; name=email\"",
        ]);
        let more = if more.is_empty() { String::new() } else { format!("{more}{end}") };
        let address = random_address(random);
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
    let quoted = format!("\"{boundary}\"");
    let shown = if random.one_in(2) { boundary } else { &quoted };
    let more = random.pick_one(&["", "", "; charset=utf-8", "; boundary=other"]);
    let content_type = format!("multipart/form-data; boundary={shown}{more}");
    match random.one_in(6) {
        true => form_with_two_boundaries(random),
        false => Form { content_type, body: body.into_bytes() },
    }
}

/// A form whose boundary servers may read in two ways. Each of its two readings has another address.
fn form_with_two_boundaries(random: &mut RandomNumbers) -> Form {
    let part = |boundary: &str, name: &str, content: &str| {
        let header = format!("Content-Disposition: form-data; name=\"{name}\"");
        format!("--{boundary}\r\n{header}\r\n\r\n{content}\r\n")
    };
    let kinds = [
        ("good", "evil\"", "x=\"boundary=evil\"; boundary=good"),
        ("good", "evil", "x=\"boundary=evil;\"; boundary=good"),
        ("good", "evil", "boundary=good; x=\"boundary=evil\""),
        ("good,evil", "good", "boundary=\"good,evil\""),
        ("good;evil", "good", "boundary=\"good;evil\""),
        ("boundary=evil", "evil", "boundary=\"boundary=evil\""),
    ];
    let (outer, inner, boundaries) = kinds[random.number_below(kinds.len())];
    let hidden = format!("{}--{inner}--", part(inner, "email", BAD));
    let parts = [part(outer, "email", GOOD), part(outer, "x", &hidden)].concat();
    Form {
        content_type: format!("multipart/form-data; {boundaries}"),
        body: format!("{parts}--{outer}--\r\n").into_bytes(),
    }
}

/// Returns, for each form, what each parser of this program reads.
fn read_as_backends(program: &mut Command, forms: &[Form]) -> Vec<Value> {
    let input: String = forms
        .iter()
        .map(|form| {
            let body = base64::engine::general_purpose::STANDARD.encode(&form.body);
            format!("{}\n", json!({"type": form.content_type, "body": body}))
        })
        .collect();
    // The parsers warn of forms that they don't like.
    let program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = program.spawn().expect("a program");
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let ran = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(ran.status.success());
    let lines = String::from_utf8(ran.stdout).unwrap();
    let found: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), forms.len());
    found
}

/// Returns, for each form, what PHP's own web server reads.
fn read_as_php(script: &Path, forms: &[Form]) -> Vec<Value> {
    let address = free_address();
    let mut php = Command::new("php");
    php.arg("-S").arg(address.to_string()).arg(script).stderr(Stdio::null());
    let mut server = php.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("php");
    wait_until("PHP listens", || TcpStream::connect(address).is_ok());
    let ask = |form: &Form| {
        let post = request("POST", "/").with_header("Content-Type", &form.content_type);
        post.body_bytes(&form.body).send(address).json()
    };
    let found = forms.iter().map(ask).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    found
}

#[test]
fn no_backend_reads_a_throwaway_address_that_riskgate_passes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = root.join("target/tools/form-parsers");
    assert!(
        packages.join("werkzeug").is_dir(),
        "expected parsers of forms in {}, but found none: scripts/setup --tests",
        packages.display()
    );
    let mut random = RandomNumbers(1);
    let forms: Vec<Form> = (0..CASES).map(|_| random_form(&mut random)).collect();
    let programs = root.join("tests/e2e/form_parsers");
    let mut python = Command::new("python3");
    python.arg(programs.join("backends.py")).env("PYTHONPATH", packages);
    let by_python = read_as_backends(&mut python, &forms);
    let mut node = Command::new("node");
    node.arg(programs.join("backend.mjs")).env("EXPRESS_FOLDER", root.join("target/tools/express"));
    let by_node = read_as_backends(&mut node, &forms);
    let by_rack = read_as_backends(Command::new("ruby").arg(programs.join("backend.rb")), &forms);
    let by_php = read_as_php(&programs.join("backend.php"), &forms);

    let upstream = MockUpstream::start();
    let gateway = Setup::with_bundled_table()
        .with_upstreams(&[upstream.address])
        .append_toml(
            "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
             [upstream.route.screen]\nfields = [\"email\", \"user.email\"]\nmode = \"annotate\"\n",
        )
        .start();
    let (mut judged_count, mut bad_counts) = (0, BTreeMap::new());
    for (number, form) in forms.iter().enumerate() {
        let post = request("POST", "/signup").with_header("Content-Type", &form.content_type);
        gateway.send_request(&post.body_bytes(&form.body)).expect(200);
        let seen = upstream.received_requests().pop().unwrap();
        let action = seen.header("X-Riskgate-Action").to_owned();
        judged_count += u64::from(action != "unscreened");
        let parsers = [&by_python[number], &by_node[number], &by_rack[number], &by_php[number]];
        for (parser, values) in parsers.iter().flat_map(|found| found.as_object().unwrap()) {
            let is_bad = |value: &Value| value.as_str().unwrap().trim() == BAD;
            if values.as_array().unwrap().iter().any(is_bad) {
                *bad_counts.entry(parser.clone()).or_insert(0) += 1;
                assert!(
                    action == "would_block" || action == "unscreened",
                    "{parser} reads {values}, but riskgate says {action}:\n{}\n{}",
                    form.content_type,
                    String::from_utf8_lossy(&form.body)
                );
            }
        }
    }
    // Otherwise the test would show nothing.
    assert!(judged_count > CASES / 4, "{judged_count}");
    assert!(
        bad_counts.len() == 17 && bad_counts.values().all(|count| *count >= 5),
        "{bad_counts:?}"
    );
}
