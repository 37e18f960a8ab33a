use super::*;
use std::cell::Cell;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::support::lock::lock;

#[tokio::test]
async fn only_an_open_connection_without_unread_bytes_is_reused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let pool = Arc::new(IdlePool::new(1, Duration::from_secs(60)));
    assert!(pool.checkout(server).is_none());
    let connect = async || {
        let connection = UpstreamConnection::open(server, 32 * 1024).await.unwrap();
        (connection, listener.accept().await.unwrap().0)
    };
    let (connection, mut other) = connect().await;
    assert!(!connection.is_reused);
    pool.put(connection);
    let mut reused = pool.checkout(server).unwrap();
    assert!(reused.is_reused && pool.checkout(server).is_none());
    pool.put(reused);
    // First bytes without a request, then the end of the connection.
    other.write_all(b"HTTP/1.1 408 Late\r\n\r\n").await.unwrap();
    wait_until_evicted(&pool, server).await;
    (reused, other) = connect().await;
    pool.put(reused);
    drop(other);
    wait_until_evicted(&pool, server).await;
}

/// A request of which the kernels of both sides take only a part.
const LONG_REQUEST_BYTES: usize = 64 << 20;

/// Sends a long request to a server that answers before it has read the request. Returns both
/// sides of the connection.
async fn get_early_answer() -> (UpstreamConnection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let mut connection = UpstreamConnection::open(server, 32 * 1024).await.unwrap();
    let (mut other, _) = listener.accept().await.unwrap();
    connection.request_buffer.resize(LONG_REQUEST_BYTES, b'r');
    other.write_all(b"early").await.unwrap();
    assert!(connection.send_request(16).await.unwrap());
    assert_eq!(&connection.arrived.split()[..], b"early");
    (connection, other)
}

#[tokio::test]
async fn a_server_that_answers_early_gets_the_rest_of_the_request() {
    let (mut connection, mut other) = get_early_answer().await;
    let reading = tokio::spawn(async move {
        let mut received = vec![0; LONG_REQUEST_BYTES / 2];
        other.read_exact(&mut received).await.unwrap();
        other.write_all(b"more").await.unwrap();
        other
    });
    assert_eq!(connection.read(16).await.unwrap(), 4);
    connection.arrived.clear();
    let (server, mut other) = (connection.server, reading.await.unwrap());
    let pool = Arc::new(IdlePool::new(1, Duration::from_secs(60)));
    pool.put(connection);
    assert!(pool.checkout(server).is_none(), "a part of the request is left");
    let mut rest = vec![0; LONG_REQUEST_BYTES - LONG_REQUEST_BYTES / 2];
    other.read_exact(&mut rest).await.unwrap();
    for _ in 0..500 {
        if pool.connection_count() > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(pool.checkout(server).unwrap().request_buffer.is_empty());
}

#[tokio::test]
async fn the_end_of_a_connection_whose_request_was_cut_ends_no_response() {
    let (mut connection, other) = get_early_answer().await;
    drop(other);
    let error = connection.read(16).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// 300 connections are more than Tokio lets a task poll before the task must yield.
#[tokio::test]
async fn many_unusable_connections_are_all_skipped() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let pool = IdlePool::new(300, Duration::from_secs(60));
    let mut others = Vec::new();
    for _ in 0..300 {
        let connection = UpstreamConnection::open(server, 32 * 1024).await.unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        other.write_all(b"HTTP/1.1 408 Late\r\n\r\n").await.unwrap();
        others.push(other);
        lock(&pool.state).by_server.entry(server).or_default().push((connection, Instant::now()));
    }
    // On the loopback interface the bytes have arrived once they are sent.
    assert!(tokio::spawn(async move { pool.checkout(server).is_none() }).await.unwrap());
}

#[tokio::test]
async fn eviction_inspects_one_batch_at_a_time_unlocked() {
    const CONNECTION_COUNT: usize = 50;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let pool = Arc::new(IdlePool::new(CONNECTION_COUNT, Duration::from_secs(60)));
    let mut others = Vec::new();
    for _ in 0..CONNECTION_COUNT {
        pool.put(UpstreamConnection::open(server, 32 * 1024).await.unwrap());
        others.push(listener.accept().await.unwrap());
    }
    let (inspected, last) = (Cell::new(0), Cell::new(None));
    pool.evict_unusable(|connection| {
        assert!(pool.state.try_lock().is_ok(), "the pool is locked during an inspection");
        inspected.set(inspected.get() + 1);
        let missing = CONNECTION_COUNT - lock(&pool.state).by_server[&server].len();
        let closed = inspected.get() / 2;
        assert!(missing <= EVICTION_BATCH_CONNECTIONS + closed, "{missing} are out of the pool");
        last.set(connection.socket().local_addr().unwrap().as_socket());
        // Every other connection has ended.
        inspected.get() % 2 == 0
    })
    .await;
    assert_eq!(inspected.get(), CONNECTION_COUNT, "each is inspected once");
    assert_eq!(lock(&pool.state).by_server[&server].len(), CONNECTION_COUNT / 2);
    // The order is unchanged: the connection that was used last comes out first.
    let first = pool.checkout(server).unwrap();
    assert_eq!(first.socket().local_addr().unwrap().as_socket(), last.get());
}

#[tokio::test(start_paused = true)]
async fn no_connection_is_kept_beyond_the_idle_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let pool = Arc::new(IdlePool::new(1, Duration::ZERO));
    pool.put(UpstreamConnection::open(server, 32 * 1024).await.unwrap());
    assert!(pool.checkout(server).is_none());
    pool.put(UpstreamConnection::open(server, 32 * 1024).await.unwrap());
    tokio::time::sleep(EVICTION_INTERVAL * 2).await;
    let state = lock(&pool.state);
    assert!(state.by_server.is_empty() && !state.is_evictor_running);
}

/// Polls until the pool has no usable connection to this server: the server's bytes or its FIN
/// arrive after a delay. Panics after 5 s.
async fn wait_until_evicted(pool: &Arc<IdlePool>, server: SocketAddr) {
    for _ in 0..500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        match pool.checkout(server) {
            Some(connection) => pool.put(connection),
            None => return,
        }
    }
    panic!("the connection is still in the pool");
}
