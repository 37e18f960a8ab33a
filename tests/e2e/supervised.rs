//! Under a service manager: what it is told, by systemd's protocol, and when.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::harness::{Gateway, PATIENCE, Setup, until_true};

/// A manager that listens.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn new(setup: &Setup) -> Manager {
        let socket = UnixDatagram::bind(setup.path("notify.sock")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket }
    }

    /// The next message that is no sign of life.
    #[track_caller]
    fn hear(&self) -> String {
        loop {
            let message = self.hear_anything();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    #[track_caller]
    fn hear_anything(&self) -> String {
        let mut bytes = [0; 4096];
        let read = self.socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..read]).trim_end().to_owned()
    }
}

fn under(manager: impl FnOnce(&Setup) -> Manager) -> (Gateway, Manager) {
    let setup = Setup::new();
    let manager = manager(&setup);
    let socket = setup.path("notify.sock").display().to_string();
    let setup = setup.variable("NOTIFY_SOCKET", &socket).variable("WATCHDOG_USEC", "600000");
    (setup.start(), manager)
}

#[test]
fn a_manager_is_told_ready_reloading_and_stopping() {
    let (mut gateway, manager) = under(Manager::new);
    let ready = format!("READY=1\nMAINPID={}", gateway.pid());
    assert_eq!(manager.hear(), ready);
    gateway.signal("HUP");
    let reloading = manager.hear();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.hear(), ready);
    gateway.signal("TERM");
    assert_eq!(manager.hear(), "STOPPING=1");
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
}

#[test]
fn the_watchdog_is_fed_while_connections_are_accepted_and_no_longer() {
    let (gateway, manager) = under(Manager::new);
    for _ in 0..5 {
        until_true("a sign of life", || manager.hear_anything() == "WATCHDOG=1");
    }
    // A process that stands still shows none.
    gateway.signal("STOP");
    manager.socket.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let mut bytes = [0; 4096];
    // What was under way may still come.
    while manager.socket.recv(&mut bytes).is_ok() {}
    gateway.signal("CONT");
    manager.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    until_true("a sign of life", || manager.hear_anything() == "WATCHDOG=1");
}

#[test]
fn a_successor_is_the_main_process_once_it_took_over() {
    let (mut gateway, manager) = under(Manager::new);
    assert!(manager.hear().starts_with("READY=1"));
    let successor = gateway.successor();
    successor.wait_until_ready();
    gateway.signal("QUIT");
    gateway.becomes(successor);
    let mut messages = vec![manager.hear(), manager.hear()];
    messages.sort();
    assert_eq!(messages, [format!("READY=1\nMAINPID={}", gateway.pid()), "STOPPING=1".to_owned()]);
}

#[test]
fn a_manager_that_does_not_read_holds_nothing_up() {
    let (mut gateway, _manager) = under(|setup| {
        let manager = Manager::new(setup);
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.send_to(b"x", setup.path("notify.sock")).is_ok() {}
        manager
    });
    let reloads = || gateway.metric("riskgate_reload_total", &["part=\"config\""]);
    let before = reloads();
    gateway.signal("HUP");
    until_true("SIGHUP reloads", || reloads() > before);
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
    assert!(gateway.stderr().contains("expected a service manager that listens"));
}

#[test]
fn a_manager_of_another_kind_is_told_nothing_and_that_is_said_once() {
    for address in ["vsock:2:1234", "vsock:", "notify.sock"] {
        let setup = Setup::new().variable("NOTIFY_SOCKET", address);
        let mut gateway = setup.variable("WATCHDOG_USEC", "100000").start();
        let reloads = || gateway.metric("riskgate_reload_total", &["part=\"config\""]);
        let before = reloads();
        gateway.signal("HUP");
        until_true("SIGHUP reloads", || reloads() > before);
        gateway.signal("TERM");
        assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
        let told = gateway.stderr();
        let lines: Vec<&str> = told.lines().filter(|line| line.contains("manager")).collect();
        assert_eq!(lines.len(), 1, "{told}");
        assert!(lines[0].contains(&format!("found {address:?}")), "{}", lines[0]);
    }
}
