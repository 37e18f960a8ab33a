//! The runner itself: each of its checks notices what it is there for.

use std::time::Duration;

use super::targets::FIRST;
use super::{Case, Group, Saw};
use crate::harness::{Connection, Step, answer, get, stream_from};

fn check() -> crate::harness::Request {
    get("/v1/check/a").key("{key}")
}

fn saw() -> Saw {
    Saw::line("GET /v1/check/a HTTP/1.1")
}

fn verdict(name: &str) -> Case {
    let request = get("/v1/public/domain/first.test").key("{key}");
    Case::played(name, request, |_| Vec::new()).then_verdict().body(FIRST)
}

#[test]
fn a_wrong_expectation_is_red_and_says_why() {
    let keeps = |_: &crate::harness::Seen| vec![Step::Send(answer(200, "", "{}"))];
    let kept = Case::played("reuse", check(), keeps).then_passed(saw()).body("{}");
    // What never comes is waited for here.
    let impatient = |client, address| {
        let stream = stream_from(client, address);
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        Connection::through(Box::new(stream))
    };
    let (green, red) = Group::new("runner", 13).over(impatient).judge(vec![
        verdict("right"),
        Case::answered("status", 404, check()),
        verdict("body").body("{}"),
        verdict("header").has("Vary", "Accept"),
        verdict("absence").lacks(&["Vary"]),
        verdict("an answer too many").then_verdict(),
        verdict("connection").closed(),
        Case::refused("kept", 400, get("nowhere").key("{key}")),
        verdict("upstream").saw(saw()),
        Case::passed("bytes", check(), saw().field("X-Extra: 1")),
        verdict("count").counts(2, 0),
        verdict("another's count").counts(1, 1),
        verdict("log").logs(&[(200, "ok", None)]),
        verdict("no log").logs(&[]),
        kept.clone(),
        kept.next_is_honest(),
    ]);
    assert_eq!(green, ["runner: right", "runner: reuse"]);
    let said = |name: &str| {
        let line = red.iter().find(|line| line.starts_with(&format!("runner: {name} | ")));
        line.unwrap_or_else(|| panic!("{name} is not red: {red:?}")).clone()
    };
    for (name, why) in [
        ("status", "answered 200, and not 404"),
        ("body", "said"),
        ("header", "Vary"),
        ("absence", "Vary"),
        ("an answer too many", "1 answers, and not 2"),
        ("connection", "the connection was kept"),
        ("kept", "answered 404, and not 400"),
        ("upstream", "the upstream saw 0 requests, and not 1"),
        ("bytes", "x-extra: 1"),
        ("count", "counted Some(1), and not 2"),
        ("another's count", "counted Some(0), and not 1"),
        ("log", "logged"),
        ("no log", "logged"),
        ("reuse", "the next client was served over the same connection"),
    ] {
        assert!(said(name).contains(why), "{name}: {}", said(name));
    }
}
