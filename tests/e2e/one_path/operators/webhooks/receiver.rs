//! A receiver of webhooks that verifies each message and answers as a test says.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

/// A secret of 24 bytes, as in the libraries of Standard Webhooks.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What the receiver does with a message.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// It sends this status, with these fields.
    Answer(u16, String),
    /// It reads the message and sends 200 after this time.
    AnswerLate(Duration),
    /// It reads the message and closes the connection without an answer.
    Close,
}

/// A message with a valid signature.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: String,
    pub timestamp: String,
    pub signature: String,
    pub body: String,
    pub was_accepted: bool,
}

impl Message {
    pub fn data(&self) -> Value {
        let message: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(message["type"], "quota.threshold_reached");
        assert!(message["timestamp"].is_string(), "{message}");
        message["data"].clone()
    }
}

#[derive(Default)]
struct Shared {
    /// The reactions to the next messages. After them, each message is accepted with 200.
    reactions: Mutex<VecDeque<Reaction>>,
    messages: Mutex<Vec<Message>>,
    faults: Mutex<Vec<String>>,
}

pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    pub fn start() -> Receiver {
        Receiver::listen(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// Starts a receiver at this address, at which none listened so far.
    pub fn start_at(address: SocketAddr) -> Receiver {
        Receiver::listen(TcpListener::bind(address).unwrap())
    }

    fn listen(listener: TcpListener) -> Receiver {
        let shared = Arc::new(Shared::default());
        let receiver =
            Receiver { address: listener.local_addr().unwrap(), shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://{}/hooks/s3cr3t-path?token=s3cr3t-query", self.address)
    }

    /// Reacts so to the next messages. After them, each message is accepted.
    pub fn react(&self, reactions: &[Reaction]) {
        self.shared.reactions.lock().unwrap().extend(reactions.iter().cloned());
    }

    pub fn react_with_status(&self, statuses: &[u16]) {
        let reactions = statuses.iter().map(|status| Reaction::Answer(*status, String::new()));
        self.react(&reactions.collect::<Vec<_>>());
    }

    /// All messages so far, in the order of their arrival.
    pub fn messages(&self) -> Vec<Message> {
        let faults = self.shared.faults.lock().unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        self.shared.messages.lock().unwrap().clone()
    }

    /// The accepted messages, as `account threshold of limit`, in the order of their arrival.
    pub fn accepted(&self) -> Vec<String> {
        let accepted = self.messages().into_iter().filter(|message| message.was_accepted);
        let describe = |message: Message| {
            let data = message.data();
            let account = data["account"].as_str().unwrap().to_owned();
            format!("{account} {} of {}", data["threshold_percent"], data["monthly_limit"])
        };
        accepted.map(describe).collect()
    }

    /// The number of attempts by the id of the message.
    pub fn attempts_by_id(&self) -> BTreeMap<String, usize> {
        let mut attempts = BTreeMap::new();
        for message in self.messages() {
            *attempts.entry(message.id).or_default() += 1;
        }
        attempts
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let Some((head, body)) = read_request(&mut stream) else { return };
        let field = |name: &str| {
            let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name));
            line.and_then(|line| line.split_once(": ")).unwrap_or_default().1.to_owned()
        };
        let mut message = Message {
            id: field("webhook-id:"),
            timestamp: field("webhook-timestamp:"),
            signature: field("webhook-signature:"),
            body,
            was_accepted: false,
        };
        let expected = sign(&message);
        let is_right = head.starts_with("POST /hooks/s3cr3t-path?token=s3cr3t-query HTTP/1.1\r\n")
            && field("content-type:") == "application/json"
            && message.signature.split(' ').any(|signature| signature == expected)
            && message.id.starts_with("quota_")
            && message.timestamp.parse::<i64>().is_ok_and(|it| it > 1_700_000_000);
        if !is_right {
            self.faults.lock().unwrap().push(format!("{head}{message:?}"));
        }
        let reaction = self.reactions.lock().unwrap().pop_front();
        let (status, fields) = match reaction {
            Some(Reaction::Answer(status, fields)) => (status, fields),
            Some(Reaction::AnswerLate(time)) => {
                std::thread::sleep(time);
                (200, String::new())
            }
            Some(Reaction::Close) => (0, String::new()),
            None => (200, String::new()),
        };
        message.was_accepted = (200..300).contains(&status);
        self.messages.lock().unwrap().push(message);
        if status > 0 {
            let answer = format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: 2\r\n\r\nok");
            // The gateway may have given up.
            let _ = stream.write_all(answer.as_bytes());
        }
    }
}

fn sign(message: &Message) -> String {
    let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let mut hmac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    hmac.update(format!("{}.{}.{}", message.id, message.timestamp, message.body).as_bytes());
    format!("v1,{}", STANDARD.encode(hmac.finalize().into_bytes()))
}

/// The header and the body of a request; `None` if the connection ends before.
fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut received = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        received.extend_from_slice(&part[..read]);
        let text = String::from_utf8(received.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_ascii_lowercase();
        let length = length.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
        if body.len() >= length {
            return Some((format!("{head}\r\n"), body.to_owned()));
        }
    }
}
