//! Many requests at once, and requests that conflict: each is served as it would be alone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::{
    Connection, MockUpstream, SetOnDrop, Setup, Step, get, request, response_bytes, wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";

#[test]
fn a_pipelined_burst_is_admitted_in_order_up_to_the_limit() {
    let gateway = Setup::new().set("plans.free", "20").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    connection.send(&get(DOMAIN).key(&key).to_bytes().repeat(60));
    for call in 1..=60u64 {
        let answer = connection.read_response().expect("an answer");
        match call {
            1..=20 => assert_eq!(answer.expect(200).rate_limit_remaining(), 20 - call),
            _ => assert_eq!(answer.status, 429, "{call}"),
        }
    }
    assert_eq!(gateway.get_month_count(&key), 20);
}

#[test]
fn a_gateway_stopped_under_load_counts_exactly_the_answered_calls() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[upstream.address]).set("plans.free", "1000000");
    let mut gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..6 {
            let (gateway, key, answered) = (&gateway, &key, &answered);
            let path = if client % 2 == 0 { DOMAIN } else { "/v1/check/a@b.com" };
            scope.spawn(move || {
                let mut connection = gateway.connect();
                while let Some(answer) = connection.try_send_request(&get(path).key(key)) {
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    assert!(answer.is_complete, "an answer that has begun is finished");
                    answered.fetch_add(1, Ordering::SeqCst);
                    if answer.header("Connection") == Some("close") {
                        return;
                    }
                }
            });
        }
        wait_until("calls are under way", || answered.load(Ordering::SeqCst) > 500);
        gateway.send_signal("TERM");
    });
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
    let counted = gateway.start_after_exit().get_month_count(&key);
    assert_eq!(counted, answered.into_inner());
}

#[test]
fn creating_and_revoking_keys_under_load_causes_no_wrong_response() {
    let gateway = Setup::new().set("plans.free", "\"unlimited\"").start();
    let steady = gateway.create_active_key("steady", &[]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (gateway, steady, done) = (&gateway, &steady, &done);
            scope.spawn(move || {
                let mut connection = gateway.connect();
                while !done.load(Ordering::Relaxed) {
                    connection.send_request(&get(DOMAIN).key(steady)).expect(200);
                    connection
                        .send_request(&get(DOMAIN).key("rg_not_a_key_of_anybody"))
                        .expect(401);
                }
            });
        }
        let ended = SetOnDrop(&done);
        for round in 0..3 {
            let (key, id) = gateway.create_active_key_with_id(&format!("round-{round}"), &[]);
            gateway.get_domain("first.test", &key).expect(200);
            gateway.cli(&["keys", "revoke", &id]).expect(0);
            wait_until("the key is refused", || gateway.get("/v1/usage", &key).status == 401);
        }
        drop(ended);
    });
}

#[test]
fn a_client_that_disconnects_gets_no_refund() {
    let slow = MockUpstream::with_script(|_| {
        vec![Step::Trickle(response_bytes(200, "", "{}"), Duration::from_millis(10))]
    });
    let gateway = Setup::new().with_upstreams(&[slow.address]).start();
    let key = gateway.create_active_key("acme", &[]);
    for left in 1..=3 {
        let mut connection = gateway.connect();
        connection.send(&get("/v1/check/a@b.com").key(&key).to_bytes());
        wait_until("the request reached the upstream", || slow.request_count() == left);
        drop(connection);
    }
    wait_until("nothing is in flight", || {
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]) == 0.0
    });
    assert_eq!(gateway.get_month_count(&key), 3);
    assert_eq!(gateway.sum_of_samples("riskgate_quota_refunds_total", &[]), 0.0);
}

#[test]
fn each_of_many_clients_gets_only_its_own_responses() {
    let echo = MockUpstream::with_script(|seen| {
        let (key, target) = (seen.header("X-Riskgate-Account"), seen.request_line());
        vec![Step::Send(response_bytes(200, "", &format!("{key} {target}")))]
    });
    let gateway =
        Setup::new().with_upstreams(&[echo.address]).set("plans.free", "\"unlimited\"").start();
    let keys: Vec<String> =
        (0..6).map(|at| gateway.create_key(&format!("account-{at}"), &[])).collect();
    wait_until("the last key is accepted", || gateway.get("/v1/usage", &keys[5]).status == 200);
    std::thread::scope(|scope| {
        for (at, key) in keys.iter().enumerate() {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut connection = gateway.connect();
                for call in 0..100 {
                    let checked =
                        connection.send_request(&get(format!("/v1/check/c{at}x{call}")).key(key));
                    let expected = format!("account-{at} GET /v1/check/c{at}x{call} HTTP/1.1");
                    assert_eq!(checked.expect(200).text(), expected);
                    let domain = format!("c{at}x{call}.first.test");
                    let path = format!("/v1/public/domain/{domain}");
                    let verdict = connection.send_request(&get(path).key(key)).expect(200).json();
                    assert_eq!(verdict["domain"], domain.as_str());
                }
                assert_eq!(gateway.get_month_count(key), 200);
            });
        }
    });
}

#[test]
fn corrupted_requests_get_known_statuses_and_cause_no_panic() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    // The generator of Numerical Recipes: every run uses the same bytes.
    let mut state = 42u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let good = get(DOMAIN).key(&key).to_bytes();
    for round in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..=round % 7 {
            let at = usize::from(random()) * bytes.len() / 256;
            bytes[at] = random();
        }
        if round % 3 == 0 {
            bytes.truncate(usize::from(random()) * bytes.len() / 256);
        }
        let mut connection = gateway.connect();
        connection.try_send(&bytes);
        connection.shutdown_write();
        while let Some(answer) = connection.read_response() {
            assert!(answer.is_complete, "{:?}", String::from_utf8_lossy(&bytes));
            let known =
                matches!(answer.status, 200 | 400 | 401 | 404 | 405 | 414 | 422 | 429 | 431);
            assert!(known, "{} for {:?}", answer.status, String::from_utf8_lossy(&bytes));
            assert!(answer.has_header("X-Request-Id"), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
    assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
    gateway.get("/v1/usage", &key).expect(200);
}

#[test]
fn a_response_of_any_valid_framing_is_forwarded() {
    let played = MockUpstream::with_script(|seen| {
        let bytes: &[u8] = match seen.request_line().split(' ').nth(1).unwrap() {
            "/v1/check/early" => {
                b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
            }
            "/v1/check/empty" => b"HTTP/1.1 204 No Content\r\n\r\n",
            "/v1/check/same" => b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n",
            "/v1/check/zero" => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            _ => b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
        };
        let send = Step::Send(bytes.to_vec());
        if seen.request_line().contains("/end") { vec![send, Step::Close] } else { vec![send] }
    });
    let gateway = Setup::new().with_upstreams(&[played.address]).start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    for (name, status, body) in [
        ("early", 200, "{}"),
        ("empty", 204, ""),
        ("same", 304, ""),
        ("zero", 200, ""),
        ("end", 200, "until the end"),
        ("zero", 200, ""),
    ] {
        let path = format!("/v1/check/{name}");
        let answer = match connection.try_send_request(&get(&path).key(&key)) {
            Some(answer) => answer,
            None => panic!("{name}: the connection was closed"),
        };
        assert_eq!((answer.status, answer.text().as_str()), (status, body), "{name}");
        assert!(answer.is_complete, "{name} {:?}", answer.headers);
        assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"), "{name}");
        if answer.header("Connection") == Some("close") {
            connection = gateway.connect();
        }
    }
}

#[test]
fn a_client_address_gets_at_most_its_limit_of_concurrent_exchanges() {
    let upstream = MockUpstream::with_script(|_| vec![Step::StaySilent]);
    let setup = Setup::new().with_upstreams(&[upstream.address]);
    let setup = setup.set("listen.trusted_proxies", "[\"127.0.0.9\"]");
    let gateway = setup.set("upstream.max_in_flight_per_address", "2").start();
    let key = gateway.create_active_key("acme", &[]);
    let check = get("/v1/check/a@b.com").key(&key);
    let ask = |client: &str| {
        let mut connection = Connection::open_from(client.parse().unwrap(), gateway.http);
        connection.send(&check.to_bytes());
        connection
    };
    let clients = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.9", "127.0.0.9", "127.0.0.9"];
    let served: Vec<Connection> = clients.map(ask).into();
    wait_until("all of them are with the server", || upstream.request_count() == served.len());
    let refused = ask("127.0.0.1").read_response().expect("an answer").expect(500);
    assert_eq!(refused.json()["error"], "upstream_unavailable");
    assert_eq!(gateway.get_month_count(&key), served.len() as u64, "refunded");
    assert_eq!(upstream.request_count(), served.len());
    drop(served);
    let again = || {
        ask("127.0.0.1").read_response().is_some_and(|a| a.json()["error"] == "upstream_timeout")
    };
    wait_until("a connection is accepted again", again);
}

#[test]
fn a_request_is_retried_only_if_its_whole_body_was_buffered() {
    // The mock resets a kept connection at its next request.
    let upstream =
        MockUpstream::with_script(|seen| match seen.request_line().starts_with("GET ") {
            true => vec![Step::Send(response_bytes(200, "", ""))],
            false => vec![Step::Reset],
        });
    let route = "[[upstream.route]]\nprefix = \"/v1/form\"\nmethods = [\"GET\", \"PUT\"]\n";
    let gateway = Setup::new().with_upstreams(&[upstream.address]).append_toml(route).start();
    let key = gateway.create_active_key("acme", &[]);
    for (length, tries) in [(65_536, 2), (102_400, 1)] {
        // The path that will serve the PUT keeps the connection: with Keep-Alive, it is Pingora's.
        let get = get("/v1/form").key(&key);
        let is_long = length > 65_536;
        let get = if is_long { get.with_header("Keep-Alive", "timeout=5") } else { get };
        let count_requests = || gateway.sum_of_samples("riskgate_requests_total", &[]);
        let before = count_requests();
        gateway.send_request(&get).expect(200);
        // A request is counted after its connection to the server was kept.
        wait_until("the connection is kept", || count_requests() > before);
        let (seen, connections) = (upstream.request_count(), upstream.connection_count());
        let put = request("PUT", "/v1/form").key(&key).body(&"b".repeat(length));
        let failed = gateway.send_request(&put).expect(500);
        assert_eq!(failed.json()["error"], "upstream_unavailable", "{length}");
        assert_eq!(upstream.connection_count() - connections, tries - 1, "{length}");
        wait_until("the server has read each try", || upstream.request_count() == seen + tries);
        let sent: Vec<usize> =
            upstream.received_requests()[seen..].iter().map(|put| put.body.len()).collect();
        assert_eq!(sent, vec![length; tries]);
    }
}

#[test]
fn a_short_request_body_is_buffered_and_a_long_one_is_streamed() {
    // Each request has its own connection, so the connections can be counted.
    let closing_response = || response_bytes(200, "Connection: close\r\n", "");
    let upstream =
        MockUpstream::with_script(move |_| vec![Step::Send(closing_response()), Step::Close]);
    let route = "[[upstream.route]]\nprefix = \"/v1/signup\"\nmethods = [\"POST\"]\n";
    let setup = Setup::new().with_upstreams(&[upstream.address]).append_toml(route);
    // The time-out for a header does not apply to a body.
    let setup = setup.set_text("listen.header_timeout", "2s");
    let gateway = setup.set_text("listen.body_timeout", "4s").start();
    let key = gateway.create_active_key("acme", &[]);
    let half = |length: usize| {
        let bytes = request("POST", "/v1/signup").key(&key).body(&"b".repeat(length)).to_bytes();
        let (first, rest) = bytes.split_at(bytes.len() - length / 2);
        let mut connection = gateway.connect();
        connection.send(first);
        (connection, rest.to_vec())
    };
    for (length, is_streamed) in [(2, false), (65_536, false), (65_537, true)] {
        let before = upstream.connection_count();
        let (mut connection, rest) = half(length);
        if is_streamed {
            wait_until("a server was asked", || upstream.connection_count() > before);
        } else {
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(upstream.connection_count(), before, "{length}");
        }
        connection.send(&rest);
        assert_eq!(connection.read_response().expect("an answer").status, 200, "{length}");
        assert_eq!(upstream.last_request().body.len(), length);
    }
    let seen = upstream.request_count();
    let (mut connection, _) = half(4_096);
    let late = connection.read_response().expect("an answer in time").expect(408);
    assert_eq!(late.json()["error"], "request_timeout");
    assert!(connection.ends_without_more_bytes());
    assert_eq!(upstream.request_count(), seen, "half of a body reached a server");
    assert_eq!(gateway.get_month_count(&key), 3, "a body that never came does not count");
}
