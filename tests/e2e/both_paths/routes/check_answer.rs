//! Checks that riskgate answers itself: `check.answer` as `table` and as `fallback`.

use std::process::Command;

use serde_json::json;

use crate::harness::{
    Gateway, MockUpstream, Setup, Step, free_address, get, request, response_bytes, run_command,
    wait_until,
};

fn start_gateway(answer: &str) -> (Gateway, String) {
    let setup = Setup::with_bundled_table().with_upstreams(&[free_address()]);
    let gateway = setup.set_text("check.answer", answer).start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

#[test]
fn a_check_from_the_table_has_its_ten_members_in_order() {
    let (gateway, key) = start_gateway("table");
    let answer = gateway.get("/v1/check/a93jkde5%40yopmail.com", &key).expect(200);
    assert_eq!(
        answer.text(),
        r#"{"email":"a9****e5@yopmail.com","is_risky":true,"risk_score":100,"reason":"disposable","deliverability_score":95,"did_you_mean":null,"is_free_provider":false,"is_corporate_email":false,"is_alias_email":false,"mx_provider_label":"Yopmail"}"#
    );
    assert_eq!(answer.header("X-Riskgate-Source"), Some("table"));
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    assert!(answer.header("RateLimit").is_some());
    let head =
        gateway.send_request(&request("HEAD", "/v1/check/yopmail.com").key(&key)).expect(200);
    assert_eq!(head.text(), "");
    assert_eq!(gateway.get_month_count(&key), 2);
    let top = gateway.get("/v1/public/top-domains", &key).expect(200);
    assert!(top.text().contains("yopmail.com"), "{}", top.text());
}

#[test]
fn what_is_neither_an_address_nor_a_domain_gets_a_422() {
    let (gateway, key) = start_gateway("table");
    for (target, detail) in [
        ("nothing", "expected at least two labels, such as example.com"),
        ("a%40b%40c.com", "expected a local part"),
        ("%22a%40b.com%22%40c.com", "expected a local part without another address in it"),
        ("%40example.com", "expected a local part"),
        ("a..b%40example.com", "expected a local part"),
        ("a%40%5B192.0.2.1%5D", "expected labels"),
        ("a%40192.0.2.1", "expected a domain name, not an IP address"),
        ("%ff", "expected valid UTF-8"),
    ] {
        let refused = gateway.get(format!("/v1/check/{target}"), &key).expect(422);
        let body = refused.json();
        assert_eq!(body["error"], "validation_error", "{target}");
        assert!(body["detail"].as_str().unwrap().starts_with(detail), "{target}: {body}");
    }
    assert_eq!(gateway.get_month_count(&key), 8);
}

#[test]
fn an_override_changes_no_fact_about_an_alias_service() {
    let setup = Setup::with_bundled_table().set_text("check.answer", "table");
    let header =
        "domain,scope,reason,risk_score,is_free_provider,is_corporate_email,mx_provider_label";
    let overrides = format!("{header}\nsimplelogin.com,subtree,safe,0,,,\n");
    std::fs::write(setup.path("overrides.csv"), overrides).unwrap();
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let check = gateway.get("/v1/check/jane%40simplelogin.com", &key).expect(200).json();
    assert_eq!((&check["risk_score"], &check["is_alias_email"]), (&json!(0), &json!(true)));
    let asked = request("POST", "/v1/assess").key(&key).body(r#"{"email":"jane@simplelogin.com"}"#);
    let assessed = gateway.send_request(&asked).expect(200).json();
    assert_eq!(assessed["facts"]["is_alias"], true, "{assessed}");
}

#[test]
fn a_domain_that_other_software_reads_in_an_address_is_judged() {
    let (gateway, key) = start_gateway("table");
    for (address, score) in [
        // Python's codec and Java map the name to assurmail.net.
        ("x%40a%C3%9Furmail.net", 100),
        // PHP's FILTER_SANITIZE_EMAIL removes the letter.
        ("x%40yop%C3%A9mail.com", 100),
        ("j%C3%B6rg%40m%C3%BCller.de", 10),
        ("jane%40kanzlei.verm%C3%B6gensberatung", 10),
    ] {
        let answer = gateway.get(format!("/v1/check/{address}"), &key).expect(200).json();
        assert_eq!(answer["risk_score"], score, "{address}: {answer}");
    }
}

#[test]
fn a_reload_changes_who_answers_checks() {
    let upstream =
        MockUpstream::with_script(|_| vec![Step::Send(response_bytes(200, "", "the service"))]);
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let gateway = setup.append_toml("[check]\nanswer = \"upstream\"\n").start();
    let key = gateway.create_active_key("acme", &[]);
    let source = || {
        let answer = gateway.get("/v1/check/yopmail.com", &key).expect(200);
        answer.header("X-Riskgate-Source").unwrap().to_owned()
    };
    assert_eq!(source(), "upstream");
    gateway.edit_config(|toml| toml.replace("\"upstream\"", "\"table\""));
    wait_until("riskgate answers checks", || source() == "table");
    let asked = upstream.request_count();
    assert_eq!(source(), "table");
    assert_eq!(upstream.request_count(), asked);
}

#[test]
fn a_check_without_a_server_falls_back_to_the_table_and_counts() {
    let (gateway, key) = start_gateway("fallback");
    let mut connection = gateway.connect();
    let answer = connection.send_request(&get("/v1/check/info%40gmail.com").key(&key)).expect(200);
    assert_eq!(answer.header("X-Riskgate-Source"), Some("table"));
    assert_eq!(answer.header("X-Fail-Open"), None);
    assert_eq!(answer.json()["reason"], json!("role_account"));
    // Only the upstream server may know what this is.
    let refused = gateway.get("/v1/check/customer-4711", &key).expect(500);
    assert_eq!(refused.json()["error"], "upstream_unavailable");
    assert_eq!(refused.header("X-Fail-Open"), Some("true"));
    assert_eq!(gateway.get_month_count(&key), 1);
    let labels = ["route=\"check\"", "outcome=\"fallback\""];
    assert_eq!(gateway.sum_of_samples("riskgate_requests_total", &labels), 1.0);
}

#[test]
fn a_slow_server_is_replaced_by_the_table_at_the_deadline() {
    let upstream = MockUpstream::with_script(|_| vec![Step::StaySilent]);
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let setup = setup.set_text("upstream.deadline", "300ms");
    let gateway = setup.set_text("check.answer", "fallback").start();
    let key = gateway.create_active_key("acme", &[]);
    let answer = gateway.get("/v1/check/yopmail.com", &key).expect(200);
    assert_eq!(answer.json()["reason"], json!("disposable"));
    assert_eq!(gateway.get_month_count(&key), 1);
}

#[test]
fn a_check_is_risky_from_65_on_and_mail_to_a_reserved_name_never_arrives() {
    for (score, is_risky) in [(64, false), (65, true)] {
        let setup = Setup::with_bundled_table().set_text("check.answer", "table");
        let gateway = setup.set("table.unknown_score", &score.to_string()).start();
        let key = gateway.create_active_key("acme", &[]);
        let check = |name: &str| gateway.get(format!("/v1/check/{name}"), &key).expect(200).json();
        let unknown = check("some-name-that-no-list-has.de");
        assert_eq!(
            (&unknown["risk_score"], &unknown["is_risky"]),
            (&json!(score), &json!(is_risky))
        );
        assert_eq!(unknown["deliverability_score"], 50);
        assert_eq!(check("a%40x.invalid")["deliverability_score"], 0);
        assert_eq!(check("a%40gmail.com")["deliverability_score"], 95);
    }
}

#[test]
fn a_fallback_answers_head_and_http2_too() {
    let setup = Setup::with_bundled_table().with_upstreams(&[free_address()]);
    let gateway = setup.set("listen.h2c", "true").set_text("check.answer", "fallback").start();
    let key = gateway.create_active_key("acme", &[]);
    let head = request("HEAD", "/v1/check/yopmail.com").key(&key);
    let answer = gateway.send_request(&head).expect(200);
    assert_eq!(answer.header("X-Riskgate-Source"), Some("table"));
    assert_eq!(answer.text(), "");
    let mut curl = Command::new("curl");
    curl.args(["-s", "--http2-prior-knowledge", "--max-time", "20", "-H"]);
    curl.arg(format!("Authorization: Bearer {key}"));
    let target = format!("http://{}/v1/check/yopmail.com", gateway.http);
    assert_eq!(run_command(curl.arg(target)).expect(0).json()["reason"], "disposable");
    assert_eq!(gateway.get_month_count(&key), 2);
}
