//! `deadline` of a route: the time to the header of the response, and for each part of its body.

use std::time::{Duration, Instant};

use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, SETTINGS, WINDOW_UPDATE, encode_frame,
    encode_request_fields,
};
use crate::harness::{
    Gateway, MockUpstream, Setup, Step, get, request, response_bytes, wait_until,
};

fn start(deadline: &str, steps: fn() -> Vec<Step>) -> (Gateway, MockUpstream) {
    let upstream = MockUpstream::with_script(move |_| steps());
    let route = format!(
        "[[upstream.route]]\nprefix = \"/app\"\nmethods = [\"GET\", \"POST\"]\nkey = false\n\
         deadline = \"{deadline}\"\n"
    );
    let setup = Setup::new().append_toml(&route).with_upstreams(&[upstream.address]);
    // Checks have a shorter time.
    (setup.set_text("upstream.deadline", "300ms").start(), upstream)
}

fn answer_after(time: Duration) -> Vec<Step> {
    vec![Step::Pause(time), Step::Send(response_bytes(200, "", "late"))]
}

/// A response whose parts arrive each 600 ms.
fn answer_in_parts() -> Vec<Step> {
    let bytes = response_bytes(200, "", "parts");
    let (header, body) = bytes.split_at(bytes.len() - 5);
    let mut steps = vec![Step::Pause(Duration::from_millis(600)), Step::Send(header.to_vec())];
    for byte in body {
        steps.extend([Step::Pause(Duration::from_millis(600)), Step::Send(vec![*byte])]);
    }
    steps
}

#[test]
fn a_server_has_the_deadline_of_its_route_to_answer() {
    let (gateway, upstream) = start("5s", || answer_after(Duration::from_millis(600)));
    assert_eq!(gateway.send_request(&get("/app")).expect(200).text(), "late");
    let post = request("POST", "/app").body("form");
    assert_eq!(gateway.send_request(&post).expect(200).text(), "late");
    let key = gateway.create_active_key("acme", &[]);
    gateway.send_request(&get("/v1/check/a@b.com").key(&key)).expect(500);
    assert_eq!(upstream.request_count(), 3);
    let (gateway, _) = start("500ms", || answer_after(Duration::from_secs(20)));
    for request in [get("/app"), request("POST", "/app").body("form")] {
        let begun = Instant::now();
        let answer = gateway.send_request(&request).expect(500);
        assert!(answer.text().contains("upstream_timeout"), "{}", answer.text());
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

#[test]
fn each_part_of_a_response_has_the_whole_deadline() {
    for deadline in ["3s", "0"] {
        let (gateway, _) = start(deadline, answer_in_parts);
        for request in [get("/app"), request("POST", "/app").body("form")] {
            let answer = gateway.send_request(&request).expect(200);
            assert!(answer.is_complete);
            assert_eq!(answer.text(), "parts");
        }
    }
    let (gateway, _) = start("300ms", || {
        let mut steps = answer_in_parts();
        steps[0] = Step::Pause(Duration::ZERO);
        steps[2] = Step::Pause(Duration::from_secs(20));
        steps
    });
    for request in [get("/app"), request("POST", "/app").body("form")] {
        let answer = gateway.send_request(&request).expect(200);
        assert!(!answer.is_complete, "the last parts never came");
    }
}

/// Waits longer than the deadline of the route, as a client that a person has paused.
fn pause_longer_than_the_deadline() {
    std::thread::sleep(Duration::from_millis(2_500));
}

#[test]
fn a_client_may_pause_a_download_for_longer_than_the_deadline() {
    // Downloads that are in the kernel's buffers, in riskgate's, and in the server's.
    let lengths: Vec<usize> = (0..12).map(|step| (1 << 20) * (1 + step)).collect();
    let upstream = MockUpstream::with_script(|request| {
        let target = request.request_line().split(' ').nth(1).unwrap().to_owned();
        let length: usize = target.rsplit('/').next().unwrap().parse().unwrap();
        let body = "x".repeat(length);
        match target.starts_with("/app/until-close/") {
            true => {
                let bytes = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
                vec![Step::Send(bytes.into_bytes()), Step::Close]
            }
            false => vec![Step::Send(response_bytes(200, "", &body))],
        }
    });
    let route = "[[upstream.route]]\nprefix = \"/app\"\nkey = false\ndeadline = \"1s\"\n";
    let gateway = Setup::new().append_toml(route).with_upstreams(&[upstream.address]).start();
    std::thread::scope(|scope| {
        let targets = ["/app", "/app/until-close"];
        let all = lengths.iter().flat_map(|length| targets.map(|prefix| (prefix, *length)));
        for (prefix, length) in all {
            let mut client = gateway.connect();
            scope.spawn(move || {
                let target = format!("{prefix}/{length}");
                client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
                client.wait_for_bytes();
                pause_longer_than_the_deadline();
                let answer = client.read_response().unwrap().expect(200);
                assert!(answer.is_complete, "{target}: the download was cut");
                assert_eq!(answer.body.len(), length, "{target}");
            });
        }
    });
}

#[test]
fn an_http2_client_may_open_its_window_after_the_deadline() {
    let upstream = MockUpstream::with_script(|_| {
        vec![Step::Send(response_bytes(200, "", &"x".repeat(100_000)))]
    });
    let route = "[[upstream.route]]\nprefix = \"/app\"\nkey = false\ndeadline = \"1s\"\n";
    let setup = Setup::new().append_toml(route).set("listen.h2c", "true");
    let gateway = setup.with_upstreams(&[upstream.address]).start();
    let mut frames = FrameClient::open(gateway.http);
    // 4 is SETTINGS_INITIAL_WINDOW_SIZE.
    assert!(frames.try_send(&encode_frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])));
    let block = encode_request_fields("GET", "/app/file", "", &[]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)));
    assert_eq!(frames.read_status(1), 200);
    pause_longer_than_the_deadline();
    for stream in [0, 1] {
        let increment = 1_000_000_u32.to_be_bytes();
        assert!(frames.try_send(&encode_frame(WINDOW_UPDATE, 0, stream, &increment)));
    }
    let (mut received, mut has_ended) = (0, false);
    while !has_ended {
        let (kind, flags, stream, payload) = frames.read_frame().expect("a frame");
        if stream == 1 {
            assert_eq!(kind, DATA, "the stream was cut after {received} bytes");
            received += payload.len();
            has_ended = flags & END_STREAM != 0;
        }
    }
    assert_eq!(received, 100_000);
}

#[test]
fn a_body_without_a_length_never_looks_complete_if_its_server_falls_silent() {
    let (gateway, _) = start("300ms", || {
        vec![Step::Send(b"HTTP/1.1 200 OK\r\n\r\nabc".to_vec()), Step::StaySilent]
    });
    let long = "b".repeat(120_000);
    let posts = [request("POST", "/app").body("form"), request("POST", "/app").body(&long)];
    for request in [get("/app")].iter().chain(&posts) {
        let answer = gateway.send_request(request).expect(200);
        let length = request.to_bytes().len();
        assert!(!answer.is_complete, "the server fell silent after a request of {length} bytes");
    }
}

#[test]
fn a_client_that_leaves_a_silent_event_stream_frees_its_place() {
    let (gateway, upstream) = start("0", || {
        let header = "Content-Type: text/event-stream\r\n";
        let bytes = response_bytes(200, header, "data: 1\n\n");
        // The rest of the body would come in an hour.
        vec![Step::Send(bytes[..bytes.len() - 2].to_vec()), Step::Pause(Duration::from_secs(3600))]
    });
    let mut client = gateway.connect();
    client.send(b"GET /app HTTP/1.1\r\nHost: a\r\n\r\nGET /app HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the stream has begun", || upstream.request_count() == 1);
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]),
        1.0,
        "the client listens"
    );
    drop(client);
    wait_until("the request has ended", || {
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]) == 0.0
    });
}

#[test]
fn the_deadline_does_not_run_while_the_client_sends() {
    let (gateway, _) = start("2s", || answer_after(Duration::from_millis(100)));
    for length in [6, 120_000] {
        let mut client = gateway.connect();
        let framing = format!("Content-Length: {length}\r\n");
        client.send(format!("POST /app HTTP/1.1\r\nHost: a\r\n{framing}\r\n").as_bytes());
        // Of the long body, riskgate passes the first half on before the pause.
        let body = vec![b'b'; length];
        let (first, second) = body.split_at(length * 3 / 4);
        client.send(first);
        std::thread::sleep(Duration::from_millis(2_500));
        client.send(second);
        assert_eq!(client.read_response().unwrap().expect(200).text(), "late", "{length}");
    }
}
