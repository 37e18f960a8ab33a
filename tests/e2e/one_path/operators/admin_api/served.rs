//! What the admin API says of servers, routes, certificates, refused forms, lists and top domains.

use serde_json::{Value, json};

use super::{AdminTokens, call_api};
use crate::harness::{
    CertificateAuthority, Gateway, MockUpstream, Setup, free_address, request, wait_until,
};

#[track_caller]
fn read(gateway: &Gateway, path: &str, tokens: &AdminTokens) -> Value {
    call_api(gateway, "GET", path, &tokens.read, &Value::Null).expect(200).json()
}

fn send_form(gateway: &Gateway, path: &str, body: &str) -> u16 {
    let form = request("POST", path)
        .with_header("Content-Type", "application/x-www-form-urlencoded")
        .body(body);
    gateway.send_request(&form).status
}

#[test]
fn each_server_is_listed_with_its_state_and_its_last_failure() {
    let (upstream, dead) = (MockUpstream::start(), free_address());
    let setup = Setup::new().with_upstreams(&[upstream.address, dead]);
    let (setup, tokens) = AdminTokens::add_to(setup.set_text("upstream.health_interval", "50ms"));
    let gateway = setup.start();
    let server_at = |address: std::net::SocketAddr| {
        let servers = read(&gateway, "/servers", &tokens);
        let items = servers["items"].as_array().unwrap().clone();
        items.into_iter().find(|it| it["address"] == address.to_string()).unwrap()
    };
    wait_until("the dead server is down", || server_at(dead)["state"] == "down");
    let down = server_at(dead);
    assert!(down["last_failure"].as_str().unwrap().contains("refused"), "{down}");
    assert!(down["last_failed_at"].as_str().unwrap().ends_with('Z'), "{down}");
    let expected = json!({
        "address": upstream.address.to_string(), "state": "up", "last_failed_at": null,
        "last_failure": null,
    });
    assert_eq!(server_at(upstream.address), expected);
    // A server that is back keeps its last failure.
    let listener = std::net::TcpListener::bind(dead).unwrap();
    wait_until("the server is up", || server_at(dead)["state"] == "up");
    assert_eq!(server_at(dead)["last_failure"], down["last_failure"]);
    drop(listener);
}

#[test]
fn routes_and_authz_are_listed_with_their_settings() {
    let toml = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
                [upstream.route.screen]\nfields = [\"email\"]\nmode = \"block\"\n\
                max_per_client = \"20/h\"\nunscreened = \"block\"\n\
                [[upstream.route]]\nprefix = \"/\"\nkey = false\ndeadline = \"0\"\n\
                [authz]\npath = \"/ask\"\ncheck = [\"screen\"]\nemail = \"header:X-Email\"\n";
    let (setup, tokens) = AdminTokens::add_to(Setup::new().append_toml(toml));
    let gateway = setup.start();
    let routes = read(&gateway, "/routes", &tokens);
    let (signup, site) = (&routes["items"][0], &routes["items"][1]);
    assert_eq!((&signup["prefix"], &signup["methods"]), (&json!("/signup"), &json!(["POST"])));
    let screen = &signup["screen"];
    let shown =
        ["mode", "fields", "block_score", "unscreened", "max_per_client"].map(|it| &screen[it]);
    let expected = [json!("block"), json!(["email"]), json!(80), json!("block"), json!("20/1h")];
    assert_eq!(shown, expected.each_ref());
    let shown = ["prefix", "methods", "deadline_seconds", "screen", "key"].map(|it| &site[it]);
    assert_eq!(shown, [&json!("/"), &Value::Null, &Value::Null, &Value::Null, &json!(false)]);
    let authz = &routes["authz"];
    assert_eq!((&authz["path"], &authz["check"]), (&json!("/ask"), &json!(["screen"])));
    assert_eq!(authz["screen"]["fields"], json!(["header:x-email"]));
}

#[test]
fn certificates_are_listed_with_their_names_and_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::new(folder.path());
    let certificate = authority.issue_certificate("site", "DNS:Site.test,DNS:*.site.test");
    let (chain, key) = (certificate.0.display().to_string(), certificate.1.display().to_string());
    let (setup, tokens) = AdminTokens::add_to(Setup::new().with_certificates(&[certificate]));
    let gateway = setup.start();
    let listed = read(&gateway, "/certificates", &tokens);
    let item = &listed["items"][0];
    assert_eq!((&item["certificate"], &item["key"]), (&json!(chain), &json!(key)));
    assert_eq!(item["names"], json!(["site.test", "*.site.test"]));
    assert!(item["expires_at"].as_str().unwrap().ends_with('Z'), "{item}");
}

#[test]
fn the_last_refused_forms_have_time_route_reason_and_domain_but_no_local_part() {
    let upstream = MockUpstream::start();
    let route = |prefix: &str, mode: &str| {
        format!(
            "[[upstream.route]]\nprefix = \"{prefix}\"\nmethods = [\"POST\"]\nkey = false\n\
             [upstream.route.screen]\nfields = [\"email\"]\nmode = \"{mode}\"\n"
        )
    };
    let routes = route("/signup", "block") + &route("/contact", "shadow");
    let setup = Setup::new().with_upstreams(&[upstream.address]).append_toml(&routes);
    let (setup, tokens) = AdminTokens::add_to(setup);
    let gateway = setup.start();
    assert_eq!(read(&gateway, "/refused-forms", &tokens)["items"], json!([]));
    assert_eq!(send_form(&gateway, "/contact", "email=jane%40first.test"), 200);
    assert_eq!(send_form(&gateway, "/signup", "email=jane%40example.org"), 200);
    for _ in 0..99 {
        assert_eq!(send_form(&gateway, "/signup", "email=jane%40first.test"), 422);
    }
    // riskgate records a form once it has sent the answer, so the next form may overtake it.
    let wait_for_record = |is_recorded: fn(&[Value]) -> bool| {
        wait_until("the last form is recorded", || {
            let listed = read(&gateway, "/refused-forms", &tokens);
            is_recorded(listed["items"].as_array().unwrap())
        });
    };
    wait_for_record(|items| items.len() >= 99);
    assert_eq!(send_form(&gateway, "/signup", "email=jane"), 422);
    wait_for_record(|items| items[0]["domain"].is_null());
    assert_eq!(send_form(&gateway, "/signup", "email=jane%40second.test"), 422);
    wait_for_record(|items| items[0]["domain"] == "second.test");
    let listed = read(&gateway, "/refused-forms", &tokens);
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items.len(), 100, "the oldest form is gone");
    let shown = ["route", "reason", "score", "domain"].map(|it| &items[0][it]);
    assert_eq!(
        shown,
        [&json!("/signup"), &json!("disposable"), &json!(100), &json!("second.test")]
    );
    assert!(items[0]["at"].as_str().unwrap() >= listed["since"].as_str().unwrap(), "{listed}");
    assert_eq!((&items[1]["domain"], &items[99]["domain"]), (&Value::Null, &json!("first.test")));
    assert!(!listed.to_string().contains("jane"), "{listed}");
}

#[test]
fn a_list_made_from_votes_has_the_day_of_its_newest_source() {
    let (setup, tokens) = AdminTokens::add_to(Setup::with_bundled_table());
    let gateway = setup.start();
    let lists = read(&gateway, "/lists", &tokens);
    let lists = lists["items"].as_array().unwrap();
    // Each row of the list of addresses has a date of its own.
    let is_undated = |list: &&Value| {
        list["updated_at"].is_null() && list["rows"] != 0 && list["kind"] != "mx_address"
    };
    let undated: Vec<&Value> = lists.iter().filter(is_undated).map(|list| &list["name"]).collect();
    assert_eq!(undated, Vec::<&Value>::new());
}

#[test]
fn top_domains_have_a_count_if_an_account_has_asked_about_them() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    let counts = || {
        let listed = read(&gateway, "/top-domains", &tokens);
        let items = listed["items"].as_array().unwrap().clone();
        let count =
            |domain| items.iter().find(|it| it["domain"] == domain).unwrap()["count"].clone();
        [count("first.test"), count("second.test")]
    };
    assert_eq!(counts(), [Value::Null, Value::Null]);
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..3 {
        gateway.get_domain("second.test", &key).expect(200);
    }
    wait_until("the account is counted once", || counts() == [Value::Null, json!(1.0)]);
}

#[test]
fn the_history_takes_minutes_or_hours() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let gateway = setup.start();
    let interval = |query: &str| read(&gateway, query, &tokens)["interval_seconds"].clone();
    assert_eq!(interval("/history?minutes=15"), 10);
    assert_eq!(interval("/history?minutes=1440"), interval("/history?hours=24"));
    // Minutes are shown in place of hours.
    assert_eq!(interval("/history?hours=24&minutes=15"), 10);
    for query in ["minutes=0", "minutes=1441", "hours=25"] {
        let path = format!("/history?{query}");
        call_api(&gateway, "GET", &path, &tokens.read, &Value::Null).expect(422);
    }
}
