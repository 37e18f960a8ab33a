//! The lane's way through to the servers: a request that passed the gates is sent to one, and the
//! answer comes back, from bytes to bytes.
//!
//! It does what the gateway does, in the same order: a place, a server, a connection, the same words
//! in both directions, one end for all of it, a second try, a refusal. What they mean stands in the
//! rooms that both call.

use bytes::BytesMut;
use pingora_core::protocols::Ssl;
use tokio::time::{Instant, timeout_at};

use super::client_io::Wire;
use super::connection_tracker::Traffic;
use super::context::{ConnectionContext, Servers};
use super::fast_path::{Crossing, Lane};
use crate::gate::Visit;
use crate::message::forwarding::Caller;
use crate::message::response::Way;
use crate::model::refusal::Refusal;
use crate::proxy::upstream::{
    Answer, Body, Connection, Failure, Listener, Malformed, Tries, pass_header,
};

/// Room for what arrives of a header in one go, in bytes.
const HEADER: usize = 4 * 1024;
/// The same for a body.
const BODY: usize = 16 * 1024;

/// How the client's connection goes on.
pub(super) enum Fate {
    Stays,
    Closes,
    /// On the general way.
    General,
    /// It is of no use to anybody.
    Broken,
}

/// A request on its way, and what came of it so far.
struct Exchange<'e, 's> {
    servers: &'e Servers,
    lane: &'e mut Lane<&'s Servers>,
    caller: Caller<'e>,
    visit: &'e Visit,
    header: &'e [u8],
    method: &'static str,
    traffic: &'e Traffic,
    /// The client's connection closes behind the answer.
    closes: bool,
    tries: Tries,
    /// What the client is to be sent.
    out: Vec<u8>,
}

/// An answer that has begun.
struct Begun {
    answer: Answer,
    connection: Connection,
    /// What has arrived behind its header.
    arrived: BytesMut,
}

/// An answer that has begun is not passed on to its end.
struct Cut;

/// Passes a request on, and its answer back, behind the answers that stand before it.
pub(super) async fn cross(
    context: &ConnectionContext,
    servers: &Servers,
    wire: &mut Wire,
    lane: &mut Lane<&Servers>,
    crossing: Crossing,
    before: &[u8],
) -> Fate {
    let write_timeout = context.options.write_timeout;
    let header = wire.ahead.split_to(crossing.length);
    let Crossing { mut visit, method, target, closes, .. } = crossing;
    if !wire.send_bytes(before, write_timeout, None).await {
        visit.break_off();
        lane.record(&visit, method, &target);
        return Fate::Broken;
    }
    let address = wire.client_address();
    let secure = wire.get_ssl_digest().is_some();
    let end = Instant::from_std(servers.upstreams.end(visit.started()));
    let mut exchange = Exchange {
        servers,
        lane: &mut *lane,
        caller: context.gate.caller(&visit, address, secure),
        visit: &visit,
        header: &header,
        method,
        traffic: &context.traffic,
        closes,
        tries: Tries::default(),
        out: Vec::with_capacity(1024),
    };
    let place = servers.upstreams.enter(address);
    let begun = match &place {
        Some(_) => timeout_at(end, exchange.begin()).await,
        // Too many are under way.
        None => Ok(Err(exchange.tries.refusal(false))),
    };
    let begun = begun.unwrap_or_else(|_| Err(exchange.tries.refusal(true)));
    let (closes, mut out) = (exchange.closes, std::mem::take(&mut exchange.out));
    let fate = match begun {
        Ok(begun) => {
            visit.pass_back(begun.answer.status);
            match pass_body(context, servers, wire, begun, out, end).await {
                Ok(()) if closes => Fate::Closes,
                Ok(()) => Fate::Stays,
                Err(Cut) => {
                    visit.break_off();
                    Fate::Broken
                }
            }
        }
        Err(refusal) => {
            let reply = context.gate.refused(&refusal, &mut visit);
            // As on the general way it closes behind a failed exchange.
            let way = Way { closes: true, is_head: method == "HEAD" };
            out.clear();
            reply.render(&visit.common, lane.date(), way, &mut out);
            if wire.send_bytes(&out, write_timeout, None).await {
                Fate::Closes
            } else {
                Fate::Broken
            }
        }
    };
    lane.record(&visit, method, &target);
    fate
}

/// Passes back what the header left, and all that follows it.
async fn pass_body(
    context: &ConnectionContext,
    servers: &Servers,
    wire: &mut Wire,
    begun: Begun,
    mut out: Vec<u8>,
    end: Instant,
) -> Result<(), Cut> {
    let Begun { answer: Answer { mut body, stays, .. }, mut connection, mut arrived } = begun;
    loop {
        let passed = body.pass(&mut arrived, &mut out);
        if !wire.send_bytes(&out, context.options.write_timeout, Some(end)).await {
            return Err(Cut);
        }
        out.clear();
        passed.map_err(|Malformed| Cut)?;
        if body == Body::Over {
            break;
        }
        match timeout_at(end, connection.read(&mut arrived, BODY)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0)) => body.close(&mut out).map_err(|Malformed| Cut)?,
            // What was cut, by the deadline too, must not look complete.
            Ok(Err(_)) | Err(_) => return Err(Cut),
        }
    }
    if stays && arrived.is_empty() {
        servers.upstreams.keep(connection);
    }
    Ok(())
}

impl Exchange<'_, '_> {
    /// Asks a server, and another one if need be, until an answer begins; its header is in `out`.
    async fn begin(&mut self) -> Result<Begun, Refusal> {
        let upstreams = &self.servers.upstreams;
        let (Some(target), Some(_)) = (self.visit.forward(), &self.visit.permit) else {
            return Err(Refusal::Internal);
        };
        loop {
            self.tries.begin();
            let server = upstreams.server().ok_or(self.tries.refusal(false))?;
            let failure = match upstreams.connect(server, self.tries.is_second()).await {
                Ok(mut connection) => {
                    self.tries.connected();
                    let mut arrived = BytesMut::new();
                    let mut request = Vec::with_capacity(self.header.len() + 512);
                    let asked = (self.method, target);
                    upstreams.write_request(self.header, asked, server, &self.caller, &mut request);
                    match self.hear(&request, &mut connection, &mut arrived).await {
                        Ok(answer) => return Ok(Begun { answer, connection, arrived }),
                        Err(failure) => failure,
                    }
                }
                Err(_) => {
                    upstreams.eject(&server.into());
                    Failure::Unconnected
                }
            };
            // Who is late is not here any more.
            if !self.tries.may_repeat(failure, false) {
                return Err(self.tries.refusal(false));
            }
        }
    }

    /// Sends the request, and reads until there is a header.
    async fn hear(
        &mut self,
        request: &[u8],
        connection: &mut Connection,
        arrived: &mut BytesMut,
    ) -> Result<Answer, Failure> {
        let is_reused = connection.is_reused;
        let mut failure = Failure::Unanswered { is_reused, is_repeatable: true };
        connection.send(request).await.map_err(|_| failure)?;
        loop {
            match connection.read(arrived, HEADER).await {
                Ok(1..) => failure = Failure::Begun,
                Ok(0) | Err(_) => return Err(failure),
            }
            self.closes |= self.traffic.is_draining();
            let listener = Listener {
                common: &self.visit.common,
                date: self.lane.date(),
                closes: self.closes,
                is_head: self.method == "HEAD",
            };
            let passed = pass_header(arrived, &listener, &mut self.out);
            if let Some(answer) = passed.map_err(|Malformed| Failure::Begun)? {
                return Ok(answer);
            }
        }
    }
}
