//! Tests the layers of `src/`: what each folder may import, and which modules may use a crate, a
//! clock, the environment or unsafe code. The text of a failure says what to change.

#[path = "layers/imports.rs"]
mod imports;
#[path = "layers/lengths.rs"]
mod lengths;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use imports::Imports;
use lengths::function_lengths;

/// The folders of `src/` in the order of their layers: each folder imports only from folders
/// before it.
const FOLDERS: [&str; 17] = [
    "model",
    "support",
    "store",
    "quota",
    "keys",
    "table",
    "feed",
    "dns",
    "observe",
    "message",
    "gate",
    "proxy",
    "downstream",
    "config",
    "process",
    "cli",
    "main",
];

/// Folders before `message`. They must use neither HTTP types nor Pingora.
const FOLDERS_WITHOUT_HTTP: [&str; 9] =
    ["model", "support", "store", "quota", "keys", "table", "feed", "dns", "observe"];

/// Crates, each with the only folders or modules that may use it.
const CRATES: [(&str, &[&str]); 33] = [
    ("arc_swap", &["support/snapshot"]),
    ("arrayvec", &["message"]),
    ("clap", &["cli"]),
    ("crc32fast", &["keys/token"]),
    ("h2", &["downstream/http2"]),
    ("hex", &["store/redis", "keys/key_file", "feed/fetch", "message/request_id"]),
    ("hickory_resolver", &["dns/client"]),
    ("idna", &["model/domain"]),
    ("ipnet", &["model/network"]),
    ("itoa", &["message/response", "proxy/upstream", "observe/access_log"]),
    ("jiff", &["model/month", "keys/key_file", "cli/keys"]),
    ("memchr", &["message/request_head"]),
    ("minisign_verify", &["feed/fetch"]),
    ("pingora", &["message", "gate", "proxy", "downstream", "process"]),
    ("pingora::lb", &["proxy/upstream"]),
    ("pingora_proxy", &["message", "gate", "proxy", "downstream", "process"]),
    ("ppp", &["downstream/preamble"]),
    ("prometheus", &["observe/metrics"]),
    ("psl", &["model/domain"]),
    ("redis", &["store"]),
    ("rusqlite", &["store"]),
    ("rustix", &["quota", "process"]),
    ("rustls", &["store/redis", "support/certificates"]),
    ("sd_notify", &["process/systemd"]),
    ("sha2", &["feed/fetch", "keys/token"]),
    ("smol_str", &["model", "message", "gate"]),
    ("socket2", &["support/socket_reset", "proxy/upstream", "process/listener"]),
    ("strsim", &["table/unlisted_rules"]),
    ("tikv_jemallocator", &["main"]),
    ("toml", &["keys", "table", "config"]),
    ("ureq", &["feed/fetch"]),
    ("x509_parser", &["support/certificates"]),
    ("xxhash_rust", &["table"]),
];

/// Texts in code that read the environment, read a clock or allow unsafe code, each with the only
/// modules that may contain the text.
const RESTRICTED_CODE: [(&str, &[&str]); 3] = [
    ("std::env::", &["config", "cli", "support/test_fault"]),
    ("SystemTime::now", &["quota", "gate/request_context", "downstream/http1"]),
    // Clippy requires a safety comment above each unsafe block.
    ("unsafe_code", &["support/socket_reset", "main"]),
];

const MAX_FILE_LINES: usize = 400;
const MAX_FUNCTION_LINES: usize = 70;

/// One file of `src/` without its tests and comments.
struct SourceFile {
    /// Its path below `src/` without `.rs`: `gate/route/upstream_route`.
    module: String,
    text: String,
}

impl SourceFile {
    fn folder(&self) -> &str {
        self.module.split('/').next().unwrap()
    }

    /// Returns true if this module is one of `modules`, or lies below one of them.
    fn is_within_modules(&self, modules: &[&str]) -> bool {
        modules.iter().any(|module| {
            self.module
                .strip_prefix(module)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The folders whose names follow `crate::` or `riskgate::`.
    fn imported_folders(&self) -> BTreeSet<&str> {
        let paths =
            ["crate::", "riskgate::"].into_iter().flat_map(|root| self.text.split(root).skip(1));
        let names = paths.map(|path| {
            let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
            &path[..end]
        });
        names.filter(|name| FOLDERS.contains(name)).collect()
    }
}

#[test]
fn a_folder_imports_only_from_folders_before_it() {
    let mut wrong = Vec::new();
    for source in read_source_files() {
        for imported in source.imported_folders() {
            if layer_index(imported) > layer_index(source.folder()) {
                wrong.push(format!("src/{}.rs imports {imported}", source.module));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: move what both folders need into a folder before both, or let the caller pass \
         it in. FOLDERS in tests/layers.rs has the order."
    );
}

#[test]
fn crates_are_used_only_where_they_are_allowed() {
    let mut wrong = Vec::new();
    for source in read_source_files() {
        for (name, modules) in CRATES {
            let is_used = source.text.match_indices(&format!("{name}::")).any(|(at, _)| {
                !source.text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
            });
            if is_used && !source.is_within_modules(modules) {
                wrong.push(format!("src/{}.rs uses {name}, allowed in {modules:?}", source.module));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: call the module that wraps the crate, or add your module to CRATES in \
         tests/layers.rs."
    );
}

#[test]
fn clocks_the_environment_and_unsafe_code_are_used_only_where_allowed() {
    let mut wrong = Vec::new();
    for source in read_source_files() {
        for (code, modules) in RESTRICTED_CODE {
            if source.text.contains(code) && !source.is_within_modules(modules) {
                wrong.push(format!("src/{}.rs uses {code}, allowed in {modules:?}", source.module));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: take the time or the setting as a parameter, or add your module to \
         RESTRICTED_CODE in tests/layers.rs."
    );
}

#[test]
fn unsafe_code_is_denied_by_default() {
    let read = |name: &str| fs::read_to_string(project_root().join(name)).unwrap();
    assert!(read("src/lib.rs").contains("\n#![deny(unsafe_code)]\n"));
    assert!(read("src/main.rs").contains("\n#![forbid(unsafe_code)]\n"));
    assert!(read("Cargo.toml").contains("\nundocumented_unsafe_blocks = \"deny\"\n"));
}

#[test]
fn folders_before_message_use_neither_http_nor_pingora() {
    let mut wrong = Vec::new();
    for source in
        read_source_files().iter().filter(|source| FOLDERS_WITHOUT_HTTP.contains(&source.folder()))
    {
        for code in ["http::", "pingora"] {
            if source.text.contains(code) {
                wrong.push(format!("src/{}.rs uses {code}", source.module));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}: translate to and from HTTP in src/message or src/gate.");
}

#[test]
fn the_model_uses_no_io_clock_async_log_or_threads() {
    let mut wrong = Vec::new();
    for source in read_source_files().iter().filter(|source| source.folder() == "model") {
        for code in ["std::fs", "std::net::Tcp", "std::time", "async ", "log::", "std::thread"] {
            if source.text.contains(code) {
                wrong.push(format!("src/{}.rs uses {code}", source.module));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}: the model has no I/O, no clock, no log and no threads.");
}

#[test]
fn files_and_functions_keep_their_line_limits() {
    let mut wrong = Vec::new();
    for path in find_rust_files("src").into_iter().chain(find_rust_files("tests")) {
        let name = path.strip_prefix(project_root()).unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > MAX_FILE_LINES {
            wrong.push(format!("{name} has {} lines", lines.len()));
        }
        for (at, length) in function_lengths(&lines) {
            if length > MAX_FUNCTION_LINES {
                wrong.push(format!("{name}:{} begins a function of {length} lines", at + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}: a file has at most {MAX_FILE_LINES} lines and a function at most \
         {MAX_FUNCTION_LINES}. Move one concern into a module or a function of its own."
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
        panic!("src/{folder} has no layer: give it its place in FOLDERS of tests/layers.rs")
    })
}

fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Every file of `src/` except `lib.rs` and the tests.
fn read_source_files() -> Vec<SourceFile> {
    let src = project_root().join("src");
    let mut sources = Vec::new();
    for path in find_rust_files("src") {
        let relative = path.strip_prefix(&src).unwrap().with_extension("");
        let module = relative.to_str().unwrap().to_owned();
        let is_test = module.split('/').any(|part| part == "tests");
        if module != "lib" && !is_test {
            let text = strip_tests_and_comments(&fs::read_to_string(&path).unwrap());
            sources.push(SourceFile { module, text });
        }
    }
    assert!(sources.len() > 100, "expected the files of src/, but found {}", sources.len());
    sources
}

fn find_rust_files(folder: &str) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![project_root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                files.push(path);
            }
        }
    }
    files
}

fn strip_tests_and_comments(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}
