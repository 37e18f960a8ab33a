//! An HTTP server that serves one list, and the responses of good and bad list servers.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::wait_until;

/// A server of one list. It sends its responses one after the other, and repeats the last.
pub struct ListServer {
    pub address: SocketAddr,
    pub responses: Arc<Mutex<VecDeque<Vec<u8>>>>,
    /// The header of each request.
    pub request_headers: Arc<Mutex<Vec<String>>>,
    pub response_count: Arc<AtomicUsize>,
}

impl ListServer {
    pub fn start() -> ListServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = ListServer {
            address: listener.local_addr().unwrap(),
            responses: Arc::default(),
            request_headers: Arc::default(),
            response_count: Arc::default(),
        };
        let (answers, asked) = (Arc::clone(&server.responses), Arc::clone(&server.request_headers));
        let response_count = Arc::clone(&server.response_count);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                asked.lock().unwrap().push(read_request_header(&stream));
                let answer = {
                    let mut answers = answers.lock().unwrap();
                    match answers.len() {
                        0 => b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(),
                        1 => answers[0].clone(),
                        _ => answers.pop_front().unwrap(),
                    }
                };
                let _ = (&stream).write_all(&answer);
                response_count.fetch_add(1, Ordering::SeqCst);
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://{}/list.txt", self.address)
    }

    /// Sends this response from now on, and waits until the server has sent it.
    pub fn respond_with(&self, answer: impl AsRef<[u8]>) {
        *self.responses.lock().unwrap() = VecDeque::from([answer.as_ref().to_vec()]);
        let before = self.response_count.load(Ordering::SeqCst);
        // A fetch in progress may still get the earlier response, so two fetches must end.
        wait_until("the feed is fetched", || {
            self.response_count.load(Ordering::SeqCst) >= before + 2
        });
    }
}

fn read_request_header(stream: &TcpStream) -> String {
    let mut header = String::new();
    let mut reader = BufReader::new(stream);
    while reader.read_line(&mut header).is_ok_and(|read| read > 2) {}
    header
}

pub fn list_response(names: &[String], fields: &str) -> String {
    let body = names.join("\n");
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

pub fn response_text(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// The names of a day: each day five names go and five come.
pub fn names_of_day(day: usize) -> Vec<String> {
    (5 * day..5 * day + 60).map(|n| format!("abused-{n}-test-feed.com")).collect()
}

/// A response whose end is the end of its connection.
pub fn response_until_close(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}")
}

/// A response whose body has this `Content-Encoding`, with its length if `has_length` is true.
pub fn encoded_response(encoding: &str, body: &[u8], has_length: bool) -> Vec<u8> {
    let length =
        if has_length { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n{length}\r\n");
    [head.as_bytes(), body].concat()
}
