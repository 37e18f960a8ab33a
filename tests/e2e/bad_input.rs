//! Clients that are too slow or too many: the connection is closed. What they may say wrong stands
//! in `edge`.

use std::time::{Duration, Instant};

use crate::harness::{Connection, PATIENCE, Setup, get};

#[test]
fn a_slow_header_is_cut_as_a_whole() {
    let gateway = Setup::new().text("listen.header_timeout", "1s").start();
    let key = gateway.key("acme", &[]);
    let bytes = get("/v1/usage").key(&key).bytes();
    for first in [true, false] {
        let mut connection = gateway.connect();
        if !first {
            connection.ask(&get("/v1/usage").key(&key)).expect(200);
        }
        // Each byte comes in good time; the whole header does not.
        let begun = Instant::now();
        let cut = std::thread::scope(|scope| {
            let slow = scope.spawn(|| trickle(&mut connection, &bytes));
            slow.join().unwrap()
        });
        assert!(cut, "the header came through after {:?}", begun.elapsed());
        assert!(begun.elapsed() < PATIENCE);
    }
    // Who says nothing at all is cut too.
    let mut silent = gateway.connect();
    assert!(silent.is_closed());
}

/// Whether the gateway closes while these bytes come in one by one.
fn trickle(connection: &mut Connection, bytes: &[u8]) -> bool {
    for byte in bytes {
        std::thread::sleep(Duration::from_millis(100));
        if !connection.try_send(&[*byte]) {
            return true;
        }
    }
    connection.read().is_none_or(|answer| answer.status != 200)
}

#[test]
fn an_idle_connection_is_closed_after_its_time() {
    let gateway = Setup::new().text("listen.keepalive_timeout", "1s").start();
    let key = gateway.key("acme", &[]);
    let mut connection = gateway.connect();
    connection.ask(&get("/v1/usage").key(&key)).expect(200);
    assert!(connection.is_closed());
}

#[test]
fn beyond_the_cap_connections_are_closed_and_room_is_used_again() {
    let gateway = Setup::new().set("listen.max_connections", "4").start();
    let key = gateway.key("acme", &[]);
    let usage = get("/v1/usage").key(&key);
    crate::harness::until_true("earlier connections are gone", || {
        gateway.metric("riskgate_connections", &[]) == 0.0
    });
    let mut held: Vec<Connection> = (0..4).map(|_| gateway.connect()).collect();
    for connection in &mut held {
        connection.ask(&usage).expect(200);
    }
    assert!(gateway.connect().try_ask(&usage).is_none(), "a fifth is closed");
    held.pop();
    crate::harness::until_true("the room is used again", || {
        gateway.connect().try_ask(&usage).is_some_and(|answer| answer.status == 200)
    });
    for connection in &mut held {
        connection.ask(&usage).expect(200);
    }
    assert!(gateway.metric("riskgate_connections_refused_total", &[]) >= 1.0);
}
