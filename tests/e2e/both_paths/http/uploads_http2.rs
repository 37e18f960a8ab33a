//! Over HTTP/2, a refused upload does not affect other streams. No client can hold a connection
//! open by sending frames other than requests.

use std::time::{Duration, Instant};

use crate::both_paths::http::uploads::{ROUTES, start_with_upstream_down};
use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, GOAWAY, HEADERS, RST_STREAM, encode_frame,
};
use crate::harness::{MockUpstream, Setup, wait_until};

const WINDOW_UPDATE: u8 = 8;

/// The header of an upload on this stream.
fn encode_upload_header(stream: u32, path: &str, key: &str) -> Vec<u8> {
    let fields = [("content-length", "1000000")];
    encode_frame(
        HEADERS,
        END_HEADERS,
        stream,
        &crate::harness::http2_frames::encode_request_fields("POST", path, key, &fields),
    )
}

/// The initial windows of a stream and of a connection (RFC 9113 section 6.9.2).
const INITIAL_WINDOW: usize = 65_535;

/// DATA frames with this many bytes of a body, which does not end.
fn encode_data_frames(stream: u32, length: usize) -> Vec<u8> {
    let bytes = vec![b'b'; length];
    bytes.chunks(16_384).flat_map(|part| encode_frame(DATA, 0, stream, part)).collect()
}

/// Reads frames until the stream `wanted` has ended or was reset. Returns its status (0 if no
/// header came) and the error code of the reset (None without a reset). Panics if the connection
/// is closed.
fn read_stream_outcome(frames: &mut FrameClient, wanted: u32) -> (u16, Option<u32>) {
    read_stream_outcome_and_window(frames, wanted, &mut 0)
}

/// The same, and adds up the window updates of the connection.
fn read_stream_outcome_and_window(
    frames: &mut FrameClient,
    wanted: u32,
    window: &mut usize,
) -> (u16, Option<u32>) {
    let mut status = 0;
    loop {
        let (kind, flags, stream, payload) = frames.read_frame().expect("a frame");
        assert_ne!(kind, GOAWAY, "{payload:?}");
        match kind {
            WINDOW_UPDATE if stream == 0 => {
                *window += u32::from_be_bytes(payload[..].try_into().unwrap()) as usize;
            }
            HEADERS if stream == wanted => {
                status = crate::harness::http2_frames::decode_status(&payload)
            }
            RST_STREAM if stream == wanted => {
                return (status, Some(u32::from_be_bytes(payload[..4].try_into().unwrap())));
            }
            _ => {}
        }
        if stream == wanted && flags & END_STREAM != 0 && matches!(kind, HEADERS | DATA) {
            return (status, None);
        }
    }
}

#[test]
fn over_http2_data_in_flight_after_a_refusal_affects_no_other_stream() {
    let (gateway, key) = start_with_upstream_down(Setup::new());
    let mut frames = FrameClient::open(gateway.http);
    let (mut next, mut window) = (1, INITIAL_WINDOW);
    for round in 0..40 {
        let refusals =
            [("/nowhere", 404, &*key), ("/v1/usage", 405, &key), ("/v1/signup", 401, "rg_nobody")];
        let (path, refused, with) = refusals[round % refusals.len()];
        assert!(frames.try_send(&encode_upload_header(next, path, with)));
        let refusal = read_stream_outcome_and_window(&mut frames, next, &mut window);
        assert_eq!(refusal, (refused, None), "round {round}");
        let length = window.min(INITIAL_WINDOW);
        assert!(frames.try_send(&encode_data_frames(next, length)));
        window -= length;
        let block = crate::harness::http2_frames::encode_request_fields(
            "GET",
            "/v1/public/top-domains",
            &key,
            &[],
        );
        assert!(frames.try_send(&encode_frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            next + 2,
            &block
        )));
        let answer = read_stream_outcome_and_window(&mut frames, next + 2, &mut window);
        assert_eq!(answer, (200, None), "round {round}");
        next += 4;
    }
}

#[test]
fn over_http2_many_refused_uploads_affect_no_other_stream() {
    let (gateway, key) = start_with_upstream_down(Setup::new());
    let mut frames = FrameClient::open(gateway.http);
    let streams: Vec<u32> = (0..80).map(|at| at * 2 + 1).collect();
    for stream in &streams {
        assert!(frames.try_send(&encode_upload_header(*stream, "/nowhere", &key)));
    }
    let mut answered = std::collections::BTreeMap::new();
    while answered.len() < streams.len() {
        let (kind, _, stream, payload) = frames.read_frame().expect("a frame");
        assert_ne!(kind, GOAWAY, "{payload:?}");
        if kind == HEADERS {
            answered.insert(stream, crate::harness::http2_frames::decode_status(&payload));
        }
    }
    assert!(answered.values().all(|status| *status == 404), "{answered:?}");
    // A little on each stream, until the window of the connection is used up.
    for stream in &streams {
        assert!(frames.try_send(&encode_frame(DATA, 0, *stream, &[b'b'; 800])));
    }
    let block = crate::harness::http2_frames::encode_request_fields(
        "GET",
        "/v1/public/top-domains",
        &key,
        &[],
    );
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 1_001, &block)));
    assert_eq!(read_stream_outcome(&mut frames, 1_001), (200, None));
}

#[test]
fn over_http2_a_stream_that_sends_on_after_a_refusal_is_reset_with_no_error() {
    let (gateway, key) = start_with_upstream_down(Setup::new());
    let mut frames = FrameClient::open(gateway.http);
    assert!(frames.try_send(&encode_upload_header(1, "/nowhere", &key)));
    assert_eq!(read_stream_outcome(&mut frames, 1), (404, None));
    assert!(frames.try_send(&encode_data_frames(1, INITIAL_WINDOW)));
    loop {
        let (kind, _, stream, payload) = frames.read_frame().expect("a frame");
        assert_ne!(kind, GOAWAY, "{payload:?}");
        if kind == RST_STREAM {
            assert_eq!((stream, &payload[..]), (1, &[0; 4][..]), "NO_ERROR");
            return;
        }
    }
}

#[test]
fn over_http2_the_log_has_the_status_of_an_early_whole_response() {
    let early = MockUpstream::answering_early(413, "too large for me");
    let setup = Setup::new().append_toml(ROUTES).set("listen.h2c", "true");
    let gateway = setup.with_upstreams(&[early.address]).start();
    let key = gateway.create_active_key("acme", &[]);
    let mut frames = FrameClient::open(gateway.http);
    assert!(frames.try_send(&encode_upload_header(1, "/v1/signup", &key)));
    assert!(frames.try_send(&encode_data_frames(1, 16_384)));
    assert_eq!(read_stream_outcome(&mut frames, 1), (413, None));
    // With its answer in hand, the client gives up the rest of its body: CANCEL.
    assert!(frames.try_send(&encode_frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes())));
    let find_line = || {
        let log = gateway.read_access_log();
        log.into_iter().find(|line| line["path"].as_str().is_some_and(|it| it == "/v1/signup"))
    };
    wait_until("the request is logged", || find_line().is_some());
    let line = find_line().unwrap();
    assert_eq!(
        (&line["status"], &line["outcome"]),
        (&413.into(), &"upstream_4xx".into()),
        "{line}"
    );
}

/// Frames of an unknown type, which a receiver must ignore (RFC 9113 section 4.1).
fn send_unknown_frames(frames: &mut FrameClient) -> bool {
    const UNKNOWN_FRAME_TYPE: u8 = 0xee;
    frames.try_send(&encode_frame(UNKNOWN_FRAME_TYPE, 0, 0, &[0; 16_384]))
}

#[test]
fn a_client_cannot_hold_a_connection_after_goaway() {
    let (mut gateway, key) =
        start_with_upstream_down(Setup::new().set_text("listen.header_timeout", "500ms"));
    let mut silent = FrameClient::open(gateway.http);
    let mut refused = FrameClient::open(gateway.http);
    assert!(refused.try_send(&encode_upload_header(1, "/nowhere", &key)));
    assert_eq!(read_stream_outcome(&mut refused, 1), (404, None));
    // One connection closes because no request came in time, the other because the process stops.
    let wait_for_goaway =
        |frames: &mut FrameClient| while frames.read_frame().expect("a frame").0 != GOAWAY {};
    wait_for_goaway(&mut silent);
    gateway.send_signal("TERM");
    wait_for_goaway(&mut refused);
    let begun = Instant::now();
    wait_until("riskgate closes both connections", || {
        send_unknown_frames(&mut silent);
        send_unknown_frames(&mut refused);
        gateway.exit_status().is_some()
    });
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
