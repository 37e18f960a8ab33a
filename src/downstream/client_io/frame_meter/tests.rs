use super::*;
use std::time::Duration;

const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const UNKNOWN: u8 = 0x10;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

fn new_budget() -> FrameBudget {
    let mut budget = FrameBudget::new(Instant::now());
    budget.count_frames_in(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    budget
}

/// Returns how many of these frames the client may send at once.
fn frames_until_exceeded(frame: &[u8]) -> usize {
    let mut budget = new_budget();
    let mut count = 0;
    while !budget.is_exceeded {
        budget.count_frames_in(frame);
        count += 1;
        assert!(count < 10_000_000, "there is no bound");
    }
    count - 1
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_frame_without_a_request_has_a_bound() {
    for kind in 1..=12 {
        assert_eq!(frames_until_exceeded(&frame(kind, 0, &[0; 8])), 1_024, "{kind}");
    }
    assert_eq!(frames_until_exceeded(&frame(DATA, 0, b"")), 1_024);
    assert_eq!(frames_until_exceeded(&frame(DATA, 0, &[0; 63])), 1_024);
    let padded = [&[255][..], &[0; 255 + 63]].concat();
    assert_eq!(frames_until_exceeded(&frame(DATA, PADDED, &padded)), 1_024, "padding is no data");
    assert_eq!(frames_until_exceeded(&frame(UNKNOWN, 0, &[0; 16_384])), 1_024 / 65);
    assert_eq!(frames_until_exceeded(&frame(DATA, 0, &[0; 1024])), 2_048, "of no request");
}

#[tokio::test(start_paused = true)]
async fn frames_are_counted_wherever_the_reads_divide_them() {
    let frames = [
        frame(PING, 0, &[0; 8]),
        frame(DATA, PADDED, &[&[2][..], &[1; 70]].concat()),
        frame(DATA, PADDED, &[0]),
        frame(DATA, PADDED, b""),
        frame(UNKNOWN, 0, &[9; 700]),
        frame(DATA, END_STREAM, b""),
    ]
    .concat();
    for length in 1..frames.len() {
        let mut budget = new_budget();
        frames.chunks(length).for_each(|part| budget.count_frames_in(part));
        assert_eq!(budget.frames_left, FRAMES_AT_ONCE - 1 - 2 - 3, "{length}");
        assert_eq!(budget.body_bytes_left, MAX_UNANNOUNCED_BYTES - 68, "{length}");
        assert!(budget.frame_header.is_empty() && budget.bytes_to_skip == 0, "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_is_open_until_its_last_frame() {
    let mut budget = new_budget();
    budget.count_frames_in(&frame(HEADERS, END_HEADERS, &[0; 50]));
    assert_eq!(budget.open_header, None);
    let begun_at = Instant::now();
    budget.count_frames_in(&frame(HEADERS, END_STREAM, &[0; 50]));
    assert_eq!(budget.open_header, Some(OpenHeader { begun_at, arrived_bytes: 50 }));
    tokio::time::advance(Duration::from_secs(1)).await;
    budget.count_frames_in(&frame(CONTINUATION, 0, &[0; 7]));
    assert_eq!(budget.open_header, Some(OpenHeader { begun_at, arrived_bytes: 57 }));
    budget.count_frames_in(&frame(CONTINUATION, END_HEADERS, &[0; 7]));
    assert_eq!(budget.open_header, None);
}

#[tokio::test(start_paused = true)]
async fn a_client_may_send_the_frames_of_each_second() {
    let mut budget = new_budget();
    for _ in 0..100 {
        (0..FRAMES_PER_SECOND).for_each(|_| budget.count_frames_in(&frame(PING, 0, &[0; 8])));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(!budget.is_exceeded);
    tokio::time::advance(Duration::from_secs(3600)).await;
    (0..=2 * FRAMES_AT_ONCE).for_each(|_| budget.count_frames_in(&frame(PING, 0, &[0; 8])));
    assert!(budget.is_exceeded, "an idle time adds no more than the frames at once");
}

#[tokio::test(start_paused = true)]
async fn a_client_may_confirm_each_256_bytes_of_a_response_twice() {
    let mut budget = new_budget();
    for _ in 0..100_000 {
        budget.count_sent(9 + 256);
        (0..2).for_each(|_| budget.count_frames_in(&frame(WINDOW_UPDATE, 0, &[0, 0, 1, 0])));
    }
    assert!(!budget.is_exceeded);
    // A client that reads late confirms at once what it received long ago.
    budget.count_sent(32 << 20);
    (0..65_536).for_each(|_| budget.count_frames_in(&frame(WINDOW_UPDATE, 0, &[0, 0, 2, 0])));
    assert!(!budget.is_exceeded);
}

#[tokio::test(start_paused = true)]
async fn no_answer_to_a_frame_earns_the_next_frame() {
    for (received, answer_bytes) in [(PING, 17), (WINDOW_UPDATE, 9 + 1)] {
        let mut budget = new_budget();
        let count = (0..10_000).take_while(|_| {
            budget.count_frames_in(&frame(received, 0, &[0; 8]));
            budget.count_sent(answer_bytes);
            !budget.is_exceeded
        });
        assert!(count.count() < 1_300);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_may_send_the_body_that_a_request_announces() {
    let mut budget = new_budget();
    for _ in 0..1_000 {
        budget.count_frames_in(&frame(HEADERS, 4, &[0; 50]));
        budget.count_request(Some(1 << 20));
        (0..64).for_each(|_| budget.count_frames_in(&frame(DATA, 0, &[0; 16_384])));
        budget.count_frames_in(&frame(DATA, END_STREAM, b""));
    }
    assert!(!budget.is_exceeded);
}
