//! The short way for plain requests: from bytes to bytes, without Pingora's proxy.
//!
//! It has no rule of its own: the header is read as at the door, the gates judge as in the filter,
//! and the reply is written by the same hand. It answers what a look into memory answers, says what
//! may cross, and leaves everything else where it lies, with nothing done about it. It knows no
//! connection.

use std::net::IpAddr;

use crate::gate::admission::OriginHeader;
use crate::gate::{Asked, Decision, Gate, Moment, Visit};
use crate::message::request_head::{Head, Sizes, read_head};
use crate::message::response::Way;
use crate::model::refusal::Refusal;

/// Bytes of answers that are gathered before they are sent.
const GATHERED: usize = 16 * 1024;

/// The lane of one connection, with a way to servers if there is one.
pub struct Lane<S> {
    gate: Gate,
    sizes: Sizes,
    client: Option<IpAddr>,
    servers: Option<S>,
    date: Date,
}

/// A request that may go on to a server: it has passed the gates.
pub struct Crossing {
    /// What is known of it.
    pub visit: Visit,
    /// Bytes of its header.
    pub length: usize,
    /// Its method.
    pub method: &'static str,
    /// Its target as it came.
    pub target: Vec<u8>,
    /// Its client wants the connection to close behind the answer.
    pub closes: bool,
}

/// What comes next on the connection.
pub enum Next<S> {
    /// More requests, of which perhaps a part is here.
    Request,
    /// Sending, before there are more answers.
    Sending,
    /// The end: the last answer says so.
    Close,
    /// One of the servers: what is left begins with a request that crosses.
    Cross(S, Box<Crossing>),
    /// The general way: what is left is not for the lane.
    HandOver,
}

impl<S: Copy> Lane<S> {
    /// A lane for this client; without servers what may go on to one is handed over.
    pub fn new(gate: Gate, sizes: Sizes, client: Option<IpAddr>, servers: Option<S>) -> Lane<S> {
        Lane { gate, sizes, client, servers, date: Date::default() }
    }

    /// What `Date` says now.
    pub fn date(&mut self) -> &[u8] {
        self.date.at(Moment::now().unix_seconds())
    }

    /// Answers the plain requests at the front of what has arrived, each in its turn. How many
    /// bytes they were, and what comes next; the answers are appended to `out`.
    pub fn answer(&mut self, arrived: &[u8], out: &mut Vec<u8>) -> (usize, Next<S>) {
        let mut done = 0;
        // What came together came now.
        let moment = Moment::now();
        while done < arrived.len() {
            let head = match read_head(&arrived[done..], 0, &self.sizes) {
                Ok(Some(head)) if head.is_plain() => head,
                Ok(None) => return (done, Next::Request),
                Ok(Some(_)) | Err(_) => return (done, Next::HandOver),
            };
            let mut visit = Visit::from(moment);
            let Some(decision) = self.judge(&head, &mut visit) else {
                return (done, Next::HandOver);
            };
            let wants_end = head.fields.closes;
            let reply = match (decision, self.servers) {
                (Decision::Answer(reply), _) => reply,
                (Decision::Pass, Some(servers)) => {
                    let crossing = Box::new(Crossing::of(&head, visit, wants_end));
                    return (done, Next::Cross(servers, crossing));
                }
                (Decision::Pass, None) => {
                    self.gate.refused(&Refusal::UpstreamUnavailable, &mut visit)
                }
            };
            done += head.length;
            let closes = wants_end || reply.closes();
            let way = Way { closes, is_head: head.line.method == b"HEAD" };
            reply.render(&visit.common, self.date.at(moment.unix_seconds()), way, out);
            self.record(&visit, method(&head), head.line.target);
            if closes {
                return (done, Next::Close);
            }
            if out.len() >= GATHERED {
                return (done, Next::Sending);
            }
        }
        (done, Next::Request)
    }

    /// Counts and logs a request that is over.
    pub fn record(&self, visit: &Visit, method: &str, target: &[u8]) {
        self.gate.state().metrics.requests.lane_answers.inc();
        self.gate.record(visit, method, target, self.client);
    }

    /// What was decided; `None` if it is not for the lane, and then nothing was done.
    fn judge(&self, head: &Head<'_>, visit: &mut Visit) -> Option<Decision> {
        let fields = &head.fields;
        let sent = fields.authorization.into_iter();
        visit.common.request_id = self.gate.request_id(fields.request_id, sent);
        let asked = Asked {
            method: method(head),
            target: head.line.target,
            authorization: fields.authorization,
            origin: OriginHeader::read(fields.origin.into_iter()),
            is_preflight: false,
        };
        self.gate.judge_at_once(&asked, visit, self.servers.is_some())
    }
}

impl Crossing {
    fn of(head: &Head<'_>, visit: Visit, closes: bool) -> Crossing {
        let (method, target) = (method(head), head.line.target.to_vec());
        Crossing { visit, length: head.length, method, target, closes }
    }
}

/// The method of a plain request.
fn method(head: &Head<'_>) -> &'static str {
    if head.line.method == b"HEAD" { "HEAD" } else { "GET" }
}

/// The value of `Date`, which changes once a second.
#[derive(Default)]
struct Date {
    second: i64,
    text: Option<[u8; 29]>,
}

impl Date {
    fn at(&mut self, unix_now: i64) -> &[u8] {
        if self.text.is_none() || self.second != unix_now {
            let since = std::time::Duration::from_secs(unix_now.cast_unsigned());
            let text = httpdate::fmt_http_date(std::time::UNIX_EPOCH + since);
            self.second = unix_now;
            self.text = text.as_bytes().try_into().ok();
        }
        self.text.as_ref().map_or(b"", |text| text)
    }
}
