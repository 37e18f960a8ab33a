//! What makes clients use HTTPS: the redirect, and `Strict-Transport-Security`.

use crate::harness::{
    CertificateAuthority, Gateway, MockUpstream, Setup, Step, free_address, get, request,
    response_bytes, wait_until,
};

const HSTS: &str = "Strict-Transport-Security";

fn start_with_tls(setup: Setup) -> (Gateway, CertificateAuthority) {
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test,IP:127.0.0.1");
    (setup.with_certificates(&[certificate]).start(), authority)
}

#[test]
fn plain_requests_are_sent_to_https() {
    let redirect = free_address();
    let (gateway, _authority) =
        start_with_tls(Setup::new().set_text("listen.redirect", &redirect.to_string()));
    let named = format!(", redirects on http://{redirect}, admin on http://");
    wait_until("the log names the listener", || gateway.stderr().contains(&named));
    let port = gateway.https_address().port();
    for (target, host) in [("/v1/public/domain/a.com?x=1", "gate.test:80"), ("/", "127.0.0.1")] {
        for method in ["GET", "POST"] {
            let asked = request(method, target).with_header("Host", host);
            let answer = asked.send(redirect).expect(308);
            let name = host.split(':').next().unwrap();
            let location = format!("https://{name}:{port}{target}");
            assert_eq!(answer.header("Location"), Some(location.as_str()));
        }
    }
    for host in ["", "a b", "user@gate.test", "gate.test/path"] {
        request("GET", "/").with_header("Host", host).send(redirect).expect(400);
    }
}

#[test]
fn answers_over_tls_name_the_time_and_others_do_not() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[upstream.address]);
    let (gateway, authority) = start_with_tls(setup.set_text("listen.hsts", "365d"));
    let key = gateway.create_active_key("acme", &[]);
    for path in ["/v1/public/domain/a.com", "/v1/check/a@b.com", "/v1/usage", "/nowhere"] {
        let mut tls = authority.connect_with_tls(gateway.https_address(), "gate.test");
        let answer = tls.send_request(&get(path).key(&key));
        assert_eq!(answer.header(HSTS), Some("max-age=31536000"), "{path}");
        assert!(!gateway.get(path, &key).has_header(HSTS), "{path}");
    }
}

#[test]
fn a_client_that_accepts_only_problem_details_gets_them() {
    let gateway = Setup::new().set("plans.free", "1").start();
    let key = gateway.create_active_key("acme", &[]);
    let accept = |path: &str, value: &str| {
        gateway.send_request(&get(path).key(&key).with_header("Accept", value))
    };
    let problem = accept("/nowhere", "application/problem+json; q=1").expect(404);
    assert_eq!(problem.header("Content-Type"), Some("application/problem+json"));
    let body = problem.json();
    assert_eq!((body["status"].as_u64(), body["error"].as_str()), (Some(404), Some("not_found")));
    assert_eq!(
        (body["title"].as_str(), body["type"].as_str()),
        (Some("Not Found"), Some("about:blank"))
    );
    gateway.get_domain("a.com", &key).expect(200);
    let spent = accept("/v1/public/domain/a.com", "application/problem+json").expect(429);
    assert!(spent.json()["reset_at"].is_string());
    assert_eq!(spent.header("X-Fail-Open"), Some("true"));
    assert_eq!(spent.rate_limit_remaining(), 0);
    for other in ["application/json", "*/*", "application/problem+json, application/json", ""] {
        let plain = accept("/nowhere", other).expect(404);
        assert_eq!(plain.header("Content-Type"), Some("application/json"), "{other}");
    }
    // The answers to successful requests stay as they are.
    let good = accept("/v1/usage", "application/problem+json").expect(200);
    assert_eq!(good.header("Content-Type"), Some("application/json"));
}

#[test]
fn the_field_of_a_server_does_not_stand_beside_riskgates_own() {
    let upstream = MockUpstream::with_script(|_| {
        vec![Step::Send(response_bytes(200, "Strict-Transport-Security: max-age=0\r\n", "{}"))]
    });
    for fast_path in ["true", "false"] {
        let setup = Setup::new().with_upstreams(&[upstream.address]);
        let setup = setup.set("listen.fast_path", fast_path).set_text("listen.hsts", "365d");
        let (gateway, authority) = start_with_tls(setup);
        let key = gateway.create_active_key("acme", &[]);
        let mut tls = authority.connect_with_tls(gateway.https_address(), "gate.test");
        let answer = tls.send_request(&get("/v1/check/a%40b.com").key(&key)).expect(200);
        assert_eq!(answer.header_values(HSTS), ["max-age=31536000"], "{fast_path}");
    }
}
