//! When the process of a new binary takes over, no connection is refused and no call is counted
//! twice. The old process serves until the new process is ready.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::harness::{
    BINARY, Connection, Gateway, MockUpstream, SetOnDrop, Setup, Successor, free_address, get,
    run_command, wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";

#[test]
fn an_upgrade_under_load_fails_no_call_and_counts_each_call_once() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[upstream.address]).set("plans.free", "1000000");
    let mut gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let address = gateway.http;
    let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..6 {
            let (key, done, answered) = (&key, &done, &answered);
            let path = if client % 2 == 0 { DOMAIN } else { "/v1/check/a@b.com" };
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                while !done.load(Ordering::Relaxed) {
                    // riskgate announces the close of a connection in its last response, so no
                    // request is lost.
                    let answer = connection.send_request(&get(path).key(key)).expect(200);
                    assert!(answer.is_complete);
                    answered.fetch_add(1, Ordering::SeqCst);
                    // A third of the clients open a connection for each call, which is the
                    // hardest case.
                    if client % 3 == 0 || answer.header("Connection") == Some("close") {
                        connection = Connection::open(address);
                    }
                }
            });
        }
        let ended = SetOnDrop(&done);
        for _ in 0..3 {
            let successor = gateway.spawn_successor();
            successor.wait_until_ready();
            gateway.send_signal("QUIT");
            gateway.replace_process(successor);
            wait_until("the successor reports that it took over", || {
                gateway.stderr().contains("took over")
            });
            let before = answered.load(Ordering::SeqCst);
            wait_until("it serves", || answered.load(Ordering::SeqCst) > before + 100);
        }
        drop(ended);
    });
    assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
    let gateway = gateway.restart();
    assert_eq!(gateway.get_month_count(&key), answered.into_inner());
}

#[test]
fn a_second_successor_is_told_that_another_one_waits() {
    let gateway = Setup::new().start();
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    let mut command = std::process::Command::new(BINARY);
    let command = command.args(["run", "--upgrade", "-c"]).arg(&gateway.config);
    let refused = run_command(command.current_dir(gateway.path(""))).expect(1).stderr;
    let expected = "process.runtime_dir: expected to wait there for the serving process, but found \
                    another waiting successor: ";
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn if_the_successor_fails_the_old_process_keeps_serving() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    let mut successor = gateway.spawn_successor();
    successor.wait_until_ready();
    successor.kill();
    gateway.send_signal("QUIT");
    wait_until("riskgate reports the refusal", || {
        gateway.stderr().contains("no successor is waiting")
    });
    gateway.get_domain("first.test", &key).expect(200);

    // A successor that starts but never takes over.
    let impostor = listen_as_successor(&gateway);
    gateway.send_signal("QUIT");
    let (stream, _) = impostor.accept().unwrap();
    gateway.get_domain("first.test", &key).expect(200);
    drop(stream);
    wait_until("riskgate reports it", || gateway.stderr().matches("serving on").count() == 2);
    gateway.get_domain("first.test", &key).expect(200);
    assert_eq!(gateway.readyz().status, 200);
}

/// Listens where a process looks for its successor.
fn listen_as_successor(gateway: &Gateway) -> UnixListener {
    let path = gateway.path("run/successor.sock");
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(&path).unwrap()
}

#[test]
fn an_interrupt_ends_a_process_that_waits_for_its_successor() {
    let mut gateway = Setup::new().start();
    let impostor = listen_as_successor(&gateway);
    gateway.send_signal("QUIT");
    // A successor that says nothing.
    let (stream, _) = impostor.accept().unwrap();
    gateway.send_signal("INT");
    assert!(gateway.wait_for_exit().success());
    drop(stream);
}

#[test]
fn a_sigterm_during_an_upgrade_leaves_the_successor_serving() {
    // The successor waits for less than this delay.
    let mut gateway = Setup::new().set_text("drain.delay", "3s").start();
    let key = gateway.create_active_key("acme", &[]);
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    // A busy machine may let the successor run later than the signals.
    successor.send_signal("STOP");
    gateway.send_signal("QUIT");
    gateway.send_signal("TERM");
    wait_until("the old process drains", || gateway.stderr().contains("SIGTERM: drains"));
    successor.send_signal("CONT");
    gateway.replace_process(successor);
    wait_until("the successor took over", || gateway.stderr().contains("took over"));
    gateway.get_domain("first.test", &key).expect(200);
}

#[test]
fn after_a_sigterm_and_a_failed_transfer_another_successor_takes_over() {
    let mut gateway = Setup::new().set_text("drain.delay", "300s").start();
    let key = gateway.create_active_key("acme", &[]);
    let impostor = listen_as_successor(&gateway);
    gateway.send_signal("QUIT");
    // A successor that has the sockets, and dies before it serves.
    let (stream, _) = impostor.accept().unwrap();
    gateway.send_signal("TERM");
    wait_until("the old process drains", || gateway.stderr().contains("SIGTERM: drains"));
    drop((stream, impostor));
    wait_until("the transfer failed", || gateway.stderr().contains(": draining on"));
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    gateway.send_signal("QUIT");
    gateway.replace_process(successor);
    wait_until("the successor took over", || gateway.stderr().contains("took over"));
    gateway.get_domain("first.test", &key).expect(200);
}

#[test]
fn a_successor_that_says_nothing_makes_no_drain_longer() {
    let mut gateway = Setup::new().set_text("drain.delay", "2s").start();
    let impostor = listen_as_successor(&gateway);
    gateway.send_signal("TERM");
    wait_until("the process drains", || gateway.stderr().contains("SIGTERM: drains"));
    gateway.send_signal("QUIT");
    let (stream, _) = impostor.accept().unwrap();
    assert!(gateway.wait_for_exit().success());
    // A transfer may take 30 s, and was not cancelled at the end of the delay.
    let stderr = gateway.stderr();
    assert!(!stderr.contains("sent nothing for 30 s"), "{stderr}");
    drop(stream);
}

/// A successor may bind the ports only once the old process has closed them. Connections that wait
/// to be accepted keep a port open for longer.
#[test]
fn a_waiting_successor_serves_once_the_old_process_has_ended() {
    for signal in ["TERM", "INT"] {
        let mut gateway = Setup::new().start();
        let key = gateway.create_active_key("acme", &[]);
        let successor = gateway.spawn_successor();
        successor.wait_until_ready();
        let (address, done) = (gateway.http, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let ended = SetOnDrop(&done);
            for _ in 0..2 {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let _open = [(); 10].map(|()| std::net::TcpStream::connect(address));
                        std::thread::sleep(std::time::Duration::from_millis(5));
                    }
                });
            }
            gateway.send_signal(signal);
            gateway.replace_process(successor);
            drop(ended);
        });
        wait_until("the successor serves", || {
            assert!(gateway.exit_status().is_none(), "{signal}: {}", gateway.stderr());
            Connection::try_open(address)
                .is_some_and(|mut c| c.try_send_request(&get(DOMAIN).key(&key)).is_some())
        });
        gateway.get_domain("first.test", &key).expect(200);
    }
}

#[test]
fn a_successor_takes_over_from_a_process_in_its_drain_delay() {
    let mut gateway = Setup::new().set_text("drain.delay", "300s").start();
    let key = gateway.create_active_key("acme", &[]);
    gateway.send_signal("TERM");
    wait_until("the old process drains", || gateway.stderr().contains("SIGTERM: drains"));
    gateway.send_signal("QUIT");
    wait_until("riskgate reports the refusal", || {
        gateway.stderr().contains("SIGQUIT: no successor is waiting: draining on")
    });
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    gateway.send_signal("QUIT");
    gateway.replace_process(successor);
    wait_until("the successor took over", || gateway.stderr().contains("took over"));
    gateway.get_domain("first.test", &key).expect(200);
}

#[test]
fn a_successor_serves_by_the_key_file_as_it_is_when_it_takes_over() {
    let (kept, added) = ("sv_in_the_file_from_the_start", "sv_in_the_file_since_then");
    let entry = |id: &str, token: &str| {
        let hash = crate::one_path::quota::keys::sha256_hex(token);
        format!("[[key]]\nid = \"{id}\"\naccount = \"filed\"\nhash = \"sha256:{hash}\"\n")
    };
    let setup = Setup::new();
    let file = setup.path("keys.toml");
    std::fs::write(&file, entry("kept", kept)).unwrap();
    let mut gateway = setup.set_text("keys.file", &file.display().to_string()).start();
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    std::fs::write(&file, entry("added", added)).unwrap();
    wait_until("the old process has read the file", || {
        gateway.get(DOMAIN, added).status == 200 && gateway.get(DOMAIN, kept).status == 401
    });
    gateway.send_signal("QUIT");
    gateway.replace_process(successor);
    assert_eq!((gateway.get(DOMAIN, added).status, gateway.get(DOMAIN, kept).status), (200, 401));
}

#[test]
fn a_reload_does_not_end_a_waiting_successor() {
    let mut gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    successor.send_signal("HUP");
    gateway.send_signal("QUIT");
    gateway.replace_process(successor);
    wait_until("it took over", || gateway.stderr().contains("took over"));
    gateway.get_domain("first.test", &key).expect(200);
}

#[test]
fn a_successor_with_a_broken_config_ends_and_the_old_process_serves() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    let good = std::fs::read_to_string(&gateway.config).unwrap();
    std::fs::write(&gateway.config, good.replace("[store]", "[store]\nnonsense = 1")).unwrap();
    let mut successor = gateway.spawn_successor();
    wait_until("it has ended", || successor.exit_status().is_some());
    assert_eq!(successor.exit_status().unwrap().code(), Some(78), "{}", successor.stderr());
    gateway.get_domain("first.test", &key).expect(200);
}

#[test]
fn run_upgrade_starts_without_a_predecessor_and_the_runtime_dir_is_private() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    let folder = gateway.path("run");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("riskgate.pid"))), (0o700, 0o600));
    let pid = std::fs::read_to_string(folder.join("riskgate.pid")).unwrap();
    assert_eq!(pid.trim(), gateway.pid().to_string());
    let setup = gateway.shut_down();
    assert_eq!(std::fs::read_to_string(folder.join("riskgate.pid")).unwrap(), "");
    let mut gateway = setup.start();
    gateway.kill();
    // A pid file of a killed process does not prevent a start.
    let mut successor = gateway.spawn_successor();
    wait_until("it serves", || {
        successor.exit_status().is_none()
            && Connection::try_open(gateway.http)
                .is_some_and(|mut c| c.try_send_request(&get(DOMAIN).key(&key)).is_some())
    });
    gateway.replace_process(successor);
    gateway.get_domain("first.test", &key).expect(200);
}

#[test]
fn a_kept_connection_gets_one_more_response_from_the_old_process() {
    let mut gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    let mut kept = gateway.connect();
    kept.send_request(&get(DOMAIN).key(&key)).expect(200);
    let successor = gateway.spawn_successor();
    successor.wait_until_ready();
    gateway.send_signal("QUIT");
    wait_until("the successor serves", || successor.stderr().contains("took over"));
    // Longer than the time that any other stop gives a recently used connection.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let last = kept.send_request(&get(DOMAIN).key(&key)).expect(200);
    assert_eq!(last.header("Connection"), Some("close"));
    assert!(kept.ends_without_more_bytes());
    gateway.replace_process(successor);
    assert_eq!(gateway.get_month_count(&key), 2);
}

/// Gives a successor listening sockets of its own with the names of the gateway's, lets it accept a
/// connection with half a request, and leaves without the final message. Ends with the connection.
const PREDECESSOR_THAT_LEAVES: &str = r#"
import socket, sys
path, key, *names = sys.argv[1:]
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in names]
successor = socket.socket(socket.AF_UNIX)
successor.connect(path)
text = "".join(name + "\n" for name in names).encode()
socket.send_fds(successor, [text], [it.fileno() for it in listeners])
assert successor.recv(100) == b"accepting\n"
client = socket.create_connection(listeners[0].getsockname())
head = "POST /v1/public/domains HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Length: 9\r\n\r\n["
client.sendall((head % key).encode())
successor.close()
[it.close() for it in listeners]
try:
    while client.recv(100): pass
except ConnectionResetError:
    pass
"#;

#[test]
fn a_successor_that_does_not_take_over_exits_with_1_however_its_drain_ends() {
    let gateway = Setup::new().set_text("drain.grace", "1s").start();
    let key = gateway.create_active_key("acme", &[]);
    let mut successor = gateway.spawn_successor();
    successor.wait_until_ready();
    let names = [format!("http {}", gateway.http), format!("admin {}", gateway.admin)];
    let mut python = std::process::Command::new("python3");
    python.args(["-c", PREDECESSOR_THAT_LEAVES]).arg(gateway.path("run/successor.sock"));
    run_command(python.arg(&key).args(names)).expect(0);
    wait_until("the successor has ended", || successor.exit_status().is_some());
    let (status, told) = (successor.exit_status().unwrap(), successor.stderr());
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("the upgrade failed: drains: 1 request left"), "{told}");
    assert!(told.contains("1 request was cut"), "{told}");
    gateway.get_domain("first.test", &key).expect(200);
}

/// Waits until the successor has failed, and returns what it told.
fn wait_for_failure(successor: &mut Successor) -> String {
    wait_until("the successor has ended", || successor.exit_status().is_some());
    assert_eq!(successor.exit_status().unwrap().code(), Some(1), "{}", successor.stderr());
    successor.stderr()
}

/// Another gateway, with a config, a store and addresses of its own, may have the same default
/// directory.
#[test]
fn a_successor_that_belongs_to_another_gateway_leaves_the_serving_one_alone() {
    let gateway = Setup::new().start();
    let key = gateway.create_active_key("acme", &[]);
    let store = format!("sqlite:{}", gateway.path("other.db").display());
    let addresses = [free_address(), free_address()].map(|it| it.to_string());
    let variables = [
        ("RISKGATE__LISTEN__HTTP", addresses[0].as_str()),
        ("RISKGATE__LISTEN__ADMIN", addresses[1].as_str()),
        ("RISKGATE__STORE__URL", store.as_str()),
    ];
    let mut other = gateway.spawn_successor_with(&variables);
    other.wait_until_ready();
    gateway.send_signal("QUIT");
    wait_until("the serving process reports it", || gateway.stderr().contains("serving on"));
    let refused = wait_for_failure(&mut other);
    let expected = format!(
        "process.runtime_dir: expected the gateway of this config to serve from it, but found \
         another, which listens at http {}, admin {}",
        gateway.http, gateway.admin
    );
    assert!(refused.contains(&expected), "{refused}");
    gateway.get_domain("first.test", &key).expect(200);
    // The admin address alone does not make another store the same gateway.
    let variables = [variables[0], variables[2]];
    let mut other = gateway.spawn_successor_with(&variables);
    other.wait_until_ready();
    gateway.send_signal("QUIT");
    assert!(wait_for_failure(&mut other).contains("but found another, which listens at"));
    gateway.get_domain("first.test", &key).expect(200);
    assert_eq!(gateway.readyz().status, 200);
}

#[test]
fn a_process_beside_another_one_in_its_directory_says_truly_that_it_cannot_be_upgraded() {
    let first = Setup::new().start();
    let run = first.path("run").display().to_string();
    let second = Setup::new().set_text("process.runtime_dir", &run).start();
    let expected = "another process serves from the same process.runtime_dir: this process cannot be \
                    upgraded";
    assert!(second.stderr().contains(expected), "{}", second.stderr());
    let third = first.cli(&["run"]).expect(1).stderr;
    let running = "; riskgate runs already, as process ";
    assert!(third.contains(running) && third.contains(": stop it, or write"), "{third}");
    let successor = second.spawn_successor();
    successor.wait_until_ready();
    second.send_signal("QUIT");
    wait_until("it serves on", || {
        let refusal =
            "SIGQUIT: another process serves from the same process.runtime_dir: serving on";
        second.stderr().contains(refusal)
    });
    assert_eq!((first.readyz().status, second.readyz().status), (200, 200));
}
