//! riskgate closes connections of clients that are too slow or too many. The tests in `edge_cases`
//! cover malformed requests.

use std::time::{Duration, Instant};

use crate::harness::{Connection, Setup, TEST_TIMEOUT, get};

#[test]
fn a_connection_closes_if_its_whole_header_takes_longer_than_header_timeout() {
    let gateway = Setup::new().set_text("listen.header_timeout", "1s").start();
    let key = gateway.create_active_key("acme", &[]);
    let bytes = get("/v1/usage").key(&key).to_bytes();
    for first in [true, false] {
        let mut connection = gateway.connect();
        if !first {
            connection.send_request(&get("/v1/usage").key(&key)).expect(200);
        }
        // Each byte comes soon after the last, but the whole header takes longer than the time-out.
        let begun = Instant::now();
        let cut = std::thread::scope(|scope| {
            let slow = scope.spawn(|| is_closed_during_trickle(&mut connection, &bytes));
            slow.join().unwrap()
        });
        assert!(cut, "the header came through after {:?}", begun.elapsed());
        assert!(begun.elapsed() < TEST_TIMEOUT);
    }
    // A silent client is disconnected too.
    let mut silent = gateway.connect();
    assert!(silent.ends_without_more_bytes());
}

/// Returns true if the gateway closes while these bytes arrive one by one.
fn is_closed_during_trickle(connection: &mut Connection, bytes: &[u8]) -> bool {
    for byte in bytes {
        std::thread::sleep(Duration::from_millis(100));
        if !connection.try_send(&[*byte]) {
            return true;
        }
    }
    connection.read_response().is_none_or(|answer| answer.status != 200)
}

#[test]
fn an_idle_connection_is_closed_after_keepalive_timeout() {
    let gateway = Setup::new().set_text("listen.keepalive_timeout", "1s").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut connection = gateway.connect();
    connection.send_request(&get("/v1/usage").key(&key)).expect(200);
    assert!(connection.ends_without_more_bytes());
}

#[test]
fn beyond_max_connections_a_new_connection_is_closed_until_another_ends() {
    let gateway = Setup::new().set("listen.max_connections", "4").start();
    let key = gateway.create_active_key("acme", &[]);
    let usage = get("/v1/usage").key(&key);
    crate::harness::wait_until("earlier connections are gone", || {
        gateway.sum_of_samples("riskgate_connections", &[]) == 0.0
    });
    let mut held: Vec<Connection> = (0..4).map(|_| gateway.connect()).collect();
    for connection in &mut held {
        connection.send_request(&usage).expect(200);
    }
    assert!(gateway.connect().try_send_request(&usage).is_none(), "a fifth is closed");
    held.pop();
    crate::harness::wait_until("a connection is accepted again", || {
        gateway.connect().try_send_request(&usage).is_some_and(|answer| answer.status == 200)
    });
    for connection in &mut held {
        connection.send_request(&usage).expect(200);
    }
    assert!(gateway.sum_of_samples("riskgate_connections_rejected_total", &[]) >= 1.0);
}
