//! A raw HTTP/1.1 client: it sends the exact bytes of a test, and parses responses strictly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};

use serde_json::Value;

use super::TEST_TIMEOUT;

/// One response, as received.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the whole body arrived, by its length or its last chunk.
    pub is_complete: bool,
}

impl Response {
    /// The value of a header that occurs once. Names match in any case.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.header_values(name);
        assert!(found.len() < 2, "{name} stands there twice: {found:?}");
        found.first().copied()
    }

    pub fn header_values(&self, name: &str) -> Vec<&str> {
        let matches = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        matches.map(|(_, value)| value.as_str()).collect()
    }

    pub fn has_header(&self, name: &str) -> bool {
        !self.header_values(name).is_empty()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a body in UTF-8")
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Response {
        assert_eq!(self.status, status, "{:?} {}", self.headers, self.text());
        self
    }

    /// The parameter `r` of the RateLimit header.
    #[track_caller]
    pub fn rate_limit_remaining(&self) -> u64 {
        let value = self.header("RateLimit").expect("a RateLimit header");
        let rest = value.strip_prefix("\"monthly\";r=").expect(value);
        rest.split(';').next().unwrap().parse().expect(value)
    }
}

/// A request to be serialized.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    target: Vec<u8>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

pub fn request(method: &str, target: impl AsRef<[u8]>) -> Request {
    Request {
        method: method.to_owned(),
        target: target.as_ref().to_vec(),
        headers: vec![("Host".to_owned(), "gate.test".to_owned())],
        body: Vec::new(),
    }
}

pub fn get(target: impl AsRef<[u8]>) -> Request {
    request("GET", target)
}

impl Request {
    pub fn key(self, key: &str) -> Request {
        self.with_header("Authorization", &format!("Bearer {key}"))
    }

    pub fn with_header(mut self, name: &str, value: &str) -> Request {
        if name.eq_ignore_ascii_case("host") {
            self.headers.clear();
        }
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(self, body: &str) -> Request {
        self.body_bytes(body.as_bytes())
    }

    pub fn body_bytes(mut self, body: &[u8]) -> Request {
        self.body = body.to_vec();
        self.with_header("Content-Length", &body.len().to_string())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = format!("{} ", self.method).into_bytes();
        out.extend_from_slice(&self.target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in &self.headers {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }

    /// Sends the request on a new connection and returns the response.
    #[track_caller]
    pub fn send(&self, address: SocketAddr) -> Response {
        Connection::open(address).send_request(self)
    }
}

/// The transport of a connection.
pub trait Stream: Read + Write + Send {
    /// Closes the sending side.
    fn shutdown_write(&mut self);
}

impl Stream for TcpStream {
    fn shutdown_write(&mut self) {
        // The peer may already have reset the connection.
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// Opens a TCP connection from this local address.
#[track_caller]
pub fn stream_from(client: IpAddr, address: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(client, 0))?;
        socket.connect(address).await?.into_std()
    });
    let stream = stream.expect("a connection");
    stream.set_nonblocking(false).unwrap();
    stream
}

/// A kept connection.
pub struct Connection {
    reader: BufReader<Box<dyn Stream>>,
}

impl Connection {
    #[track_caller]
    pub fn open(address: SocketAddr) -> Connection {
        Connection::try_open(address).expect("a connection")
    }

    /// As [`Connection::open`], for an address on which nothing may listen any more.
    pub fn try_open(address: SocketAddr) -> Option<Connection> {
        let stream = TcpStream::connect(address).ok()?;
        Some(Connection::from_tcp(stream))
    }

    /// Opens a connection from this local address, by which the gateway can tell clients apart.
    #[track_caller]
    pub fn open_from(client: IpAddr, address: SocketAddr) -> Connection {
        Connection::from_tcp(stream_from(client, address))
    }

    /// Uses a stream that is already open.
    pub fn from_tcp(stream: TcpStream) -> Connection {
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection::from_stream(Box::new(stream))
    }

    /// Uses any stream; the caller has set its time-outs.
    pub fn from_stream(stream: Box<dyn Stream>) -> Connection {
        Connection { reader: BufReader::new(stream) }
    }

    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("bytes that are taken");
    }

    /// Returns false if the bytes could not be sent.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.reader.get_mut().write_all(bytes).is_ok()
    }

    /// Waits for the first byte of the next response.
    #[track_caller]
    pub fn wait_for_bytes(&mut self) {
        assert!(!self.reader.fill_buf().expect("bytes").is_empty(), "the end");
    }

    /// Closes the sending side.
    pub fn shutdown_write(&mut self) {
        self.reader.get_mut().shutdown_write();
    }

    #[track_caller]
    pub fn send_request(&mut self, request: &Request) -> Response {
        self.send(&request.to_bytes());
        self.read_response_to(&request.method).expect("an answer, but the connection was closed")
    }

    /// As [`Connection::send_request`]; None if the gateway has closed the connection.
    pub fn try_send_request(&mut self, request: &Request) -> Option<Response> {
        self.reader.get_mut().write_all(&request.to_bytes()).ok()?;
        self.read_response_to(&request.method)
    }

    /// The next response to a GET; None if the connection closed before the response began.
    pub fn read_response(&mut self) -> Option<Response> {
        self.read_response_to("GET")
    }

    /// The next final response to this method; skips `100 Continue`.
    pub fn read_response_to(&mut self, method: &str) -> Option<Response> {
        loop {
            let (status, headers) = self.read_response_head()?;
            if status == 100 {
                continue;
            }
            let (body, complete) = match method == "HEAD" || status == 204 || status == 304 {
                true => (Vec::new(), true),
                false => self.read_body(&headers),
            };
            return Some(Response { status, headers, body, is_complete: complete });
        }
    }

    fn read_line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok()?;
        Some(line.strip_suffix("\r\n")?.to_owned())
    }

    fn read_response_head(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let first = self.read_line()?;
        let status = first.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("{first:?}"));
        let status = status[..3].parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Some((status, headers));
            }
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line:?}"));
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn read_body(&mut self, headers: &[(String, String)]) -> (Vec<u8>, bool) {
        let find = |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut body = Vec::new();
        if let Some((_, length)) = find("content-length") {
            let length: u64 = length.parse().unwrap();
            // An error ends the body too: the number of received bytes decides.
            let _ = self.reader.by_ref().take(length).read_to_end(&mut body);
            let complete = body.len() as u64 == length;
            return (body, complete);
        }
        if find("transfer-encoding").is_none() {
            let _ = self.reader.read_to_end(&mut body);
            return (body, false);
        }
        loop {
            let Some(size) = self.read_line().and_then(|l| usize::from_str_radix(&l, 16).ok())
            else {
                return (body, false);
            };
            let mut chunk = vec![0; size + 2];
            if self.reader.read_exact(&mut chunk).is_err() {
                return (body, false);
            }
            if size == 0 {
                return (body, true);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// All bytes until the peer closes.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset ends the connection too: the received bytes count.
        let _ = self.reader.read_to_end(&mut bytes);
        bytes
    }

    /// Returns true if the peer closes without sending another byte.
    pub fn ends_without_more_bytes(&mut self) -> bool {
        let mut byte = [0];
        match self.reader.read(&mut byte) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
