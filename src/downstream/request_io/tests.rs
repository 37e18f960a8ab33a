use super::*;
use std::task::Waker;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

async fn connect_client_and_server() -> (TcpStream, Box<ClientIo>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    (client, Box::new(ClientIo::from_tcp(stream, peer)))
}

#[tokio::test]
async fn bytes_after_the_body_are_left_for_the_next_request() {
    let (mut client, client_io) = connect_client_and_server().await;
    client.write_all(b"bodyGET /next").await.unwrap();
    let body = RequestBodyFraming::Length(4);
    let (mut io, mut returned) = RequestIo::new(client_io, body, false);
    // The buffer of the reader is longer than the body.
    let mut body = [0; 64];
    let read = io.read(&mut body).await.unwrap();
    assert_eq!(&body[..read], b"body");
    // A further read stays pending and reports no end: the client may have half-closed.
    let mut context = Context::from_waker(Waker::noop());
    let mut next_bytes = [0; 4];
    let polled = Pin::new(&mut io).poll_read(&mut context, &mut ReadBuf::new(&mut next_bytes));
    assert!(polled.is_pending());
    drop(io);
    let ReturnedConnection { mut client_io, has_unread_body, .. } = returned.try_recv().unwrap();
    assert!(!has_unread_body);
    client_io.read_exact(&mut next_bytes).await.unwrap();
    assert_eq!(&next_bytes, b"GET ");
}

#[tokio::test]
async fn a_chunked_body_is_read_to_its_end_and_malformed_chunks_are_an_error() {
    let chunked = "5;x=y\r\nhello\r\n2\r\n!!\r\n0\r\nTrailer: x\r\n\r\nGET /next";
    for buffer_length in [1, 3, 64] {
        let (mut client, client_io) = connect_client_and_server().await;
        client.write_all(chunked.as_bytes()).await.unwrap();
        let (mut io, mut returned) = RequestIo::new(client_io, RequestBodyFraming::Chunked, false);
        let expected = b"5\r\nhello\r\n2\r\n!!\r\n0\r\n\r\n";
        let (mut body, mut buffer) = (Vec::new(), vec![0; buffer_length]);
        while body.len() < expected.len() {
            let read = io.read(&mut buffer).await.unwrap();
            body.extend_from_slice(&buffer[..read]);
        }
        assert_eq!(body, expected);
        drop(io);
        let ReturnedConnection { client_io, has_unread_body, .. } = returned.try_recv().unwrap();
        assert!(!has_unread_body);
        assert_eq!(&client_io.read_buf[..], b"GET /next");
    }
    let (mut client, client_io) = connect_client_and_server().await;
    client.write_all(b"5 \r\nhello\r\n").await.unwrap();
    let (mut io, _returned) = RequestIo::new(client_io, RequestBodyFraming::Chunked, false);
    let error = io.read(&mut [0; 64]).await.unwrap_err();
    assert!(error.get_ref().unwrap().is::<MalformedChunks>());
}

#[tokio::test]
async fn a_read_into_a_zero_length_buffer_is_ready() {
    let mut context = Context::from_waker(Waker::noop());
    let length = RequestBodyFraming::Length;
    for body in [length(0), length(4), RequestBodyFraming::Chunked] {
        let (_client, client_io) = connect_client_and_server().await;
        let (mut io, _returned) = RequestIo::new(client_io, body, false);
        let polled = Pin::new(&mut io).poll_read(&mut context, &mut ReadBuf::new(&mut []));
        assert!(polled.is_ready(), "{body:?}");
    }
}

#[tokio::test]
async fn continue_is_sent_once_unless_a_response_started() {
    for (answers_first, expected) in
        [(false, CONTINUE_RESPONSE), (true, b"HTTP/1.1 404 Not Found\r\n")]
    {
        let (mut client, client_io) = connect_client_and_server().await;
        let body = RequestBodyFraming::Length(4);
        let (mut io, returned) = RequestIo::new(client_io, body, true);
        if answers_first {
            io.write_all(expected).await.unwrap();
            assert!(io.has_response_begun);
        }
        let reading = tokio::spawn(async move {
            let mut body = [0; 4];
            io.read_exact(&mut body).await.unwrap();
            body
        });
        let mut received = vec![0; expected.len()];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(received, expected);
        client.write_all(b"body").await.unwrap();
        assert_eq!(&reading.await.unwrap(), b"body");
        drop(returned);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "no further bytes");
    }
}

/// A client that has closed its sending side may wait for a response that has not begun.
#[tokio::test]
async fn a_100_that_pingora_writes_is_no_part_of_the_response() {
    let (mut client, client_io) = connect_client_and_server().await;
    let (mut io, returned) = RequestIo::new(client_io, RequestBodyFraming::Length(4), true);
    io.write_all(CONTINUE_RESPONSE).await.unwrap();
    assert!(!io.has_response_begun);
    client.write_all(b"body").await.unwrap();
    io.read_exact(&mut [0; 4]).await.unwrap();
    let response = b"HTTP/1.1 200 OK\r\n\r\n";
    io.write_all(response).await.unwrap();
    assert!(io.has_response_begun);
    io.write_all(b"HTTP/1.1 1").await.unwrap();
    assert!(io.has_response_begun, "a body may have any bytes");
    io.flush().await.unwrap();
    let mut received = vec![0; CONTINUE_RESPONSE.len() + response.len()];
    client.read_exact(&mut received).await.unwrap();
    assert_eq!(received, [CONTINUE_RESPONSE, response].concat(), "one 100");
    drop(returned);
}
