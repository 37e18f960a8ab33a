//! `riskgate demo`: the whole thing on loopback with nothing prepared.
//!
//! A temporary store, one fresh key, a small stand-in for the checking service, and three
//! requests to paste. Everything else is the gateway as it runs anywhere.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::output;
use super::run;
use crate::config::{Config, ConfigFile, Overrides};
use crate::keys::Token;
use crate::model::domain::{Domain, percent_decode};
use crate::model::refusal::json_string;
use crate::quota::unix_now;
use crate::store::{KeyRow, RedisOptions, Store, StoreUrl};

pub fn run() -> Result<(), Failure> {
    let folder = Folder::create()?;
    let store = folder.0.join("riskgate.db");
    let http = free_or("127.0.0.1:8080")?;
    let admin = free_or("127.0.0.1:9090")?;
    let upstream = TcpListener::bind("127.0.0.1:0")?;
    let servers = upstream.local_addr()?.to_string();
    std::thread::spawn(move || stand_in(&upstream));

    let token = Token::generate("rg_").map_err(|error| Failure::failed(error.to_string()))?;
    let key = KeyRow {
        id: "demo".to_owned(),
        account: "demo".to_owned(),
        label: Some("made by riskgate demo".to_owned()),
        digest: token.digest(),
        origins: Vec::new(),
        require_origin: false,
        created_at: unix_now(),
        expires_at: None,
        revoked_at: None,
    };
    Store::open(
        &StoreUrl::Sqlite(store.clone()),
        &RedisOptions::default(),
        Duration::from_secs(5),
    )?
    .add_keys(&[(key, Some("pro".to_owned()))])?;

    let flags = [
        ("listen.http", http.to_string()),
        ("listen.admin", admin.to_string()),
        ("upstream.servers", servers),
        ("store.url", format!("sqlite:{}", store.display())),
        ("log.access", "false".to_owned()),
        ("process.folder", String::new()),
    ];
    let flags: Vec<(String, String)> =
        flags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    // Faults are told before anything is promised.
    Config::read(&Overrides { file: ConfigFile::Nowhere, flags: flags.clone() })
        .map_err(Failure::config)?;
    std::thread::spawn(move || {
        if wait_until_ready(http) {
            greet(http, admin, &token);
        }
    });
    run::run_with(flags, Box::new(move || drop(folder)))
}

fn greet(http: SocketAddr, admin: SocketAddr, token: &Token) {
    let key = token.reveal();
    let mut greeting = format!(
        "\nriskgate demo: gateway on http://{http}, status page on http://{admin}/\n\
         Paste into another terminal; Ctrl-C here ends the demo and removes its store.\n\n"
    );
    for path in ["public/domain/yopmail.com", "public/top-domains", "check/jane%40example.org"] {
        greeting += &format!("curl -s -H 'Authorization: Bearer {key}' http://{http}/v1/{path}\n");
    }
    // Whoever pipes us away does not need the greeting.
    if let Err(error) = output::write(greeting.as_bytes()) {
        log::error!("{}", output::problem(&error));
    }
}

fn wait_until_ready(address: SocketAddr) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if TcpStream::connect(address).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// The usual address if it is free, else any port of loopback.
fn free_or(usual: &str) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind(usual).or_else(|_| TcpListener::bind("127.0.0.1:0"))?;
    Ok(listener.local_addr()?)
}

/// The store's folder; gone when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Folder, Failure> {
        let mut bytes = [0u8; 8];
        getrandom::fill(&mut bytes).map_err(|error| Failure::failed(error.to_string()))?;
        let name = format!("riskgate-demo-{:016x}", u64::from_be_bytes(bytes));
        let path = std::env::temp_dir().join(name);
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A temporary folder that stays is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Answers `/v1/check/…` as a checking service would, by the form of the address only.
fn stand_in(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            while let Some(target) = read_target(&mut reader) {
                let (status, body) = check(&target);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
                );
                let stream = reader.get_mut();
                if stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).is_err() {
                    return;
                }
            }
        });
    }
}

fn read_target(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    first.split(' ').nth(1).map(str::to_owned)
}

fn check(target: &str) -> (&'static str, String) {
    let path = target.split('?').next().unwrap_or_default();
    let segment = path.strip_prefix("/v1/check/").unwrap_or_default();
    let text =
        percent_decode(segment.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.unwrap_or_default();
    let domain = text.rsplit_once('@').map_or(text.as_str(), |(_, domain)| domain);
    match Domain::parse(domain) {
        Ok(domain) => {
            let (email, domain) = (json_string(&text), json_string(domain.as_str()));
            let body = format!(
                r#"{{"email":{email},"domain":{domain},"well_formed":true,"checked_by":"stand-in"}}"#
            );
            ("200 OK", body)
        }
        Err(error) => {
            let detail = json_string(&error.to_string());
            let message = "Invalid email or domain format.";
            let body = format!(
                r#"{{"error":"validation_error","message":"{message}","detail":{detail}}}"#
            );
            ("422 Unprocessable Content", body)
        }
    }
}
