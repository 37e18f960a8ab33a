//! The end of a process waits for requests of the admin listener that are under way.

use crate::harness::{Connection, Gateway, Setup, wait_until};
use crate::one_path::operators::admin_api::AdminTokens;
use crate::one_path::quota::keys::USAGE;
use crate::redis_server::RedisServer;

/// Sends a request for a new key, except for its last byte.
fn begin_request(gateway: &Gateway, token: &str) -> (Connection, &'static str) {
    let body = r#"{"account": "late"}"#;
    let head = format!(
        "POST /api/v1/keys HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut connection = Connection::open(gateway.admin);
    let (most, last) = body.split_at(body.len() - 1);
    connection.send(format!("{head}{most}").as_bytes());
    (connection, last)
}

/// Sends the rest of the request, and returns the new key.
#[track_caller]
fn finish_request((mut connection, last): (Connection, &'static str)) -> String {
    connection.send(last.as_bytes());
    let answer = connection.read_response().expect("an answer").expect(201).json();
    answer["key"].as_str().unwrap().to_owned()
}

fn is_listening(gateway: &Gateway) -> bool {
    std::net::TcpStream::connect(gateway.http).is_ok()
}

#[test]
fn a_key_that_is_made_during_a_shutdown_is_delivered() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let (setup, tokens) = AdminTokens::add_to(setup);
        setup.cli(&["store", "init"]).expect(0);
        let mut gateway = setup.start();
        let begun = begin_request(&gateway, &tokens.write);
        gateway.send_signal("TERM");
        wait_until("the process shuts down", || !is_listening(&gateway));
        let key = finish_request(begun);
        assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
        let gateway = gateway.start_after_exit();
        wait_until("the key is known", || gateway.get(USAGE, &key).status == 200);
    }
}

#[test]
fn a_key_that_is_made_during_an_upgrade_is_delivered() {
    let (setup, tokens) = AdminTokens::add_to(Setup::new());
    let mut gateway = setup.start();
    let begun = begin_request(&gateway, &tokens.write);
    let successor = gateway.spawn_successor();
    wait_until("the successor waits", || successor.stderr().contains("ready to take over"));
    gateway.send_signal("QUIT");
    wait_until("the successor serves", || gateway.stderr().contains("a successor has taken over"));
    let key = finish_request(begun);
    gateway.replace_process(successor);
    wait_until("the successor knows the key", || gateway.get(USAGE, &key).status == 200);
}
