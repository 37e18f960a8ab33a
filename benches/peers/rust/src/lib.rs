//! Reads the workload file of scripts/bench: one request per line, with its right response body.
//!
//! Owns the format of that file.

use std::path::Path;

/// One request and the body that is right for it.
pub struct ExpectedExchange {
    /// The target.
    pub target: String,
    /// The key.
    pub key: String,
    /// The browser's origin; empty for a server.
    pub origin: String,
    /// The right body.
    pub expected_body: String,
}

impl ExpectedExchange {
    /// The request as bytes.
    pub fn to_request_bytes(&self) -> Vec<u8> {
        self.to_bytes_with("")
    }

    /// The same request as the last one of its connection.
    pub fn to_last_request_bytes(&self) -> Vec<u8> {
        self.to_bytes_with("Connection: close\r\n")
    }

    fn to_bytes_with(&self, more_fields: &str) -> Vec<u8> {
        let mut text = format!(
            "GET {} HTTP/1.1\r\nHost: gate.test\r\nAuthorization: Bearer {}\r\n{more_fields}",
            self.target, self.key
        );
        if !self.origin.is_empty() {
            text += &format!("Origin: {}\r\n", self.origin);
        }
        text += "\r\n";
        text.into_bytes()
    }
}

/// Reads a workload: path, key, origin and body, separated by tabs.
pub fn read_workload(path: &Path) -> Vec<ExpectedExchange> {
    let text = std::fs::read_to_string(path).expect("a file of requests");
    let exchanges: Vec<ExpectedExchange> = text
        .lines()
        .map(|line| {
            let mut parts = line.split('\t').map(str::to_owned);
            let mut part = || parts.next().expect("four parts in a line of the workload");
            ExpectedExchange { target: part(), key: part(), origin: part(), expected_body: part() }
        })
        .collect();
    assert!(!exchanges.is_empty(), "expected requests in the workload, but found none");
    exchanges
}
