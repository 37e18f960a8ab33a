//! One case of the table, as data: what goes in, and the five things that must come of it.
//!
//! `{key}`, `{account}`, `{address}` and others in what is sent or expected are filled in by the
//! runner: each case has a client address, accounts and keys of its own, so that what the upstream
//! saw, what was counted and what was logged can be told apart exactly.

use std::sync::Arc;

use crate::harness::{Request, Seen, Step, answer};

type Play = dyn Fn(&Seen) -> Vec<Step> + Send + Sync;

#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub sends: Vec<u8>,
    /// What the upstream does when this case reaches it.
    pub play: Arc<Play>,
    pub answers: Vec<Expected>,
    pub ends: Ends,
    pub saw: Vec<Saw>,
    /// By how much `month_count` grew for the case's account, and for its other one.
    pub counts: [u64; 2],
    /// Status, outcome and reason of each line of the access log.
    pub logs: Vec<(u16, &'static str, Option<&'static str>)>,
    /// The client who comes next must get an answer of its own, over another connection.
    pub next: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    Kept,
    Closed,
}

/// One answer to the client.
#[derive(Clone, Default)]
pub struct Expected {
    pub status: u16,
    /// None: what riskgate itself says with this status, if it is a refusal.
    pub body: Option<String>,
    pub has: Vec<(&'static str, String)>,
    pub lacks: Vec<&'static str>,
    pub to_head: bool,
    /// The answer was cut, and must show it.
    pub cut: bool,
}

/// One request at the upstream: its bytes, but for the order of fields.
#[derive(Clone)]
pub struct Saw {
    pub line: String,
    /// Whole fields beside those that riskgate always sets; one of the same name replaces it.
    pub fields: Vec<String>,
    pub body: String,
    pub keyless: bool,
}

impl Saw {
    pub fn line(line: &str) -> Saw {
        Saw { line: line.to_owned(), fields: Vec::new(), body: String::new(), keyless: false }
    }

    pub fn field(mut self, field: &str) -> Saw {
        self.fields.push(field.to_owned());
        self
    }

    pub fn body(self, body: &str) -> Saw {
        Saw { body: body.to_owned(), ..self }.field(&format!("Content-Length: {}", body.len()))
    }

    pub fn keyless(self) -> Saw {
        Saw { keyless: true, ..self }
    }
}

/// What the upstream says to a case that plans nothing else; the connection is not kept, so that
/// every case finds the pool empty.
pub const CHECKED: &str = r#"{"checked":true}"#;

impl Case {
    fn new(name: &str, sends: impl Sends) -> Case {
        let play =
            |_: &Seen| vec![Step::Send(answer(200, "Connection: close\r\n", CHECKED)), Step::Close];
        Case {
            name: name.to_owned(),
            sends: sends.bytes(),
            play: Arc::new(play),
            answers: Vec::new(),
            ends: Ends::Kept,
            saw: Vec::new(),
            counts: [0, 0],
            logs: Vec::new(),
            next: false,
        }
    }

    /// No request: refused at the door, which closes.
    pub fn refused(name: &str, status: u16, sends: impl Sends) -> Case {
        Case { ends: Ends::Closed, ..Case::answered(name, status, sends) }
    }

    /// Answered by riskgate itself, and counted if it is a 422; the connection is kept.
    pub fn answered(name: &str, status: u16, sends: impl Sends) -> Case {
        Case::new(name, sends).then(status)
    }

    /// Passed to the upstream as this request, answered by it, and counted.
    pub fn passed(name: &str, sends: impl Sends, saw: Saw) -> Case {
        Case::new(name, sends).then_passed(saw)
    }

    /// Passed to an upstream that does this.
    pub fn played(
        name: &str,
        sends: impl Sends,
        play: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static,
    ) -> Case {
        Case { play: Arc::new(play), ..Case::new(name, sends) }
    }

    /// The next answer, of riskgate's own: to a refusal with the log line that belongs to it.
    pub fn then(mut self, status: u16) -> Case {
        self.answers.push(Expected { status, ..Expected::default() });
        self.counts[0] += u64::from(status == 422);
        self.logs.push((status, code(status), None));
        self
    }

    /// The next answer: the verdict on a listed domain, counted.
    pub fn then_verdict(mut self) -> Case {
        self.answers.push(Expected { status: 200, ..Expected::default() });
        self.counts[0] += 1;
        self.logs.push((200, "ok", Some("disposable")));
        self
    }

    /// The next answer: the upstream's, counted.
    pub fn then_passed(mut self, saw: Saw) -> Case {
        let answer =
            Expected { status: 200, body: Some(CHECKED.to_owned()), ..Expected::default() };
        self.answers.push(answer);
        self.saw.push(saw);
        self.counts[0] += 1;
        self.logs.push((200, "ok", None));
        self
    }

    pub fn closed(self) -> Case {
        Case { ends: Ends::Closed, ..self }
    }

    pub fn counts(self, own: u64, other: u64) -> Case {
        Case { counts: [own, other], ..self }
    }

    pub fn logs(self, logs: &[(u16, &'static str, Option<&'static str>)]) -> Case {
        Case { logs: logs.to_vec(), ..self }
    }

    pub fn saw(mut self, saw: Saw) -> Case {
        self.saw.push(saw);
        self
    }

    pub fn next_is_honest(self) -> Case {
        Case { next: true, ..self }
    }

    /// Of the last answer.
    pub fn has(mut self, name: &'static str, value: &str) -> Case {
        self.last().has.push((name, value.to_owned()));
        self
    }

    pub fn lacks(mut self, names: &[&'static str]) -> Case {
        self.last().lacks.extend(names);
        self
    }

    pub fn body(mut self, body: &str) -> Case {
        self.last().body = Some(body.to_owned());
        self
    }

    pub fn without_body(mut self) -> Case {
        self.last().to_head = true;
        self.last().body = None;
        self
    }

    pub fn cut(mut self) -> Case {
        self.last().cut = true;
        self
    }

    fn last(&mut self) -> &mut Expected {
        self.answers.last_mut().expect("an answer that was named before")
    }
}

/// The outcome in the log, and the code in the body, of what riskgate itself says.
pub fn code(status: u16) -> &'static str {
    match status {
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        414 => "uri_too_long",
        417 => "expectation_failed",
        422 => "validation_error",
        429 => "quota_exceeded",
        431 => "headers_too_large",
        _ => "ok",
    }
}

/// What can be sent.
pub trait Sends {
    fn bytes(self) -> Vec<u8>;
}

impl Sends for Request {
    fn bytes(self) -> Vec<u8> {
        Request::bytes(&self)
    }
}

impl Sends for &str {
    fn bytes(self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl Sends for String {
    fn bytes(self) -> Vec<u8> {
        self.into_bytes()
    }
}

impl Sends for Vec<u8> {
    fn bytes(self) -> Vec<u8> {
        self
    }
}
