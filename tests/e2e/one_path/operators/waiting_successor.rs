//! A process that waits to take over may wait for days and may never serve. Until it serves, it
//! changes nothing in the store and sends nothing.

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::webhooks::SECRET;
use crate::both_paths::decisions::start_counting;
use crate::harness::{Gateway, Setup, request, wait_until};

/// Longer than each thread of a successor pauses.
const WAITING_TIME: Duration = Duration::from_secs(3);

/// A rule that asks for counts, and blocks nothing.
const RULE: &str =
    "[[rule]]\nname = \"none\"\nif = [\"inbox_accounts_30d >= 1000\"]\nthen = \"review\"\n";

fn sign_up(gateway: &Gateway, key: &str, email: &str) {
    let body = json!({ "email": email, "count": true }).to_string();
    gateway.send_request(&request("POST", "/v1/assess").key(key).body(&body)).expect(200);
}

/// All rows of all tables.
fn dump(store: &Path) -> Vec<String> {
    let store = rusqlite::Connection::open(store).unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let mut names = store.prepare(names).unwrap();
    let names: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let rows_of = |name: &String| {
        let mut rows = store.prepare(&format!("SELECT * FROM \"{name}\"")).unwrap();
        let columns = rows.column_count();
        let to_text = |row: &rusqlite::Row<'_>| {
            let values: Result<Vec<rusqlite::types::Value>, _> =
                (0..columns).map(|at| row.get(at)).collect();
            Ok(format!("{name}: {:?}", values?))
        };
        rows.query_map([], to_text).unwrap().map(Result::unwrap).collect::<Vec<String>>()
    };
    names.iter().flat_map(rows_of).collect()
}

#[test]
fn a_successor_that_never_serves_changes_nothing_and_sends_nothing() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let resolver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    resolver.set_nonblocking(true).unwrap();
    let setup = Setup::new().set("plans.free", "10").append_toml(RULE);
    let gateway = start_counting(setup);
    let key = gateway.create_active_key("acme", &[]);
    (0..9).for_each(|n| sign_up(&gateway, &key, &format!("jane{n}@quelbrandt.com")));
    let store = gateway.path("riskgate.db");
    let stored = |text: &str| dump(&store).iter().filter(|row| row.starts_with(text)).count();
    wait_until("the store has the sign-ups", || stored("sign_up:") == 9);
    // By then, the node has returned its unspent calls.
    std::thread::sleep(WAITING_TIME);
    // So the serving process changes nothing either.
    gateway.send_signal("STOP");
    let secret = gateway.path("secret");
    std::fs::write(&secret, "another secret of thirty-two bytes").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (tcp, udp) = (receiver.local_addr().unwrap(), resolver.local_addr().unwrap());
    let secret = secret.display();
    let sections = format!(
        r#"
[inbox]
secret_file = "{secret}"
[webhook]
url = "http://{tcp}/"
secret = "{SECRET}"
allow_private = true
[dns]
learn = true
resolvers = ["{udp}"]
[[table.feed]]
name = "one"
url = "http://{tcp}/list.txt"
tier = "a"
"#
    );
    let config = std::fs::read_to_string(&gateway.config).unwrap() + &sections;
    std::fs::write(&gateway.config, config).unwrap();
    let before = dump(&store);
    let mut successor = gateway.spawn_successor();
    successor.wait_until_ready();
    std::thread::sleep(WAITING_TIME);
    successor.kill();
    let after = dump(&store);
    let new: Vec<&String> = after.iter().filter(|row| !before.contains(row)).collect();
    let gone: Vec<&String> = before.iter().filter(|row| !after.contains(row)).collect();
    assert_eq!([new, gone], [Vec::<&String>::new(), Vec::new()]);
    assert!(receiver.accept().is_err(), "a webhook or a feed");
    assert!(resolver.recv(&mut [0; 512]).is_err(), "a query of the DNS");
    assert!(!gateway.path("feeds").exists());
}
