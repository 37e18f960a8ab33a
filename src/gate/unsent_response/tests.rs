use std::future::Future;
use std::task::{Context, Waker};

use super::*;

#[tokio::test]
async fn a_response_is_unsent_until_its_last_part_is_dropped() {
    let connection = Arc::new(UnsentBytes::default());
    let guard = Arc::new(());
    let response = UnsentResponse::begin(&connection, Arc::clone(&guard));
    response.wait_until_parts_are_dropped().await;
    let reply = response.track(Bytes::new(), ResponsePart::Reply);
    assert_eq!((connection.total(), response.bytes_to_count()), (FAST_PATH_RESPONSE_BYTES, 0));
    let body = Bytes::from(vec![b'x'; MAX_UNCOUNTED_BYTES]);
    let mut rest = response.track(body.clone(), ResponsePart::ForwardedRest);
    assert_eq!(response.bytes_to_count(), FAST_PATH_RESPONSE_BYTES + MAX_UNCOUNTED_BYTES);
    assert_eq!(connection.reply_bytes_to_count(), 0);
    assert_eq!((&reply[..], &rest[..]), (&b""[..], &body[..]));
    drop(reply);
    // The h2 crate divides a part that exceeds a frame or a window.
    drop(rest.split_to(2));
    assert_eq!((connection.total(), response.bytes_to_count()), (MAX_UNCOUNTED_BYTES, 0));
    let waiting = {
        let response = Arc::clone(&response);
        tokio::spawn(async move { response.wait_until_parts_are_dropped().await })
    };
    tokio::task::yield_now().await;
    drop(response);
    assert_eq!(Arc::strong_count(&guard), 2);
    drop(rest);
    waiting.await.unwrap();
    assert_eq!((connection.total(), Arc::strong_count(&guard)), (0, 1));
}

#[tokio::test]
async fn a_header_alone_counts_for_the_connection_until_its_id_is_dropped() {
    let connection = Arc::new(UnsentBytes::default());
    let guard = Arc::new(());
    let response = UnsentResponse::begin(&connection, Arc::clone(&guard));
    let mut headers: Vec<ResponseHeader> =
        (0..9).map(|_| ResponseHeader::build(204, None).unwrap()).collect();
    for header in &mut headers {
        header.insert_header(X_REQUEST_ID, "an-id").unwrap();
        response.track_header_alone(header);
        assert_eq!(header.headers[X_REQUEST_ID], "an-id");
    }
    response.wait_until_parts_are_dropped().await;
    drop(response);
    assert_eq!(connection.reply_bytes_to_count(), 9 * (H2_HEADER_BYTES + "an-id".len()));
    assert_eq!(Arc::strong_count(&guard), 2);
    drop(headers);
    assert_eq!((connection.total(), Arc::strong_count(&guard)), (0, 1));
}

#[tokio::test]
async fn the_connection_learns_each_time_that_many_more_replies_wait() {
    let connection = Arc::new(UnsentBytes::default());
    let response = UnsentResponse::begin(&connection, ());
    let mut replies = Vec::new();
    let is_told = || {
        let wait = std::pin::pin!(connection.wait_for_many_replies());
        wait.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    for told_before in 0..3 {
        while connection.total() < (told_before + 1) * MANY_REPLY_BYTES {
            assert!(!is_told());
            replies.push(response.track(Bytes::new(), ResponsePart::Reply));
        }
        assert!(is_told());
    }
}

#[test]
fn many_replies_count() {
    let connection = Arc::new(UnsentBytes::default());
    let response = UnsentResponse::begin(&connection, ());
    let replies: Vec<Bytes> =
        (0..3).map(|_| response.track(Bytes::new(), ResponsePart::Reply)).collect();
    assert_eq!(connection.reply_bytes_to_count(), 3 * FAST_PATH_RESPONSE_BYTES);
    drop(replies);
    assert_eq!(connection.reply_bytes_to_count(), 0);
}
