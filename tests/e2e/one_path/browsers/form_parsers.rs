//! Real parsers of sign-up backends beside riskgate's: whenever one of them reads a throw-away
//! address out of a form, riskgate has judged it, or says that it could not read the form.
//!
//! `RISKGATE_TEST_SEEDS=10000..20000` tests other random forms than the usual ones. What honest
//! clients send is in `client_forms`: riskgate must judge it.

mod random_forms;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use serde_json::{Value, json};

use crate::harness::{Gateway, MockUpstream, Setup, free_address, request, wait_until};
use crate::random_numbers::{RandomNumbers, seed_range};
use random_forms::{form_with_hidden_part, random_form, random_server_action};

const FORM_COUNT: u64 = 2_000;
const GOOD: &str = "jane.doe@gmail.com";
const BAD: &str = "x@yopmail.com";

/// A form as a client sends it.
struct Form {
    content_type: String,
    body: Vec<u8>,
}

/// Returns, for each form, what each parser of this program reads.
fn read_as_backends(program: &mut Command, forms: &[&Form]) -> Vec<Value> {
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
fn read_as_php(script: &Path, forms: &[&Form]) -> Vec<Value> {
    let address = free_address();
    let mut php = Command::new("php");
    php.arg("-S").arg(address.to_string()).arg(script).stderr(Stdio::null());
    let mut server = php.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("php");
    wait_until("PHP listens", || TcpStream::connect(address).is_ok());
    let ask = |form: &Form| {
        let post = request("POST", "/").with_header("Content-Type", &form.content_type);
        post.body_bytes(&form.body).send(address).json()
    };
    let found = forms.iter().map(|form| ask(form)).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    found
}

/// What each parser reads out of a form: the values of the fields, by the name of the parser.
type Readings = BTreeMap<String, Vec<String>>;

/// Returns what the parsers of all backends read out of each form.
fn read_as_all_backends(forms: &[&Form]) -> Vec<Readings> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = root.join("target/tools/form-parsers");
    assert!(
        packages.join("werkzeug").is_dir(),
        "expected parsers of forms in {}, but found none: scripts/setup --tests",
        packages.display()
    );
    let programs = root.join("tests/e2e/one_path/browsers/form_parsers");
    let mut python = Command::new("python3");
    python.arg(programs.join("backends.py")).env("PYTHONPATH", packages);
    let mut node = Command::new("node");
    node.arg(programs.join("backend.mjs")).env("EXPRESS_FOLDER", root.join("target/tools/express"));
    let mut rack = Command::new("ruby");
    rack.arg(programs.join("backend.rb"));
    let mut tomcat = Command::new("java");
    let jars = ["coyote", "util", "juli", "api", "servlet-api"];
    let jars = jars.map(|name| format!("/usr/share/java/tomcat9-{name}.jar")).join(":");
    tomcat.args(["-cp", &jars]).arg(programs.join("backend.java"));
    let mut all: Vec<Readings> = (0..forms.len()).map(|_| Readings::new()).collect();
    let mut add = |found: Vec<Value>| {
        for (readings, found) in all.iter_mut().zip(found) {
            readings.extend(serde_json::from_value::<Readings>(found).unwrap());
        }
    };
    for program in [&mut python, &mut node, &mut rack, &mut tomcat] {
        add(read_as_backends(program, forms));
    }
    add(read_as_php(&programs.join("backend.php"), forms));
    all
}

fn has_bad_address(values: &[String]) -> bool {
    values.iter().any(|value| value.trim() == BAD)
}

/// A gateway in front of an upstream server, which is told what riskgate makes of each form.
fn start_gateway() -> (Gateway, MockUpstream) {
    let upstream = MockUpstream::start();
    let gateway = Setup::with_bundled_table()
        .with_upstreams(&[upstream.address])
        .append_toml(
            "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
             [upstream.route.screen]\nfields = [\"email\", \"user.email\"]\nmode = \"annotate\"\n",
        )
        .start();
    (gateway, upstream)
}

/// Posts a form, and returns the action that riskgate tells the upstream server.
fn action_on(form: &Form, (gateway, upstream): &(Gateway, MockUpstream)) -> String {
    let post = request("POST", "/signup").with_header("Content-Type", &form.content_type);
    gateway.send_request(&post.body_bytes(&form.body)).expect(200);
    upstream.last_request().header("X-Riskgate-Action").to_owned()
}

#[test]
fn no_backend_reads_a_throwaway_address_that_riskgate_passes() {
    let seeds = seed_range(FORM_COUNT);
    let forms: Vec<Form> = seeds.map(|seed| random_form(&mut RandomNumbers(seed))).collect();
    let all_readings = read_as_all_backends(&forms.iter().collect::<Vec<_>>());
    let servers = start_gateway();
    let (mut judged_count, mut bad_counts) = (0, BTreeMap::new());
    for (form, readings) in forms.iter().zip(&all_readings) {
        let action = action_on(form, &servers);
        judged_count += usize::from(action != "unscreened");
        let is_read_alike = readings.values().all(|values| values == &[BAD.to_owned()]);
        assert!(
            !is_read_alike || action == "would_block",
            "all parsers read the throw-away address, but riskgate says {action}:\n{}\n{}",
            form.content_type,
            String::from_utf8_lossy(&form.body)
        );
        for (parser, values) in readings.iter().filter(|(_, values)| has_bad_address(values)) {
            *bad_counts.entry(parser.clone()).or_insert(0) += 1;
            assert!(
                action == "would_block" || action == "unscreened",
                "{parser} reads {values:?}, but riskgate says {action}:\n{}\n{}",
                form.content_type,
                String::from_utf8_lossy(&form.body)
            );
        }
    }
    // Otherwise the test would show nothing.
    assert!(judged_count > forms.len() / 4, "{judged_count}");
    assert!(
        bad_counts.len() == 21 && bad_counts.values().all(|count| *count >= 5),
        "{bad_counts:?}"
    );
}

#[test]
fn no_server_action_reads_a_throwaway_address_that_riskgate_passes() {
    let seeds = seed_range(FORM_COUNT);
    let forms = seeds.map(|seed| random_server_action(&mut RandomNumbers(seed)));
    let forms: Vec<Form> = forms.collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut react = Command::new("node");
    react.args(["--conditions", "react-server"]);
    react.arg(root.join("tests/e2e/one_path/browsers/form_parsers/react_backend.mjs"));
    react.env("EXPRESS_FOLDER", root.join("target/tools/express"));
    let all_readings = read_as_backends(&mut react, &forms.iter().collect::<Vec<_>>());
    let servers = start_gateway();
    let mut counts = BTreeMap::new();
    for (form, readings) in forms.iter().zip(&all_readings) {
        let values: Vec<String> = serde_json::from_value(readings["react"].clone()).unwrap();
        let action = action_on(form, &servers);
        let is_bad = has_bad_address(&values);
        assert!(
            !is_bad || action != "pass",
            "React reads {values:?}, but riskgate says pass:\n{}",
            String::from_utf8_lossy(&form.body)
        );
        *counts.entry((is_bad, action)).or_insert(0) += 1;
    }
    // Otherwise the test would show nothing.
    for (is_bad, action) in [(true, "would_block"), (true, "unscreened"), (false, "pass")] {
        assert!(counts.get(&(is_bad, action.to_owned())) >= Some(&20), "{counts:?}");
    }
}

/// A multipart form whose second part has this header, and a throw-away address. The first part is
/// the field with an honest one.
fn form_with_second_part(header: &str) -> Form {
    let email = "Content-Disposition: form-data; name=\"email\"";
    let body =
        format!("--xyz\r\n{email}\r\n\r\n{GOOD}\r\n--xyz\r\n{header}\r\n\r\n{BAD}\r\n--xyz--\r\n");
    Form { content_type: "multipart/form-data; boundary=xyz".to_owned(), body: body.into_bytes() }
}

#[test]
fn an_address_that_only_the_named_parser_reads_is_judged() {
    let multipart = |outer: &str, inner: &str, parameters: &str| {
        form_with_hidden_part(outer, inner, &format!("multipart/form-data; {parameters}"))
    };
    let part = |parser: &'static str, parameters: &str| {
        let header = format!("Content-Disposition: form-data; {parameters}");
        (parser, form_with_second_part(&header))
    };
    let hidden = format!("Content-Disposition: form-data; name=\"email\"\r\n\r\n{BAD}\r\n");
    let with_bad_byte = Form {
        content_type: "application/json".to_owned(),
        body: [b"{\"email\":\"", GOOD.as_bytes(), b"\",\"em\xffail\":\"", BAD.as_bytes(), b"\"}"]
            .concat(),
    };
    let quotes = r#"x="\\"; boundary=good; y="\"; boundary=evil; z="; w="boundary=good""#;
    let cases = [
        ("php", multipart("good", "evil\"", "x=\"boundary=evil\"; boundary=good")),
        ("php", multipart("good", "evil", "xboundary=evil; boundary=good")),
        ("php", multipart("my-boundary", "evil", "Boundary=my-boundary; x=evil")),
        ("php", multipart("good", "evil", "boundary=evil; boundary=good")),
        ("rack", multipart("good", "evil", "boundary=good; boundary=evil")),
        ("rack", multipart("good", "evil", "boundary=good; x=\"boundary=evil\"")),
        ("rack", multipart("good", "evil", "boundary=good; x=\"boundary=evil\"; y=\"boundary=\"")),
        ("rack", multipart("good,evil", "good", "boundary=\"good,evil\"")),
        ("rack", multipart("good;evil", "good", "boundary=\"good;evil\"")),
        ("werkzeug", multipart("good=evil", "good", "boundary=good=evil")),
        ("django", multipart("good", "evil", quotes)),
        ("cgi", multipart("good", "evil", quotes)),
        ("tomcat", multipart("=?utf-8?Q?evil?=x", "evil", "boundary=\"=?utf-8?Q?evil?=x\"")),
        ("django", form_around(&hidden, "", "")),
        ("django", form_around("", "", &hidden)),
        ("php", with_bad_byte),
        part("tomcat", "name=\"=?utf-8?Q?email?=x\""),
        part("node form data", "name=\"\u{feff}email\""),
        part("rack", "name=\"x; name=email\""),
        part("rack", "name=\"x\"; y=\"; name=email\""),
        part("rack", "x=\":\"; name=\"x\"\r\nContent-ID: email"),
        part("rack", "x=\":\"; name=\"x\"\r\nX-Content-Disposition: form-data; name=\"email\""),
        part("php", "name=x'; y=\"'; name=email;\""),
        part("php", "name=\"x\"; name=\"email\""),
        part("django", "name=\"x\"; name*=utf-8''email"),
        part("werkzeug", "name=\"em\\ail\""),
    ];
    assert_read_otherwise("would_block", &cases);
}

/// A multipart form of the field with an honest address, and of a part with this content. It has
/// these texts before its parts and behind them.
fn form_around(before: &str, content: &str, after: &str) -> Form {
    let part = |name: &str, content: &str| {
        let header = format!("Content-Disposition: form-data; name=\"{name}\"");
        format!("--xyz\r\n{header}\r\n\r\n{content}\r\n")
    };
    let parts = [part("email", GOOD), part("x", content)].concat();
    Form {
        content_type: "multipart/form-data; boundary=xyz".to_owned(),
        body: format!("{before}{parts}--xyz--\r\n{after}").into_bytes(),
    }
}

#[test]
fn a_form_whose_other_reading_riskgate_does_not_know_is_unscreened() {
    let in_utf16: String =
        "email=x@yopmail.com".chars().map(|c| format!("%00%{:02x}", u32::from(c))).collect();
    let form = Form {
        content_type: "application/x-www-form-urlencoded; x=\"charset=utf-16;\"".to_owned(),
        body: format!("email={GOOD}&{}", in_utf16.replace("%00%3d", "=")).into_bytes(),
    };
    let in_two_pieces = form_with_hidden_part(
        "good",
        "evil",
        "multipart/form-data; boundary=good; boundary*0=evil",
    );
    let json = format!("{{\"email\":\"{BAD}\"}}");
    let in_comment = Form {
        content_type: "application/x-www-form-urlencoded".to_owned(),
        body: format!("/*&email={GOOD}&*/{json}").into_bytes(),
    };
    let pair = format!("&email={BAD}&");
    let cases = [
        ("tomcat", form),
        ("django", in_two_pieces),
        ("json, first value, any type", form_around(&format!("{json}\r\n"), "", "")),
        ("ruby json, any type", form_around("/*\r\n", "", &format!("*/{json}"))),
        ("ruby json, any type", in_comment),
        ("urllib, any type", form_around("", &pair, "")),
        ("urllib, any type", form_around(&format!("{pair}\r\n"), "", "")),
    ];
    assert_read_otherwise("unscreened", &cases);
}

/// Checks that the named parser reads a throw-away address out of each form, that another parser
/// reads only the honest one, and that riskgate says `expected`.
#[track_caller]
fn assert_read_otherwise(expected: &str, cases: &[(&str, Form)]) {
    let forms: Vec<&Form> = cases.iter().map(|(_, form)| form).collect();
    let all_readings = read_as_all_backends(&forms);
    let servers = start_gateway();
    let mut faults = Vec::new();
    for ((parser, form), readings) in cases.iter().zip(&all_readings) {
        let action = action_on(form, &servers);
        let described = format!("{}\n{}", form.content_type, String::from_utf8_lossy(&form.body));
        if action != expected {
            faults.push(format!("riskgate says {action}, and not {expected}: {described}"));
        }
        let reads_only_good = |values: &Vec<String>| values == &[GOOD.to_owned()];
        if !has_bad_address(&readings[*parser]) || !readings.values().any(reads_only_good) {
            faults.push(format!("{parser} reads as others do: {readings:?}: {described}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
