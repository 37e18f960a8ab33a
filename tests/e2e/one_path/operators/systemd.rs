//! Under a service manager: the messages that riskgate sends in systemd's protocol, and when.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::harness::{Gateway, Setup, TEST_TIMEOUT, wait_until};

/// A service manager's notify socket.
struct NotifySocket {
    socket: UnixDatagram,
}

impl NotifySocket {
    fn new(setup: &Setup) -> NotifySocket {
        let socket = UnixDatagram::bind(setup.path("notify.sock")).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        NotifySocket { socket }
    }

    /// The next message other than WATCHDOG=1.
    #[track_caller]
    fn next_message_but_watchdog(&self) -> String {
        loop {
            let message = self.next_message();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    #[track_caller]
    fn next_message(&self) -> String {
        let mut bytes = [0; 4096];
        let read = self.socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..read]).trim_end().to_owned()
    }
}

fn start_with_notify_socket(
    manager: impl FnOnce(&Setup) -> NotifySocket,
) -> (Gateway, NotifySocket) {
    start_setup_with_notify_socket(Setup::new(), manager)
}

fn start_setup_with_notify_socket(
    setup: Setup,
    manager: impl FnOnce(&Setup) -> NotifySocket,
) -> (Gateway, NotifySocket) {
    let manager = manager(&setup);
    let socket = setup.path("notify.sock").display().to_string();
    let setup = setup.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "600000");
    (setup.start(), manager)
}

#[test]
fn riskgate_notifies_systemd_of_ready_reloading_and_stopping() {
    let (mut gateway, manager) = start_with_notify_socket(NotifySocket::new);
    let ready = format!("READY=1\nMAINPID={}", gateway.pid());
    assert_eq!(manager.next_message_but_watchdog(), ready);
    gateway.send_signal("HUP");
    let reloading = manager.next_message_but_watchdog();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.next_message_but_watchdog(), ready);
    gateway.send_signal("TERM");
    assert_eq!(manager.next_message_but_watchdog(), "STOPPING=1");
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
}

#[test]
fn a_reload_that_ends_after_sigterm_does_not_say_that_riskgate_is_ready() {
    let setup = Setup::new().set_text("drain.delay", "3s");
    let (mut gateway, manager) = start_setup_with_notify_socket(setup, NotifySocket::new);
    assert!(manager.next_message_but_watchdog().starts_with("READY=1"));
    // The reload waits until the file has been unchanged for half a second.
    let config = std::fs::read_to_string(&gateway.config).unwrap();
    std::fs::write(&gateway.config, config + "\n# written at this moment\n").unwrap();
    gateway.send_signal("HUP");
    assert!(manager.next_message_but_watchdog().starts_with("RELOADING=1"));
    gateway.send_signal("TERM");
    assert_eq!(manager.next_message_but_watchdog(), "STOPPING=1");
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
    manager.socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 4096];
    while let Ok(read) = manager.socket.recv(&mut bytes) {
        assert_eq!(String::from_utf8_lossy(&bytes[..read]).trim_end(), "WATCHDOG=1");
    }
}

#[test]
fn watchdog_messages_are_sent_only_while_the_process_runs() {
    let (gateway, manager) = start_with_notify_socket(NotifySocket::new);
    for _ in 0..5 {
        wait_until("a WATCHDOG=1 message", || manager.next_message() == "WATCHDOG=1");
    }
    // A stopped process sends no WATCHDOG=1.
    gateway.send_signal("STOP");
    manager.socket.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let mut bytes = [0; 4096];
    // Messages that were already sent may still arrive.
    while manager.socket.recv(&mut bytes).is_ok() {}
    gateway.send_signal("CONT");
    manager.socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    wait_until("a WATCHDOG=1 message", || manager.next_message() == "WATCHDOG=1");
}

#[test]
fn a_successor_sends_mainpid_after_the_upgrade() {
    let (mut gateway, manager) = start_with_notify_socket(NotifySocket::new);
    assert!(manager.next_message_but_watchdog().starts_with("READY=1"));
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    gateway.send_signal("QUIT");
    gateway.replace_process(successor);
    let mut messages =
        vec![manager.next_message_but_watchdog(), manager.next_message_but_watchdog()];
    messages.sort();
    assert_eq!(messages, [format!("READY=1\nMAINPID={}", gateway.pid()), "STOPPING=1".to_owned()]);
}

#[test]
fn a_full_notify_socket_blocks_neither_a_reload_nor_the_stop() {
    let (mut gateway, _manager) = start_with_notify_socket(|setup| {
        let manager = NotifySocket::new(setup);
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.send_to(b"x", setup.path("notify.sock")).is_ok() {}
        manager
    });
    let reloads = || gateway.sum_of_samples("riskgate_reloads_total", &["part=\"config\""]);
    let before = reloads();
    gateway.send_signal("HUP");
    wait_until("SIGHUP reloads", || reloads() > before);
    gateway.send_signal("TERM");
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
    assert!(gateway.stderr().contains("expected a service manager that listens"));
}

#[test]
fn an_unusable_notify_socket_is_reported_once() {
    for address in ["vsock:2:1234", "vsock:", "notify.sock"] {
        let setup = Setup::new().env("NOTIFY_SOCKET", address);
        let mut gateway = setup.env("WATCHDOG_USEC", "100000").start();
        let reloads = || gateway.sum_of_samples("riskgate_reloads_total", &["part=\"config\""]);
        let before = reloads();
        gateway.send_signal("HUP");
        wait_until("SIGHUP reloads", || reloads() > before);
        gateway.send_signal("TERM");
        assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
        let stderr = gateway.stderr();
        let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("manager")).collect();
        assert_eq!(lines.len(), 1, "{stderr}");
        assert!(lines[0].contains(&format!("found {address:?}")), "{}", lines[0]);
    }
}
