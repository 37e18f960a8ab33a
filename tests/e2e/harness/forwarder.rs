//! The address under which gateways know a server, whichever server it is at the moment.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::redis_server::RedisServer;

/// Carries connections to a server, and to another one later.
pub struct Forwarder {
    address: SocketAddr,
    target: Arc<Mutex<u16>>,
    carried: Arc<Mutex<Vec<TcpStream>>>,
}

impl Forwarder {
    pub fn to(server: &RedisServer) -> Forwarder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(server.port()));
        let carried = Arc::<Mutex<Vec<TcpStream>>>::default();
        let forwarder = Forwarder { address, target: target.clone(), carried: carried.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let port = *target.lock().unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                    carried.lock().unwrap().push(stream.try_clone().unwrap());
                }
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || carry(from, to));
                std::thread::spawn(move || carry(server, client));
            }
        });
        forwarder
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Ends every connection; new ones lead to another server.
    pub fn lead_to(&self, server: &RedisServer) {
        *self.target.lock().unwrap() = server.port();
        for stream in self.carried.lock().unwrap().drain(..) {
            // Ended by itself is as good.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    // However it ends, both sides are to hear of it.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}
