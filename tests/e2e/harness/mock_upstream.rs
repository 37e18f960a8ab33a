//! A mock of the upstream server: it records the requests it receives, and runs a script for each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One request as the upstream server received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Counts the requests on one connection from 0.
    pub index_on_connection: usize,
    /// The bytes of the request header.
    pub head: String,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    pub fn request_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub fn header_values(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let matching = fields.filter(|(n, _)| n.eq_ignore_ascii_case(name));
        matching.map(|(_, value)| value.trim()).collect()
    }

    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        let all = self.header_values(name);
        assert_eq!(all.len(), 1, "{name} stands there {} times: {}", all.len(), self.head);
        all[0]
    }
}

/// One step of the reaction to a request. The mock runs all steps, then reads the next request.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    /// Sends the bytes one by one, with this pause before each.
    Trickle(Vec<u8>, Duration),
    Pause(Duration),
    /// Sends nothing until the gateway closes the connection.
    StaySilent,
    Close,
    /// Resets the connection.
    Reset,
}

type Script = dyn Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync;

pub struct MockUpstream {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    connections: Arc<AtomicUsize>,
}

impl MockUpstream {
    /// Always answers 200 with a body.
    pub fn start() -> MockUpstream {
        MockUpstream::with_script(|_| {
            vec![Step::Send(response_bytes(200, "", r#"{"checked":true}"#))]
        })
    }

    pub fn with_script(
        script: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static,
    ) -> MockUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let upstream = MockUpstream {
            address,
            seen: Arc::clone(&seen),
            connections: Arc::clone(&connections),
        };
        let script: Arc<Script> = Arc::new(script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                std::thread::spawn(move || serve_connection(stream, &seen, &*script));
            }
        });
        upstream
    }

    /// Answers as soon as the request header has arrived, and then reads the body until the client
    /// closes. Records no request.
    pub fn answering_early(status: u16, body: &'static str) -> MockUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        if !matches!(reader.read_line(&mut line), Ok(1..)) {
                            return;
                        }
                    }
                    let answer = response_bytes(status, "Connection: close\r\n", body);
                    let _ = reader.get_mut().write_all(&answer);
                    let _ = std::io::copy(&mut reader, &mut std::io::sink());
                });
            }
        });
        MockUpstream { address, seen: Arc::default(), connections: Arc::default() }
    }

    pub fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    pub fn request_count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub fn connection_count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub fn last_request(&self) -> ReceivedRequest {
        self.received_requests().pop().expect("a request that reached the upstream")
    }
}

/// A response with a Content-Length; `headers` are whole lines, each with its CRLF.
pub fn response_bytes(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} Any\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

fn serve_connection(stream: TcpStream, seen: &Mutex<Vec<ReceivedRequest>>, script: &Script) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    for number in 0.. {
        let Some((head, body)) = read_request(&mut reader) else { return };
        let request = ReceivedRequest { index_on_connection: number, head, body };
        seen.lock().unwrap().push(request.clone());
        for step in script(&request) {
            if perform_step(&mut reader, step).is_none() {
                return;
            }
        }
    }
}

/// Returns None if the connection has ended.
fn perform_step(reader: &mut BufReader<TcpStream>, step: Step) -> Option<()> {
    match step {
        Step::Send(bytes) => reader.get_mut().write_all(&bytes).ok(),
        Step::Trickle(bytes, pause) => bytes.iter().try_for_each(|byte| {
            std::thread::sleep(pause);
            reader.get_mut().write_all(&[*byte]).ok()
        }),
        Step::Pause(time) => {
            std::thread::sleep(time);
            Some(())
        }
        Step::StaySilent => {
            let _ = reader.read_to_end(&mut Vec::new());
            None
        }
        Step::Close => None,
        Step::Reset => {
            reset_on_close(reader.get_ref());
            None
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    loop {
        let start = head.len();
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
        if &head[start..] == "\r\n" {
            break;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    if head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked\r\n") {
        assert_eq!(length, None, "two ways to frame a body: {head}");
        let body = read_chunks(reader)?;
        return Some((head, body));
    }
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Reads chunks without extensions and trailers, as riskgate sends them.
fn read_chunks(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let size = usize::from_str_radix(line.strip_suffix("\r\n").expect("CRLF"), 16);
        let mut chunk = vec![0; size.unwrap_or_else(|error| panic!("{line:?}: {error}")) + 2];
        reader.read_exact(&mut chunk).ok()?;
        assert!(chunk.ends_with(b"\r\n"));
        if chunk.len() == 2 {
            return Some(body);
        }
        body.extend_from_slice(&chunk[..chunk.len() - 2]);
    }
}

/// With a linger time of zero, closing the socket sends a reset.
fn reset_on_close(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the descriptor is open while `stream` is borrowed. The value is a complete `linger`,
    // passed with its size.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            std::ptr::from_ref(&linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}
