//! The house stands: a floor imports from below, and each outside crate comes in by its door.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Rooms by floor, from the words up.
const FLOORS: [&[&str]; 5] = [
    &["domain", "month", "network", "origin", "refusal", "verdict"],
    &[
        "access_log",
        "dns",
        "error_log",
        "feed",
        "keys",
        "live",
        "metrics",
        "quota",
        "regular_file",
        "request_id",
        "shares",
        "store",
        "table",
        "tls",
        "top",
    ],
    &["admission", "body", "door", "gate", "gateway", "head", "lane", "reply", "route", "upstream"],
    &["admin", "config", "handover", "listen", "reload", "server", "supervisor"],
    &["cli", "main"],
];

/// Outside crates, and the rooms that may name them; all others are free.
const DOORS: [(&str, &[&str]); 33] = [
    ("arc_swap", &["live"]),
    ("rusqlite", &["store"]),
    ("redis", &["store"]),
    ("rustls", &["store", "tls"]),
    ("rustix", &["quota", "listen", "handover", "reload"]),
    ("h2", &["door"]),
    ("socket2", &["listen", "upstream"]),
    ("ipnet", &["network"]),
    ("ppp", &["door"]),
    ("sd_notify", &["supervisor"]),
    ("x509_parser", &["tls"]),
    ("idna", &["domain"]),
    ("psl", &["domain"]),
    ("prometheus", &["metrics"]),
    ("sha2", &["feed", "keys"]),
    ("ureq", &["feed"]),
    ("minisign_verify", &["feed"]),
    ("crc32fast", &["keys"]),
    ("xxhash_rust", &["table"]),
    ("clap", &["cli"]),
    ("tikv_jemallocator", &["main"]),
    ("smol_str", &["domain", "origin", "admission", "refusal", "reply", "route", "gate"]),
    ("toml", &["config", "keys", "table"]),
    ("pingora_load_balancing", &["upstream"]),
    ("pingora_proxy", &["door", "gate", "gateway", "reply", "server"]),
    (
        "pingora_core",
        &[
            "body",
            "door",
            "gate",
            "gateway",
            "reply",
            "upstream",
            "admin",
            "listen",
            "reload",
            "server",
            "supervisor",
        ],
    ),
    ("pingora_http", &["gate", "gateway", "head", "reply", "upstream"]),
    ("itoa", &["access_log", "reply"]),
    ("memchr", &["head"]),
    ("pingora_error", &["body", "gate", "gateway", "upstream"]),
    ("jiff", &["keys", "cli", "month"]),
    ("strsim", &["table"]),
    ("hickory_resolver", &["dns"]),
];

/// Words that mean a clock is read, the environment is asked or a lint is switched off, and who
/// may.
const HANDS: [(&str, &[&str]); 3] = [
    ("std::env::", &["config", "cli"]),
    ("SystemTime::now", &["gate", "door", "quota", "table"]),
    // The crate denies unsafe code; who is let off has a proof above each block, as clippy checks.
    ("unsafe_code", &["main", "upstream"]),
];

#[test]
fn a_floor_imports_only_from_below() {
    let sources = sources();
    for (room, text) in &sources {
        for other in rooms_named(text) {
            assert!(
                floor(&other) <= floor(room),
                "{room} (floor {}) imports {other} (floor {})",
                floor(room),
                floor(&other)
            );
        }
    }
}

#[test]
fn rooms_of_a_floor_do_not_lean_on_each_other_in_a_circle() {
    let edges: BTreeMap<String, BTreeSet<String>> = sources()
        .into_iter()
        .map(|(room, text)| {
            let others = rooms_named(&text).into_iter().filter(|other| *other != room).collect();
            (room, others)
        })
        .collect();
    for start in edges.keys() {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&String> = edges[start].iter().collect();
        while let Some(room) = next.pop() {
            assert!(room != start, "{start} leads back to itself");
            if reached.insert(room) {
                next.extend(edges.get(room).into_iter().flatten());
            }
        }
    }
}

#[test]
fn an_outside_crate_comes_in_by_its_door() {
    for (room, text) in sources() {
        for (name, doors) in DOORS {
            let named = text.contains(&format!("{name}::"));
            assert!(!named || doors.contains(&room.as_str()), "{room} names {name}");
        }
        for (words, hands) in HANDS {
            let named = text.contains(words);
            assert!(!named || hands.contains(&room.as_str()), "{room} says {words}");
        }
    }
}

#[test]
fn unsafe_code_is_denied_wherever_a_room_is_not_let_off() {
    let source = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        fs::read_to_string(path).unwrap()
    };
    assert!(source("src/lib.rs").contains("\n#![deny(unsafe_code)]\n"));
    assert!(source("src/main.rs").contains("\n#![forbid(unsafe_code)]\n"));
    assert!(source("Cargo.toml").contains("\nundocumented_unsafe_blocks = \"deny\"\n"));
}

#[test]
fn route_admission_and_reply_do_not_know_each_other() {
    const APART: [&str; 3] = ["route", "admission", "reply"];
    for (room, text) in sources().into_iter().filter(|(room, _)| APART.contains(&room.as_str())) {
        let named = rooms_named(&text);
        assert!(APART.iter().all(|other| *other == room || !named.contains(*other)), "{room}");
    }
}

#[test]
fn the_state_knows_no_request() {
    for (room, text) in sources().into_iter().filter(|(room, _)| floor(room) <= 1) {
        for word in ["http::", "pingora"] {
            assert!(!text.contains(word), "{room} (floor {}) says {word}", floor(&room));
        }
    }
    for (room, text) in sources().into_iter().filter(|(room, _)| floor(room) == 0) {
        for word in ["std::fs", "std::net::Tcp", "std::time", "async ", "log::", "std::thread"] {
            assert!(!text.contains(word), "{room} (floor 0) says {word}");
        }
    }
}

fn floor(room: &str) -> usize {
    let floor = FLOORS.iter().position(|rooms| rooms.contains(&room));
    floor.unwrap_or_else(|| panic!("{room} stands on no floor: give it one in tests/floors.rs"))
}

/// Each room with its text: the file and the folder of its name, tests and comments left out.
fn sources() -> BTreeMap<String, String> {
    let mut sources: BTreeMap<String, String> = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inner = path.strip_prefix(&root).unwrap();
            let room = inner.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
            let is_test = inner.iter().any(|part| part == "tests" || part == "tests.rs");
            if room != "lib" && !is_test {
                let text = without_tests(&fs::read_to_string(&path).unwrap());
                sources.entry(room.to_owned()).or_default().push_str(&text);
            }
        }
    }
    assert!(sources.len() > 20, "the rooms were not found");
    sources
}

fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The rooms behind `crate::…`, in `use` lines and paths alike.
fn rooms_named(text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for rest in text.split("crate::").skip(1) {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        rooms.insert(rest[..end].to_owned());
    }
    for rest in text.split("riskgate::").skip(1) {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        rooms.insert(rest[..end].to_owned());
    }
    rooms
        .into_iter()
        .filter(|room| FLOORS.iter().any(|rooms| rooms.contains(&room.as_str())))
        .collect()
}
