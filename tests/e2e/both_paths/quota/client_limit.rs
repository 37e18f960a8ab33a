//! `max_per_client`: how often one client may use a route, post a form, or use a key that browsers
//! use.

use std::net::{IpAddr, Ipv4Addr};

use crate::harness::{
    Connection, Gateway, MockUpstream, Request, Response, Setup, get, request, wait_until,
};

const PAGE: &str = "https://app.example.com";

fn client(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 31, 7, last))
}

#[track_caller]
fn send_from(client: IpAddr, gateway: &Gateway, request: &Request) -> Response {
    Connection::open_from(client, gateway.http).send_request(request)
}

#[track_caller]
fn assert_too_many(refused: Response) {
    let refused = refused.expect(429);
    assert_eq!(
        refused.text(),
        r#"{"error":"too_many_requests","message":"Too many requests. Try again later.","detail":null}"#
    );
    let seconds: u64 = refused.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=3_600).contains(&seconds), "{seconds}");
    assert_eq!(refused.header("X-Fail-Open"), None);
    assert_eq!(refused.header("RateLimit"), None);
}

#[test]
fn one_visitor_can_not_burn_the_key_of_a_page() {
    for fast_path in ["true", "false"] {
        let setup = Setup::new().set_text("keys.max_per_client", "5/h");
        let gateway = setup.set("listen.fast_path", fast_path).start();
        let key = gateway.create_active_key("acme", &["--origin", PAGE]);
        let ask = |last| {
            let request = get("/v1/public/domain/a.com").key(&key).with_header("Origin", PAGE);
            send_from(client(last), &gateway, &request)
        };
        for _ in 0..5 {
            ask(1).expect(200);
        }
        for _ in 0..20 {
            let refused = ask(1);
            assert_eq!(refused.header("Access-Control-Allow-Origin"), Some(PAGE));
            assert_too_many(refused);
        }
        // Without `Origin`, as from a script.
        assert_too_many(send_from(client(1), &gateway, &get("/v1/usage").key(&key)));
        ask(2).expect(200);
        // The refused requests did not count.
        let usage = send_from(client(2), &gateway, &get("/v1/usage").key(&key)).expect(200).json();
        assert_eq!(usage["month_count"], 6);
        let refused =
            gateway.sum_of_samples("riskgate_requests_total", &["outcome=\"too_many_requests\""]);
        assert_eq!(refused, 21.0);
    }
}

#[test]
fn a_key_that_servers_use_has_no_limit_for_a_client() {
    let gateway = Setup::new().set_text("keys.max_per_client", "5/h").start();
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..20 {
        gateway.get_domain("a.com", &key).expect(200);
    }
}

#[test]
fn requests_and_posts_of_a_route_are_limited_for_each_client() {
    let upstream = MockUpstream::start();
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let route = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"GET\", \"POST\"]\nkey = false\n\
                 max_per_client = \"6/h\"\n[upstream.route.screen]\nfields = [\"email\"]\n\
                 mode = \"annotate\"\nmax_per_client = \"2/h\"\n";
    let gateway = setup.append_toml(route).start();
    let post = request("POST", "/signup")
        .with_header("Content-Type", "application/x-www-form-urlencoded")
        .body("email=jane@gmail.com");
    send_from(client(1), &gateway, &post).expect(200);
    send_from(client(1), &gateway, &post).expect(200);
    assert_too_many(send_from(client(1), &gateway, &post));
    // The refused post was charged to no rate.
    for _ in 0..4 {
        send_from(client(1), &gateway, &get("/signup")).expect(200);
    }
    assert_too_many(send_from(client(1), &gateway, &get("/signup")));
    assert_eq!(upstream.request_count(), 6);
    send_from(client(2), &gateway, &post).expect(200);
    // On one connection, the next request is read after the body of a refused one.
    let mut connection = Connection::open_from(client(2), gateway.http);
    connection.send_request(&post).expect(200);
    assert_too_many(connection.send_request(&post));
    connection.send_request(&get("/signup")).expect(200);
    // After a reload, the bucket refills at the new rate.
    gateway.edit_config(|toml| toml.replace("\"6/h\"", "\"6/s\""));
    wait_until("the new rate is in effect", || {
        send_from(client(1), &gateway, &get("/signup")).status == 200
    });
    assert_too_many(send_from(client(1), &gateway, &post));
}

/// For some servers, `/a.php/b` is `/b`.
#[test]
fn another_spelling_of_a_path_has_no_buckets_of_its_own() {
    let upstream = MockUpstream::start();
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let route = |prefix: &str, of_screen: &str| {
        format!(
            "[[upstream.route]]\nprefix = {prefix:?}\nmethods = [\"POST\"]\nkey = false\n\
             [upstream.route.screen]\nfields = [\"email\"]\n{of_screen}\n"
        )
    };
    let block = route("/a", "mode = \"block\"");
    let annotate = route("/b", "mode = \"annotate\"\nmax_per_client = \"2/h\"");
    let gateway = setup.append_toml(&format!("{block}{annotate}")).start();
    let post = |path: &str| {
        let post = request("POST", path)
            .with_header("Content-Type", "application/x-www-form-urlencoded")
            .body("email=jane@gmail.com");
        send_from(client(1), &gateway, &post)
    };
    post("/b").expect(200);
    post("/a.php/b").expect(200);
    assert_too_many(post("/a.php/b"));
    assert_too_many(post("/b"));
    post("/a").expect(200);
}

#[test]
fn a_trusted_proxy_is_no_client() {
    let setup = Setup::new().set_text("keys.max_per_client", "2/h");
    let setup = setup.set("listen.trusted_proxies", "[\"127.0.0.1\"]");
    let by_peer = setup.start();
    let key = by_peer.create_active_key("acme", &["--origin", PAGE]);
    let ask = |gateway: &Gateway, client: &str| {
        let request = get("/v1/public/domain/a.com").key(&key);
        gateway.send_request(&request.with_header("X-Forwarded-For", client))
    };
    for _ in 0..9 {
        ask(&by_peer, "192.0.2.1").expect(200);
    }
    let setup = by_peer.shut_down().set_text("listen.client_address", "x-forwarded-for");
    let by_client = setup.start();
    for _ in 0..2 {
        ask(&by_client, "192.0.2.1").expect(200);
        ask(&by_client, "2001:db8::1").expect(200);
    }
    assert_too_many(ask(&by_client, "6.6.6.6, 192.0.2.1"));
    assert_too_many(ask(&by_client, "2001:db8::ffff"));
    ask(&by_client, "192.0.2.2").expect(200);
}

#[test]
fn faulty_rates_are_reported_with_their_place() {
    let refused = Setup::new().set_text("keys.max_per_client", "20").cli(&["check"]).expect(78);
    let expected = "keys.max_per_client: expected a number of requests and a time, such as 5/s";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
}
