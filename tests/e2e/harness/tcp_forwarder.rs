//! A fixed address for gateways that leads to one Redis server now, and to another later.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::redis_server::RedisServer;

/// Forwards connections to a server that a test can switch.
pub struct TcpForwarder {
    address: SocketAddr,
    target: Arc<Mutex<u16>>,
    open_streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl TcpForwarder {
    pub fn start_to(server: &RedisServer) -> TcpForwarder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(server.port()));
        let open_streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let forwarder =
            TcpForwarder { address, target: target.clone(), open_streams: open_streams.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let port = *target.lock().unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                    open_streams.lock().unwrap().push(stream.try_clone().unwrap());
                }
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || copy_until_end(from, to));
                std::thread::spawn(move || copy_until_end(server, client));
            }
        });
        forwarder
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Closes every connection; new connections go to the other server.
    pub fn switch_to(&self, server: &RedisServer) {
        *self.target.lock().unwrap() = server.port();
        for stream in self.open_streams.lock().unwrap().drain(..) {
            // The connection may already have ended.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn copy_until_end(mut from: TcpStream, mut to: TcpStream) {
    // Both sides must see the end, whatever its cause.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}
