use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn connections_inherit_the_socket_options_of_their_listener() {
    let listener = bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
    set_socket_options("test", &listener, Duration::from_secs(7));
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let socket = SockRef::from(&accepted);
    assert!(socket.tcp_nodelay().unwrap());
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(7)));
    assert_eq!(socket.tcp_notsent_lowat().unwrap(), NOTSENT_LOWAT_BYTES);
}

struct Unasked;

#[async_trait]
impl ServerApp for Unasked {
    async fn process_new(
        self: &Arc<Self>,
        _stream: pingora::protocols::Stream,
        _shutdown: &ShutdownWatch,
    ) -> Option<pingora::protocols::Stream> {
        panic!("a connection that was to be closed");
    }
}

#[tokio::test]
async fn a_connection_that_takes_one_of_the_last_descriptors_is_closed_and_counted() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let listener = bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let socket = tokio::net::TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
    let service = ListenerService::new("test", listener, Unasked, Duration::from_secs(7));
    let mut service = service.leaving_last_descriptors(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    service.first_kept_descriptor = 0;
    let (_stop, shutdown) = tokio::sync::watch::channel(false);
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    service.accept_one(&socket, &shutdown).await;
    assert_eq!(tokio::io::AsyncReadExt::read(&mut client, &mut [0]).await.unwrap(), 0);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_service_tells_that_it_accepts_once_its_loop_starts() {
    let count = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&count);
    let listener = bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut service = ListenerService::new("test", listener, Unasked, Duration::from_secs(7));
    service.tell_accepting = Box::new(move || {
        told.fetch_add(1, Ordering::Relaxed);
    });
    let (_stop, shutdown) = tokio::sync::watch::channel(true);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    service.start_service(None, shutdown.clone(), 1).await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
    // The service has closed its socket.
    service.start_service(None, shutdown, 1).await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn budget_and_reserve_fit_within_the_limit_of_open_files() {
    for limit in [64, 256, 1_024, 4_096, 20_000] {
        let wanted = DescriptorBudget { max_connections: 20_000, max_exchanges: 1_000 };
        assert_eq!(wanted.fit_within(1 << 20), wanted);
        let shared = wanted.fit_within(limit);
        let used = shared.max_connections + 3 * shared.max_exchanges;
        assert!(shared.max_connections > 0 && shared.max_exchanges > 0, "{limit}: {shared:?}");
        assert!(limit < 256 || used as u64 + RESERVED_DESCRIPTORS <= limit, "{limit}: {shared:?}");
    }
}
