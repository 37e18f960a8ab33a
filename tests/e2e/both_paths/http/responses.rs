//! The bytes of each response and of each refusal, with its headers.

use serde_json::{Value, json};

use crate::harness::{Connection, Setup, get, request, shared_gateway};

const UNAUTHORIZED: &str =
    r#"{"error":"unauthorized","message":"Missing or invalid API key.","detail":null}"#;

#[test]
fn a_verdict_has_exactly_six_fields_in_their_order() {
    let (gateway, key) = shared_gateway();
    let answer = gateway.get_domain("yopmail.com", key).expect(200);
    assert_eq!(
        answer.text(),
        r#"{"domain":"yopmail.com","risk_score":100,"reason":"disposable","is_free_provider":false,"is_corporate_email":false,"mx_provider_label":"Yopmail"}"#
    );
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    assert_eq!(answer.header("Content-Length"), Some(answer.body.len().to_string().as_str()));
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    assert!(answer.header("X-Table-Version").is_some_and(|version| !version.is_empty()));
    assert!(answer.has_header("X-Request-Id") && answer.has_header("Date"));
    assert!(!answer.has_header("X-Matched-Domain"), "the name itself matched");
    assert!(!answer.has_header("X-Fail-Open") && !answer.has_header("Server"));
    assert_ne!(answer.header("Connection"), Some("close"));
}

#[test]
fn a_domain_in_no_list_is_safe_with_the_unknown_score() {
    let (gateway, key) = shared_gateway();
    let answer = gateway.get_domain("nobody-has-ever-listed-this.com", key).expect(200);
    assert_eq!(
        answer.text(),
        r#"{"domain":"nobody-has-ever-listed-this.com","risk_score":10,"reason":"safe","is_free_provider":false,"is_corporate_email":false,"mx_provider_label":null}"#
    );
    assert!(!answer.has_header("X-Matched-Domain"));
}

#[test]
fn the_unknown_score_can_be_configured() {
    let gateway = Setup::new().set("table.unknown_score", "37").start();
    let key = gateway.create_active_key("acme", &[]);
    assert_eq!(gateway.get_domain("unlisted.com", &key).json()["risk_score"], 37);
    assert_eq!(gateway.get_domain("gmail.com", &key).json()["risk_score"], 0);
    assert_eq!(gateway.get_domain("first.test", &key).json()["risk_score"], 100);
}

#[test]
fn a_head_request_gets_the_same_header_and_no_body() {
    let (gateway, _) = shared_gateway();
    // This account is used by no other test, which would change its usage.
    let key = &gateway.create_active_key("head", &[]);
    for path in ["/v1/public/domain/yopmail.com", "/v1/public/top-domains", "/v1/usage"] {
        let mut connection = gateway.connect();
        let full = connection.send_request(&get(path).key(key)).expect(200);
        let head = connection.send_request(&request("HEAD", path).key(key)).expect(200);
        assert_eq!(head.header("Content-Length"), full.header("Content-Length"), "{path}");
        assert_eq!(head.header("Content-Type"), Some("application/json"));
        // The client would parse a body here as the next response.
        connection.send_request(&get(path).key(key)).expect(200);
    }
}

#[test]
fn a_head_request_that_is_refused_has_no_body_either() {
    let (gateway, key) = shared_gateway();
    let mut connection = gateway.connect();
    connection.send_request(&request("HEAD", "/v1/usage")).expect(401);
    connection.send_request(&request("HEAD", "/nowhere").key(key)).expect(404);
    connection.send_request(&request("HEAD", "/v1/public/domain/a_b").key(key)).expect(422);
    connection.send_request(&get("/v1/usage").key(key)).expect(200);
}

#[test]
fn usage_has_plan_count_limit_and_reset_time() {
    let gateway = Setup::new().set("plans.free", "100").set("plans.pro", "10000").start();
    let key = gateway.create_active_key("acme", &["--plan", "pro"]);
    for _ in 0..12 {
        gateway.get_domain("first.test", &key).expect(200);
    }
    let reset_at = start_of_next_month();
    let answer = gateway.get("/v1/usage", &key).expect(200);
    assert_eq!(
        answer.text(),
        format!(
            r#"{{"plan":"pro","month_count":12,"monthly_limit":10000,"reset_at":"{reset_at}"}}"#
        )
    );
    assert!(
        !answer.has_header("RateLimit") && !answer.has_header("RateLimit-Policy"),
        "it was not counted"
    );
}

#[test]
fn the_top_list_has_names_scores_reasons_and_its_length() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    let answer = gateway.get("/v1/public/top-domains", &key).expect(200);
    assert_eq!(
        answer.text(),
        concat!(
            r#"{"domains":["#,
            r#"{"domain":"first.test","risk_score":100,"reason":"disposable"},"#,
            r#"{"domain":"second.test","risk_score":100,"reason":"disposable"},"#,
            r#"{"domain":"third.test","risk_score":100,"reason":"disposable"}"#,
            r#"],"count":3}"#
        )
    );
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
}

#[test]
fn routes_that_riskgate_answers_itself_ignore_the_query() {
    let (gateway, key) = shared_gateway();
    let plain = gateway.get_domain("yopmail.com", key).expect(200);
    for query in ["?", "?a=b", "?x=/../../usage", "?key=%zz"] {
        let path = format!("/v1/public/domain/yopmail.com{query}");
        assert_eq!(gateway.get(path, key).expect(200).body, plain.body, "{query}");
    }
    gateway.get("/v1/public/top-domains?limit=1", key).expect(200);
    gateway.get("/v1/usage?account=other", key).expect(200);
}

#[test]
fn a_missing_malformed_unknown_revoked_or_expired_key_gets_the_same_401() {
    let gateway = Setup::new().start();
    let (revoked, id) = gateway.create_active_key_with_id("acme", &[]);
    gateway.cli(&["keys", "revoke", &id]).expect(0);
    let expired = gateway.create_key("acme", &["--expires", "1s"]);
    let good = gateway.create_active_key("acme", &[]);
    let usage = || get("/v1/usage");
    for key in [&revoked, &expired] {
        crate::harness::wait_until("the key is refused", || {
            gateway.send_request(&usage().key(key)).status == 401
        });
    }
    let twice = usage().key(&good).key(&good);
    let refused = [
        usage(),
        usage().with_header("Authorization", ""),
        usage().with_header("Authorization", &good),
        usage().with_header("Authorization", &format!("Basic {good}")),
        usage().with_header("Authorization", &format!("Bearer{good}")),
        usage().with_header("Authorization", &format!("Bearer {good} {good}")),
        usage().with_header("Authorization", &format!("Bearer {good},{good}")),
        usage().with_header("X-Api-Key", &good),
        get(format!("/v1/usage?key={good}&access_token={good}")),
        usage().key("rg_00000000000000000000000000000000"),
        usage().key("short"),
        usage().key(&"k".repeat(257)),
        usage().key(&revoked),
        usage().key(&expired),
        usage().key(&good.to_uppercase()),
        twice,
    ];
    let mut headers = Vec::new();
    for request in refused {
        let answer = gateway.send_request(&request).expect(401);
        assert_eq!(answer.text(), UNAUTHORIZED, "{request:?}");
        assert_eq!(answer.header("WWW-Authenticate"), Some(r#"Bearer realm="riskgate""#));
        assert!(!answer.has_header("X-Fail-Open") && !answer.has_header("RateLimit"));
        let same = |(name, _): &&(String, String)| !matches!(name.as_str(), "Date" | "date");
        let mut rest: Vec<_> = answer.headers.iter().filter(same).cloned().collect();
        rest.retain(|(name, _)| !name.eq_ignore_ascii_case("x-request-id"));
        headers.push(rest);
    }
    assert!(headers.windows(2).all(|two| two[0] == two[1]), "{headers:#?}");
    gateway
        .send_request(&usage().with_header("Authorization", &format!("bEARER {good}")))
        .expect(200);
}

#[test]
fn a_422_explains_what_was_expected_without_repeating_the_input() {
    let (gateway, key) = shared_gateway();
    let answer = gateway.get_domain("user%40example.com", key).expect(422);
    let body = answer.json();
    assert_eq!(body["error"], "validation_error");
    assert_eq!(body["message"], "Invalid email or domain format.");
    let detail = body["detail"].as_str().expect("a detail in words");
    assert!(detail.starts_with("expected"), "{detail}");
    assert!(!detail.contains("user"), "the input is not repeated: {detail}");
    assert_eq!(body.as_object().unwrap().len(), 3);
    assert!(answer.text().starts_with(r#"{"error":"validation_error","message":"#));
    assert!(!answer.has_header("X-Fail-Open"));
}

#[test]
fn a_403_names_the_refused_origin_in_its_detail() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &["--origin", "https://app.example.com"]);
    let answer = gateway
        .send_request(&get("/v1/usage").key(&key).with_header("Origin", "https://evil.example.net"))
        .expect(403);
    assert_eq!(
        answer.text(),
        r#"{"error":"forbidden","message":"This origin is not authorised for this API key.","detail":"Origin: https://evil.example.net"}"#
    );
    assert!(!answer.has_header("X-Fail-Open"));
    let refused_origin = gateway
        .send_request(&get("/v1/usage").key(&key).with_header("Origin", "a\"b\\c"))
        .expect(403);
    assert_eq!(refused_origin.json()["detail"], "Origin: a\"b\\c");
}

#[test]
fn a_429_for_a_spent_quota_has_the_reset_time() {
    let gateway = Setup::new().set("plans.free", "2").start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.get_domain("first.test", &key).expect(200);
    gateway.get_domain("first.test", &key).expect(200);
    let answer = gateway.get_domain("first.test", &key).expect(429);
    let reset_at = start_of_next_month();
    assert_eq!(
        answer.text(),
        format!(
            r#"{{"error":"quota_exceeded","message":"Monthly quota reached. Upgrade your plan or wait for the reset.","detail":null,"reset_at":"{reset_at}"}}"#
        )
    );
    assert_eq!(answer.header("X-Fail-Open"), Some("true"));
    let wait: i64 = answer.header("Retry-After").unwrap().parse().unwrap();
    assert!(wait >= 1);
    let expected = seconds_until(&reset_at);
    assert!((wait - expected).abs() <= 60, "{wait} is not {expected}");
}

#[test]
fn the_connection_stays_open_after_a_refusal() {
    let gateway = Setup::new().set("plans.free", "1").start();
    let key = gateway.create_active_key("acme", &["--origin", "https://app.example.com"]);
    let other = gateway.create_active_key("other", &[]);
    let mut connection = gateway.connect();
    let domain = "/v1/public/domain/first.test";
    for (request, status) in [
        (get(domain), 401),
        (get(domain).key(&key).with_header("Origin", "https://evil.example"), 403),
        (get("/nowhere"), 404),
        (request("DELETE", domain).key(&key), 405),
        (get("/v1/public/domain/a..b").key(&other), 422),
        (get(domain).key(&other), 429),
        (get(domain).key(&key), 200),
    ] {
        let answer = connection.send_request(&request).expect(status);
        assert_ne!(answer.header("Connection"), Some("close"), "{status}");
        assert!(answer.is_complete && answer.has_header("Content-Length"), "{status}");
        assert_eq!(answer.header("Content-Type"), Some("application/json"), "{status}");
        assert_eq!(answer.header("Cache-Control"), Some("no-store"), "{status}");
        assert!(answer.has_header("X-Request-Id"), "{status}");
        if status != 200 && status != 429 {
            assert_eq!(answer.json().as_object().unwrap().len(), 3, "{status}");
        }
    }
}

#[test]
fn a_valid_request_id_is_returned_and_an_invalid_one_is_replaced() {
    let (gateway, key) = shared_gateway();
    let ask = |id: &str| {
        let answer =
            gateway.send_request(&get("/v1/usage").key(key).with_header("X-Request-Id", id));
        answer.expect(200).header("X-Request-Id").unwrap().to_owned()
    };
    let longest = "i".repeat(128);
    for id in ["a", "req-1/2:3", longest.as_str()] {
        assert_eq!(ask(id), id);
    }
    let mut made = Vec::new();
    for id in ["", "two words", "\u{e9}", "i".repeat(129).as_str()] {
        let new = ask(id);
        assert_ne!(new, id);
        assert!((1..=128).contains(&new.len()) && new.bytes().all(|b| b.is_ascii_graphic()));
        made.push(new);
    }
    made.dedup();
    assert_eq!(made.len(), 4, "each new id is another one");
    // Refusals carry the request id too.
    let refused =
        gateway.send_request(&get("/nowhere").with_header("X-Request-Id", "mine")).expect(404);
    assert_eq!(refused.header("X-Request-Id"), Some("mine"));
}

#[test]
fn three_requests_in_one_packet_are_answered_in_order_each_for_its_own_key() {
    let gateway = Setup::new().set("plans.free", "10").set("plans.pro", "20").start();
    let first = gateway.create_active_key("first", &[]);
    let second = gateway.create_active_key("second", &["--plan", "pro"]);
    let mut connection = gateway.connect();
    let packet = [
        get("/v1/public/domain/first.test")
            .key(&first)
            .with_header("X-Request-Id", "one")
            .to_bytes(),
        get("/v1/public/domain/gmail.com")
            .key(&second)
            .with_header("X-Request-Id", "two")
            .to_bytes(),
        get("/v1/public/domain/b.first.test").with_header("X-Request-Id", "three").to_bytes(),
    ];
    connection.send(&packet.concat());
    let answers: Vec<_> = (0..3).map(|_| connection.read_response().expect("an answer")).collect();
    let ids: Vec<_> = answers.iter().map(|answer| answer.header("X-Request-Id")).collect();
    assert_eq!(ids, [Some("one"), Some("two"), Some("three")]);
    assert_eq!(answers[0].json()["domain"], "first.test");
    assert_eq!(answers[0].header("RateLimit-Policy"), Some("\"monthly\";q=10"));
    assert_eq!(answers[1].json()["domain"], "gmail.com");
    assert_eq!(answers[1].header("RateLimit-Policy"), Some("\"monthly\";q=20"));
    assert_eq!(answers[2].status, 401);
    assert_eq!((gateway.get_month_count(&first), gateway.get_month_count(&second)), (1, 1));
    connection.send_request(&get("/v1/usage").key(&first)).expect(200);
}

#[test]
fn a_client_that_has_finished_sending_still_gets_its_answer() {
    let (gateway, key) = shared_gateway();
    let mut connection: Connection = gateway.connect();
    connection.send(&get("/v1/public/domain/yopmail.com").key(key).to_bytes());
    connection.shutdown_write();
    assert_eq!(connection.read_response().expect("an answer").status, 200);
}

/// The first second of the next month in RFC 3339 form.
pub fn start_of_next_month() -> String {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let (year, month) = match now.month() {
        12 => (now.year() + 1, 1),
        month => (now.year(), month + 1),
    };
    format!("{year}-{month:02}-01T00:00:00Z")
}

/// The seconds from now to this time.
pub fn seconds_until(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_second() - jiff::Timestamp::now().as_second()
}

#[test]
fn an_error_body_is_valid_json_whatever_was_sent() {
    let (gateway, key) = shared_gateway();
    for path in ["/v1/public/domain/%22%5C%00", "/v1/public/domain/%ff%fe", "/v1/check/%00"] {
        let body: Value = gateway.get(path, key).expect(422).json();
        assert_eq!(body["error"], json!("validation_error"), "{path}");
    }
}
