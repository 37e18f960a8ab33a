//! Tests the layers of `src/`: what each folder may import, and which modules may use a crate, a
//! clock, the environment or unsafe code. The text of a failure says what to change.

mod clocks;
mod imports;
mod lengths;
mod paths;
mod sources;

use std::collections::BTreeSet;
use std::fs;

use imports::Imports;
use lengths::function_lengths;
use sources::{find_rust_files, project_root, read_source_files};

/// The folders of `src/` in the order of their layers: each folder imports only from folders
/// before it.
const FOLDERS: [&str; 22] = [
    "model",
    "support",
    "screening",
    "store",
    "quota",
    "keys",
    "table",
    "feed",
    "dns",
    "decide",
    "webhook",
    "observe",
    "message",
    "exchange",
    "gate",
    "proxy",
    "downstream",
    "config",
    "management",
    "process",
    "cli",
    "main",
];

/// Folders before `message`. They must use neither HTTP types nor Pingora.
const FOLDERS_WITHOUT_HTTP: [&str; 12] = [
    "model",
    "support",
    "screening",
    "store",
    "quota",
    "keys",
    "table",
    "feed",
    "dns",
    "decide",
    "webhook",
    "observe",
];

/// Crates, each with the only folders or modules that may use it.
const CRATES: [(&str, &[&str]); 42] = [
    ("anstream", &["cli/output"]),
    ("aho_corasick", &["table/unlisted_rules"]),
    ("arc_swap", &["support/snapshot"]),
    ("arrayvec", &["gate", "message", "model/email", "downstream/http2"]),
    ("base64", &["feed/fetch", "gate/beginning", "screening/server_parsers", "webhook/signature"]),
    ("clap", &["cli"]),
    ("crc32fast", &["keys/token"]),
    ("h2", &["gate/unsent_response", "downstream/http2", "process/trace_exporter/grpc"]),
    (
        "hex",
        &[
            "store",
            "keys/key_file",
            "feed/fetch",
            "webhook/event",
            "observe/traces",
            "message/request_id",
            "management/repeatable",
            "management/stored_overrides",
        ],
    ),
    ("flate2", &["feed/fetch", "table/kept_lists"]),
    (
        "hickory_resolver",
        &[
            "support/dns_resolver",
            "dns/client",
            "proxy/upstream/name_resolver",
            "proxy/upstream/host_addresses",
        ],
    ),
    ("hashbrown", &["decide/counts"]),
    ("hmac", &["decide/pseudonymizer", "webhook/signature"]),
    ("idna", &["model/domain"]),
    ("ipnet", &["model/network"]),
    ("itoa", &["message", "exchange", "proxy/upstream", "observe/access_log"]),
    ("jiff", &["model/month", "keys/key_file", "management/expiry"]),
    ("memchr", &["message", "screening", "gate/beginning", "gate/route/path_reading"]),
    ("minisign_verify", &["feed/fetch"]),
    ("pingora", &["message", "exchange", "gate", "proxy", "downstream", "process"]),
    ("pingora_proxy", &["message", "gate", "proxy", "downstream", "process"]),
    ("ppp", &["downstream/preamble"]),
    ("prometheus", &["observe/metrics", "observe/screening_counts"]),
    ("prost", &["observe/traces/otlp"]),
    ("psl", &["model/domain"]),
    ("redis", &["store"]),
    ("rusqlite", &["store"]),
    (
        "rustix",
        &[
            "quota",
            "process",
            "cli/output",
            "cli/author",
            "cli/init/files",
            "store/sqlite/open",
            "support/memory",
            "support/machine_name",
            "support/peer_close",
            "support/send_queue",
            "proxy/upstream/connection_guard",
        ],
    ),
    (
        "rustls",
        &[
            "store/redis",
            "support/certificate_probe",
            "support/certificates",
            "support/trusted_authorities",
        ],
    ),
    ("rustls_native_certs", &["support/trusted_authorities"]),
    ("sd_notify", &["process/systemd"]),
    (
        "sha2",
        &[
            "decide/pseudonymizer",
            "feed/fetch",
            "keys/token",
            "process/served_store_sockets",
            "store/audit",
            "store/redis/incarnation",
            "webhook",
        ],
    ),
    (
        "smol_str",
        &[
            "model",
            "decide",
            "message",
            "gate",
            "downstream/fast_path",
            "observe/latest_forms",
            "observe/screening_counts",
        ],
    ),
    ("socket2", &["support/socket_reset", "proxy/upstream", "process/listener"]),
    ("strsim", &["config/hints"]),
    ("tikv_jemallocator", &["main"]),
    // Not `message`, `exchange` and `gate`: what they compute needs no runtime.
    (
        "tokio",
        &[
            "support",
            "quota",
            "dns",
            "gate/body_reading",
            "gate/unsent_response",
            "proxy",
            "downstream",
            "process",
            "cli",
        ],
    ),
    ("toml", &["keys", "table", "config"]),
    (
        "ureq",
        &[
            "cli/doctor",
            "cli/http_client",
            "feed/fetch",
            "process/trace_exporter",
            "process/reload/webhook",
            "support/trusted_authorities",
        ],
    ),
    ("webpki_root_certs", &["support/trusted_authorities"]),
    ("x509_parser", &["support/certificates"]),
    ("xxhash_rust", &["table"]),
];

/// Paths and texts in code that read the environment, read a clock or allow unsafe code, each with
/// the only modules that may contain them.
const RESTRICTED_CODE: [(&str, &[&str]); 3] = [
    ("std::env", &["config", "cli", "support/test_fault"]),
    // Other ways to read a clock: see `clocks`.
    ("std::time::SystemTime", &["support/machine_clock"]),
    // Clippy requires a safety comment above each unsafe block.
    ("unsafe_code", &["support/memmove", "support/send_queue", "support/socket_reset", "main"]),
];

/// The folders whose code only computes.
const FOLDERS_WITHOUT_IO: [&str; 3] = ["model", "screening", "exchange"];
/// Paths that these folders must not name: I/O, clocks, logs and threads.
const PATHS_OF_IO: [&str; 8] = [
    "log",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os::unix::net",
    "std::thread",
    "std::time",
];

const MAX_FUNCTION_LINES: usize = 70;
/// As `max_width` in rustfmt.toml, which does not break comments.
const MAX_COMMENT_COLUMNS: usize = 100;

#[test]
fn a_folder_imports_only_from_folders_before_it() {
    let mut wrong = Vec::new();
    for source in read_source_files() {
        let folders = source.paths_below_root().map(|path| path.split("::").next().unwrap());
        let imported: BTreeSet<&str> = folders.filter(|name| FOLDERS.contains(name)).collect();
        for imported in imported {
            if layer_index(imported) > layer_index(source.folder()) {
                wrong.push(format!("src/{}.rs imports {imported}", source.module));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: move what both folders need into a folder before both, or let the caller pass \
         it in. FOLDERS in tests/project/layers.rs has the order."
    );
}

#[test]
fn paths_from_the_root_begin_with_a_folder() {
    let mut wrong = Vec::new();
    for source in read_source_files() {
        for path in source.paths_below_root() {
            if !FOLDERS.contains(&path.split("::").next().unwrap()) {
                wrong.push(format!("src/{}.rs names crate::{path}", source.module));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: name the folder that defines it, as in crate::proxy::gateway::Gateway. What \
         src/lib.rs re-exports at the root is for other crates, and a * at the root hides the \
         folder. FOLDERS in tests/project/layers.rs lists the folders."
    );
}

#[test]
fn crates_are_used_only_where_they_are_allowed() {
    let mut wrong = Vec::new();
    for source in read_source_files() {
        for (name, modules) in CRATES {
            if source.paths.contain(name) && !source.is_within_modules(modules) {
                wrong.push(format!("src/{}.rs uses {name}, allowed in {modules:?}", source.module));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: call the module that wraps the crate, or add your module to CRATES in \
         tests/project/layers.rs."
    );
}

#[test]
fn clocks_the_environment_and_unsafe_code_are_used_only_where_allowed() {
    let mut wrong = Vec::new();
    for source in read_source_files() {
        for (code, modules) in RESTRICTED_CODE {
            let is_used = source.paths.contain(code) || source.text.contains(code);
            if is_used && !source.is_within_modules(modules) {
                wrong.push(format!("src/{}.rs uses {code}, allowed in {modules:?}", source.module));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: take the time or the setting as a parameter, or add your module to \
         RESTRICTED_CODE in tests/project/layers.rs."
    );
}

#[test]
fn unsafe_code_is_denied_by_default() {
    let read = |name: &str| fs::read_to_string(project_root().join(name)).unwrap();
    assert!(read("src/lib.rs").contains("\n#![deny(unsafe_code)]\n"));
    assert!(read("src/main.rs").contains("\n#![deny(unsafe_code)]\n"));
    assert!(read("Cargo.toml").contains("\nundocumented_unsafe_blocks = \"deny\"\n"));
}

#[test]
fn folders_before_message_use_neither_http_nor_pingora() {
    let mut wrong = Vec::new();
    for source in
        read_source_files().iter().filter(|source| FOLDERS_WITHOUT_HTTP.contains(&source.folder()))
    {
        for path in &source.paths.all {
            if path.split("::").any(|part| part == "http" || part.starts_with("pingora")) {
                wrong.push(format!("src/{}.rs uses {path}", source.module));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}: translate to and from HTTP in src/message or src/gate.");
}

#[test]
fn model_and_exchange_use_no_io_clock_async_log_or_threads() {
    let mut wrong = Vec::new();
    let sources = read_source_files();
    for source in sources.iter().filter(|source| FOLDERS_WITHOUT_IO.contains(&source.folder())) {
        let paths = PATHS_OF_IO.into_iter().filter(|path| source.paths.contain(path));
        for code in paths.chain(source.text.contains("async ").then_some("async")) {
            wrong.push(format!("src/{}.rs uses {code}", source.module));
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: {FOLDERS_WITHOUT_IO:?} have no I/O, no clock, no log and no threads. Let the \
         caller do this, and pass the value in."
    );
}

#[test]
fn the_mutation_tests_name_files_that_exist() {
    let settings = fs::read_to_string(project_root().join(".cargo/mutants.toml")).unwrap();
    let settings: toml::Table = settings.parse().unwrap();
    let globs = settings["examine_globs"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    let missing: Vec<&str> = globs
        .filter(|glob| !project_root().join(glob.split('*').next().unwrap()).exists())
        .collect();
    assert!(missing.is_empty(), ".cargo/mutants.toml: no file matches {missing:?}");
}

#[test]
fn functions_and_comments_keep_their_limits() {
    let mut wrong = Vec::new();
    for path in find_rust_files("src").into_iter().chain(find_rust_files("tests")) {
        let name = path.strip_prefix(project_root()).unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (at, length) in function_lengths(&lines) {
            if length > MAX_FUNCTION_LINES {
                wrong.push(format!("{name}:{} begins a function of {length} lines", at + 1));
            }
        }
        for (number, line) in (1..).zip(&lines) {
            let columns = line.chars().count();
            if line.trim_start().starts_with("//") && columns > MAX_COMMENT_COLUMNS {
                wrong.push(format!("{name}:{number} has a comment of {columns} columns"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: a function has at most {MAX_FUNCTION_LINES} lines, and a comment ends at \
         column {MAX_COMMENT_COLUMNS} at the latest. Move one concern into a function of its own."
    );
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let imports = Imports::from_sources(&read_source_files());
    let circle = imports.find_circle();
    assert!(
        circle.is_empty(),
        "{circle:#?}: each of these files of src/ imports the next, and the last imports the \
         first. Move what two of them need into a file that imports neither. A file whose children \
         import from it only declares and re-exports them."
    );
}

#[test]
fn find_circle_finds_a_circle_of_three_files() {
    let imports = [("main", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("d", "b")];
    let one = |(module, imported): (&str, &str)| {
        (module.to_owned(), BTreeSet::from([imported.to_owned()]))
    };
    let imports = Imports { by_module: imports.into_iter().map(one).collect() };
    assert_eq!(imports.find_circle(), ["a", "b", "c"]);
}

fn layer_index(folder: &str) -> usize {
    FOLDERS.iter().position(|name| *name == folder).unwrap_or_else(|| {
        panic!("src/{folder} has no layer: give it its place in FOLDERS of tests/project/layers.rs")
    })
}
