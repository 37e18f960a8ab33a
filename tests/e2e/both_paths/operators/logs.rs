//! The access log and the process log: their fields, forms, levels and files.

use serde_json::Value;

use crate::harness::{
    CertificateAuthority, MockUpstream, Setup, Step, get, run_command, wait_until,
};

const ALL_FIELDS: &str = r#"["time", "request_id", "client", "method", "route", "path", "status",
    "outcome", "reason", "key_id", "account", "screening", "duration_us", "response_bytes",
    "user_agent", "protocol", "tls", "upstream", "upstream_us", "trace_id"]"#;

#[test]
fn the_access_log_has_the_chosen_fields_on_both_paths() {
    let upstream = MockUpstream::start();
    for fast_path in ["true", "false"] {
        let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
        let log = setup.path("access.log").display().to_string();
        let fields = ALL_FIELDS.replace('\n', " ");
        let setup = setup.set_text("log.path", &log).set("log.fields", &fields);
        let gateway = setup.set("listen.fast_path", fast_path).set("listen.h2c", "true").start();
        let key = gateway.create_active_key("acme", &[]);
        // An address must not be cut before its `@`.
        let long = "x ".repeat(120);
        let agent = format!("agent/1 (jane@example.com) {long}jane.secret@example.com");
        let ask = |target: &str| {
            gateway
                .send_request(&get(target).key(&key).with_header("User-Agent", &agent))
                .expect(200)
        };
        let answered = ask("/v1/public/domain/gmail.com");
        let checked = ask("/v1/check/jane%40gmail.com");
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "--http2-prior-knowledge", "-o", "/dev/null", "-A", "curl"]);
        curl.args(["-H", &format!("Authorization: Bearer {key}")]);
        curl.arg(format!("http://{}/v1/public/domain/gmail.com", gateway.http));
        run_command(&mut curl).expect(0);
        let requests = || {
            let log = gateway.read_access_log();
            log.into_iter().filter(|line| line["route"] != "usage").collect::<Vec<Value>>()
        };
        wait_until("the requests are logged", || requests().len() == 3);
        let [domain, check, http2] = <[Value; 3]>::try_from(requests()).unwrap();
        assert_eq!(domain["response_bytes"], answered.body.len());
        assert_eq!(check["response_bytes"], checked.body.len());
        let shown = domain["user_agent"].as_str().unwrap();
        assert!(shown.starts_with("agent/1 … x x ") && !shown.contains("jane"), "{shown}");
        assert_eq!(
            (&domain["protocol"], &http2["protocol"]),
            (&"HTTP/1.1".into(), &"HTTP/2".into())
        );
        assert_eq!(domain["tls"], Value::Null);
        assert_eq!((&domain["upstream"], &domain["upstream_us"]), (&Value::Null, &Value::Null));
        assert_eq!(check["upstream"], upstream.address.to_string());
        let (server_time, time) = (&check["upstream_us"], &check["duration_us"]);
        assert!(server_time.as_u64().unwrap() <= time.as_u64().unwrap(), "{check}");
        assert_eq!(http2["user_agent"], "curl");
        gateway.edit_config(|toml| {
            toml.replace("[log]", "[log]\nformat = \"logfmt\"")
                .replace(&fields, "[\"status\", \"path\"]")
        });
        let path = std::path::Path::new(&log);
        wait_until("the new form is in effect", || {
            ask("/v1/check/jane%40gmail.com");
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().last() == Some("status=200 path=\"/v1/check/…@gmail.com\"")
        });
    }
}

/// The framing of a body is no part of it.
#[test]
fn the_logged_bytes_are_those_of_the_body_whatever_its_framing() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let upstream = MockUpstream::with_script(|_| vec![Step::Send(chunked.into())]);
    let setup = Setup::new().with_upstreams(&[upstream.address]);
    let route = "[[upstream.route]]\nprefix = \"/site\"\nkey = false\ncounts = false\n";
    let setup = setup.append_toml(route).set("log.fields", r#"["path", "response_bytes"]"#);
    let gateway = setup.set("listen.h2c", "true").start();
    assert_eq!(gateway.send_request(&get("/site")).expect(200).body, b"hello");
    let mut curl = std::process::Command::new("curl");
    curl.args(["-s", "--http2-prior-knowledge", &format!("http://{}/site", gateway.http)]);
    assert_eq!(run_command(&mut curl).expect(0).stdout, "hello");
    let lines = || {
        let log = gateway.read_access_log();
        log.into_iter().filter(|line| line["path"] == "/site").collect::<Vec<Value>>()
    };
    wait_until("the requests are logged", || lines().len() == 2);
    let bytes: Vec<Value> = lines().iter().map(|line| line["response_bytes"].clone()).collect();
    assert_eq!(bytes, [5, 5]);
}

#[test]
fn tls_is_logged_and_full_files_are_renamed() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test,IP:127.0.0.1");
    let setup = setup.with_certificates(&[certificate]);
    let log = setup.path("access.log").display().to_string();
    let setup = setup
        .set_text("log.path", &log)
        .set("log.fields", r#"["tls", "status", "path", "request_id"]"#);
    let gateway = setup.set("log.max_bytes", "4096").set("log.kept_files", "2").start();
    let mut encrypted = authority.connect_with_tls(gateway.https_address(), "gate.test");
    encrypted.send_request(&get("/x").with_header("X-Request-Id", "a")).expect(404);
    let first = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the request is logged", || first().ends_with('\n'));
    assert_eq!(
        first(),
        "{\"tls\":\"TLSv1.3\",\"status\":404,\"path\":\"/x\",\"request_id\":\"a\"}\n"
    );
    let old = |number: u32| std::path::PathBuf::from(format!("{log}.{number}"));
    let mut connection = gateway.connect();
    wait_until("two files are full", || {
        for _ in 0..100 {
            connection.send_request(&get("/x")).expect(404);
        }
        old(2).exists()
    });
    for number in [1, 2] {
        assert!(std::fs::metadata(old(number)).unwrap().len() >= 4_096);
    }
    assert!(!old(3).exists());
}

#[test]
fn the_process_log_has_time_and_level_in_the_chosen_form() {
    let feed = "[[table.feed]]\nname = \"castle\"\nenabled = false\n";
    let setup = Setup::new().append_toml(feed);
    let gateway = setup.set_text("log.level", "warn,riskgate::process=info").start();
    gateway.edit_config(|toml| toml.replace("[log]", "[log]\nprocess_format = \"json\""));
    wait_until("the config is reloaded", || gateway.stderr().contains("\"config reloaded: "));
    let stderr = gateway.stderr();
    let (text, json): (Vec<&str>, Vec<&str>) =
        stderr.lines().partition(|line| !line.starts_with('{'));
    assert!(
        text.iter().all(|line| line.starts_with("20") && line.contains("Z info: ")),
        "{stderr}"
    );
    let line: Value = serde_json::from_str(json.last().unwrap()).unwrap();
    assert_eq!(line["level"], "info");
    assert_eq!(line["module"], "riskgate::process::reload::config");
    gateway.edit_config(|toml| toml.replace("riskgate::process=info", "riskgate::process=off"));
    let reloads = || gateway.sum_of_samples("riskgate_reloads_total", &["part=\"config\""]);
    wait_until("the config is reloaded again", || reloads() >= 2.0);
    assert_eq!(gateway.stderr().matches("config reloaded").count(), 1);
    for (setting, value, expected) in [
        ("log.level", "\"loud\"", "log.level: expected a level (off, error, warn"),
        ("log.fields", "[\"size\"]", "log.fields: expected a list of time, request_id"),
        ("log.format", "\"xml\"", "log.format: expected \"json\" or \"logfmt\""),
        ("log.max_bytes", "100", "log.max_bytes: expected a whole number"),
    ] {
        let refused = Setup::new().set(setting, value).cli(&["check"]).expect(78).stderr;
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn messages_of_the_crates_beneath_reach_the_process_log() {
    let setup = Setup::new().set("listen.h2c", "true").set_text("log.level", "info,h2=debug");
    let gateway = setup.start();
    let mut curl = std::process::Command::new("curl");
    curl.args(["-s", "--http2-prior-knowledge", "-o", "/dev/null"]);
    curl.arg(format!("http://{}/x?secret=rg_0123456789abcdef", gateway.http));
    run_command(&mut curl).expect(0);
    wait_until("h2 has logged", || gateway.stderr().contains(" debug: h2::"));
    assert!(!gateway.stderr().contains("0123456789abcdef"), "{}", gateway.stderr());
}
