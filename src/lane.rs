//! The short way for plain requests: from bytes to bytes, without Pingora's proxy.
//!
//! It has no rule of its own: the header is read as at the door, the gates judge as in the filter,
//! and the reply is written by the same hand. It answers what a look into memory answers, and
//! leaves everything else where it lies, with nothing done about it. It knows no connection.

use std::net::IpAddr;

use crate::admission::OriginHeader;
use crate::gate::{Asked, Gate, Moment, Visit};
use crate::head::{Head, Persistence, Sizes, read_head};
use crate::reply::Way;

/// Bytes of answers that are gathered before they are sent.
const GATHERED: usize = 16 * 1024;

/// The lane of one connection.
pub struct Lane {
    gate: Gate,
    sizes: Sizes,
    client: Option<IpAddr>,
    date: Date,
}

/// What comes next on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More requests, of which perhaps a part is here.
    Request,
    /// Sending, before there are more answers.
    Sending,
    /// The end: the last answer says so.
    Close,
    /// The general way: what is left is not for the lane.
    HandOver,
}

impl Lane {
    /// A lane for this client.
    pub fn new(gate: Gate, sizes: Sizes, client: Option<IpAddr>) -> Lane {
        Lane { gate, sizes, client, date: Date::default() }
    }

    /// Answers the plain requests at the front of what has arrived, each in its turn. How many
    /// bytes they were, and what comes next; the answers are appended to `out`.
    pub fn answer(&mut self, arrived: &[u8], out: &mut Vec<u8>) -> (usize, Next) {
        let mut done = 0;
        // What came together came now.
        let moment = Moment::now();
        while done < arrived.len() {
            let head = match read_head(&arrived[done..], 0, &self.sizes) {
                Ok(Some(head)) if head.is_plain() => head,
                Ok(None) => return (done, Next::Request),
                Ok(Some(_)) | Err(_) => return (done, Next::HandOver),
            };
            let Some(closes) = self.answer_one(&head, moment, out) else {
                return (done, Next::HandOver);
            };
            done += head.length;
            if closes {
                return (done, Next::Close);
            }
            if out.len() >= GATHERED {
                return (done, Next::Sending);
            }
        }
        (done, Next::Request)
    }

    /// Whether the connection closes behind the answer; `None` if it is not for the lane.
    fn answer_one(&mut self, head: &Head<'_>, moment: Moment, out: &mut Vec<u8>) -> Option<bool> {
        let (method, fields) = (std::str::from_utf8(head.line.method).ok()?, &head.fields);
        let mut visit = Visit::from(moment);
        let sent = fields.authorization.into_iter();
        visit.common.request_id = self.gate.request_id(fields.request_id, sent);
        let asked = Asked {
            method,
            target: head.line.target,
            authorization: fields.authorization,
            origin: OriginHeader::read(fields.origin.into_iter()),
            is_preflight: false,
        };
        let reply = self.gate.answer_at_once(&asked, &mut visit)?;
        let closes = fields.persistence == Persistence::Closes || reply.closes();
        let way = Way { closes, is_head: method == "HEAD" };
        reply.render(&visit.common, self.date.at(visit.unix_now()), way, out);
        self.gate.state().metrics.lane_answers.inc();
        self.gate.record(&visit, method, head.line.target, self.client);
        Some(closes)
    }
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
