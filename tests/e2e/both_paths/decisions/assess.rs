//! `POST /v1/assess`.

use serde_json::{Value, json};

use super::{RULES, start_counting};
use crate::harness::{Gateway, Request, Response, Setup, request, wait_until};

fn ask(body: &str) -> Request {
    request("POST", "/v1/assess").body(body)
}

fn assess(gateway: &Gateway, key: &str, question: Value) -> Value {
    let answer = gateway.send_request(&ask(&question.to_string()).key(key)).expect(200);
    serde_json::from_str(&answer.text()).unwrap()
}

fn start() -> (Gateway, String) {
    let setup = Setup::with_bundled_table().set("plans.free", "100000");
    let gateway = start_counting(setup.append_toml(RULES));
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

#[test]
fn an_answer_has_its_members_in_order() {
    let (gateway, key) = start();
    let answer =
        gateway.send_request(&ask(r#"{"email":"Jane.Doe@gmail.com"}"#).key(&key)).expect(200);
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    let inbox = serde_json::from_str::<Value>(&answer.text()).unwrap()["inbox"].clone();
    assert_eq!(inbox.as_str().map(str::len), Some(32));
    let expected = format!(
        r#"{{"action":"pass","rule":null,"risk_score":0,"reasons":[{{"code":"safe","score":0}}],"email":"Ja****oe@gmail.com","domain":"gmail.com","inbox":{inbox},"did_you_mean":null,"facts":{{"domain":"gmail.com","risk_score":0,"reason":"safe","verdict_source":"list","is_free_provider":true,"is_corporate_email":false,"is_alias":false,"is_role":false,"inbox_accounts_30d":0,"domain_accounts_1h":null,"domain_accounts_1d":null,"client_accounts_1h":null}}}}"#
    );
    assert_eq!(answer.text(), expected);
    let role = assess(&gateway, &key, json!({"email": "info@gmial.com", "ip": "192.0.2.7"}));
    assert_eq!(role["action"], "block");
    let reasons =
        json!([{"code": "disposable", "score": 100}, {"code": "role_account", "score": 70}]);
    assert_eq!(role["reasons"], reasons);
    assert_eq!(
        (&role["did_you_mean"], &role["facts"]["client_accounts_1h"]),
        (&json!("gmail.com"), &json!(0))
    );
    for (email, code, score) in
        [("jane@gmaul.com", "typo", 60), ("jane@quelbrandt.com", "unknown", 10)]
    {
        let unlisted = assess(&gateway, &key, json!({ "email": email }));
        assert_eq!(unlisted["reasons"], json!([{"code": code, "score": score}]), "{email}");
    }
}

#[test]
fn only_a_question_that_says_so_counts() {
    let (gateway, key) = start();
    for (email, count, action) in [
        ("jane@gmail.com", false, "pass"),
        ("jane+a@gmail.com", false, "pass"),
        ("jane+a@gmail.com", true, "pass"),
        ("jane+b@gmail.com", true, "review"),
        ("jane+c@gmail.com", true, "review"),
        ("jane+d@gmail.com", true, "block"),
        ("jane+e@gmail.com", false, "block"),
    ] {
        let answer = assess(&gateway, &key, json!({"email": email, "count": count}));
        assert_eq!(answer["action"], action, "{email}");
    }
    let read = || {
        let latest = gateway.get_admin_page("/api/v1/rule-decisions").expect(200).text();
        serde_json::from_str::<Value>(&latest).unwrap()
    };
    // A request is recorded once its answer was sent.
    wait_until("all decisions of rules are recorded", || {
        read()["items"].as_array().is_some_and(|items| items.len() == 4)
    });
    let latest = read();
    let shown = |at: usize| ["route", "action", "rule"].map(|it| latest["items"][at][it].clone());
    assert_eq!(shown(0), ["assess", "block", "many accounts of one inbox"]);
    assert_eq!(shown(3), ["assess", "review", "second account of an inbox"]);
    assert!(!latest.to_string().contains("jane"), "{latest}");
    // A refused sign-up made no account.
    let answer = assess(&gateway, &key, json!({"email": "jane+z@gmail.com"}));
    assert_eq!(answer["facts"]["inbox_accounts_30d"], 3);
}

#[test]
fn another_reading_of_a_domain_takes_no_sign_up_from_the_address() {
    let (gateway, key) = start();
    // Software with the IDNA of 2003 reads other names in these.
    for domain in ["großmüller-shop.de", "βόλος-κατάστημα.gr", "weiß-laden-neu.de"]
    {
        for earlier in 0..3 {
            let question = json!({"email": format!("user{earlier}@{domain}"), "count": true});
            let answer = assess(&gateway, &key, question);
            assert_eq!(answer["inbox"].as_str().map(str::len), Some(32), "{domain}");
            assert_eq!(answer["facts"]["domain"], answer["domain"]);
            assert_eq!(answer["facts"]["domain_accounts_1h"], earlier, "{answer}");
        }
    }
}

#[test]
fn an_address_in_which_some_software_reads_another_counts_for_both_and_has_no_id() {
    let (gateway, key) = start();
    for (earlier, email) in (0..).zip(["m/allory+0@gmail.com", "ma/llory+1@gmail.com"]) {
        let answer = assess(&gateway, &key, json!({"email": email, "count": true}));
        assert_eq!(answer["inbox"], Value::Null, "{email}");
        assert_eq!(answer["facts"]["inbox_accounts_30d"], earlier, "{email}");
    }
    let answer = assess(&gateway, &key, json!({"email": "mallory@gmail.com"}));
    assert_eq!(answer["facts"]["inbox_accounts_30d"], 2);
}

#[test]
fn a_page_of_a_browser_learns_nothing_of_other_sign_ups() {
    let (gateway, key) = start();
    let page_key = gateway.create_active_key("web", &["--origin", "https://app.example.com"]);
    assess(&gateway, &key, json!({"email": "jane@gmail.com", "count": true}));
    let question = json!({"email": "jane+a@gmail.com", "count": true}).to_string();
    let from_page =
        |key: &str| ask(&question).key(key).with_header("Origin", "https://app.example.com");
    for asked in [from_page(&key), from_page(&page_key), ask(&question).key(&page_key)] {
        let answer = gateway.send_request(&asked).expect(200);
        let body: Value = serde_json::from_str(&answer.text()).unwrap();
        assert_eq!((&body["action"], &body["inbox"]), (&json!("pass"), &Value::Null));
        assert_eq!(body["facts"]["inbox_accounts_30d"], Value::Null);
    }
    let answer = assess(&gateway, &key, json!({"email": "jane+b@gmail.com"}));
    assert_eq!(answer["facts"]["inbox_accounts_30d"], 1);
}

#[test]
fn malformed_questions_are_refused_and_only_those_about_no_address_are_counted() {
    let (gateway, key) = start();
    let refuse =
        |body: &str| -> Response { gateway.send_request(&ask(body).key(&key)).expect(422) };
    for body in [
        "",
        "jane@gmail.com",
        r#""jane@gmail.com""#,
        "[]",
        r#"["jane@gmail.com",null,false]"#,
        r#"{"jane@gmail.com":1}"#,
        "{}",
        r#"{"email":1}"#,
        r#"{"email":null}"#,
        r#"{"email":"a@b.com","more":1}"#,
        r#"{"email":"a@b.com","email":"a@c.com"}"#,
        r#"{"email":"a@b.com","ip":"1.2.3"}"#,
        r#"{"email":"a@b.com","count":"true"}"#,
        r#"{"email":"a@b.com"} {}"#,
        &format!(r#"{{"email":"{}"}}"#, "a".repeat(4_100)),
    ] {
        let text = refuse(body).text();
        assert!(text.contains("The body must be a question about a sign-up."), "{text}");
        assert!(text.contains("expected "), "{text}");
        assert!(!text.contains("jane"), "{text}");
    }
    assert_eq!(gateway.get_month_count(&key), 0);
    for email in ["nobody", "a b@c.com", "@c.com", "a@b", "\"jane@gmail.com\"@example.com"] {
        let text = refuse(&json!({ "email": email }).to_string()).text();
        assert!(text.contains("Invalid email or domain format."), "{text}");
    }
    assert_eq!(gateway.get_month_count(&key), 5);
}

#[test]
fn an_address_is_read_as_in_a_form_and_an_ip_as_in_the_headers_of_a_proxy() {
    let (gateway, key) = start();
    let inbox = |email: &str| assess(&gateway, &key, json!({ "email": email }))["inbox"].clone();
    assert_eq!(inbox(" Jane@gmail.com \u{200b}"), inbox("jane@gmail.com"));
    // Some software writes `ss` for `ß`, and then the address is on a listed domain.
    gateway.cli(&["table", "deny", "fussnote.com"]).expect(0);
    wait_until("the override serves", || {
        assess(&gateway, &key, json!({"email": "a@fussnote.com"}))["action"] == "block"
    });
    assert_eq!(assess(&gateway, &key, json!({"email": "a@fußnote.com"}))["action"], "block");
    // Some software removes the letters beyond ASCII.
    for (email, action) in [
        ("a@yopéämail.com", "block"),
        ("a@müller.de", "pass"),
        ("info@kanzlei.vermögensberatung", "pass"),
        ("taro@yahoo.co。jp", "pass"),
        ("a@mail.acme.ελ", "pass"),
    ] {
        assert_eq!(assess(&gateway, &key, json!({ "email": email }))["action"], action, "{email}");
    }
    for email in ["a@gm\u{430}il.com", "a@gmáil.com"] {
        let answer = assess(&gateway, &key, json!({ "email": email }));
        assert_eq!(
            (&answer["action"], &answer["did_you_mean"]),
            (&json!("block"), &json!("gmail.com"))
        );
    }

    for (number, ip) in ["192.0.2.7", "192.0.2.7:4711", "::ffff:192.0.2.7"].iter().enumerate() {
        let email = format!("person{number}@gmail.com");
        let answer = assess(&gateway, &key, json!({"email": email, "ip": ip, "count": true}));
        assert_eq!(answer["facts"]["client_accounts_1h"], number, "{ip}");
    }
    for ip in ["", " "] {
        let answer = assess(&gateway, &key, json!({"email": "a@gmail.com", "ip": ip}));
        assert_eq!(answer["facts"]["client_accounts_1h"], Value::Null, "{ip:?}");
    }
}

#[test]
fn one_backend_may_ask_about_many_sign_ups_at_once() {
    let (gateway, key) = start();
    let body = r#"{"email":"jane@gmail.com"}"#;
    let header = format!(
        "POST /v1/assess HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut connections: Vec<_> = (0..40).map(|_| gateway.connect()).collect();
    // All of them wait for their body at the same time.
    for connection in &mut connections {
        connection.send(header.as_bytes());
        connection.send(&body.as_bytes()[..1]);
    }
    for connection in &mut connections {
        connection.send(&body.as_bytes()[1..]);
        assert_eq!(connection.read_response_to("POST").unwrap().status, 200);
    }
}

#[test]
fn the_route_needs_a_key_and_a_post() {
    let (gateway, key) = start();
    gateway.send_request(&ask(r#"{"email":"a@b.com"}"#)).expect(401);
    let refused = gateway.get("/v1/assess", &key).expect(405);
    assert_eq!(refused.header("Allow"), Some("POST, OPTIONS"));
    gateway.send_request(&request("OPTIONS", "/v1/assess")).expect(204);
}
