//! What remains of a request that is over: a count and a line.

use std::net::IpAddr;

use pingora_error::Error;
use pingora_proxy::Session;

use crate::gate::route;
use crate::model::refusal::Refusal;
use crate::observe::access_log::Entry;

use super::judge::Gate;
use super::request_context::Visit;
use super::session::{client_address, has_answered};

impl Gate {
    /// Counts and logs a request that is over: one call in your `logging`.
    pub fn logging(&self, session: &Session, error: Option<&Error>, visit: &mut Visit) {
        let answer = session.response_written().filter(|_| has_answered(session));
        let status = answer.map_or(0, |header| header.status.as_u16());
        visit.conclude(status, if error.is_some() { "aborted" } else { "ok" });
        let header = session.req_header();
        self.record(visit, header.method.as_str(), header.raw_path(), client_address(session));
    }

    /// Counts and logs a request that the door refused before it became one.
    pub fn record_refusal(&self, refusal: &Refusal, visit: &mut Visit, client: Option<IpAddr>) {
        visit.conclude(refusal.status(), refusal.code());
        self.record(visit, "", b"", client);
    }

    /// Counts and logs a request that is over.
    pub(crate) fn record(
        &self,
        visit: &Visit,
        method: &str,
        target: &[u8],
        client: Option<IpAddr>,
    ) {
        let elapsed = visit.started().elapsed();
        let outcome = visit.outcome.unwrap_or("other");
        self.state.metrics.requests.request(visit.route, outcome, elapsed.as_secs_f64());
        if !self.state.log.is_enabled() {
            return;
        }
        let other;
        let path = match &visit.domain {
            Some(domain) => [route::DOMAIN, domain.as_str()],
            None => {
                other = route::loggable(target);
                ["", other.as_str()]
            }
        };
        self.state.log.write(&Entry {
            at_ms: visit.at_ms,
            request_id: route::loggable_id(&visit.common.request_id),
            client: client.map(|address| address.to_canonical()),
            method: route::without_key(method),
            route: visit.route.as_str(),
            path,
            status: visit.status,
            outcome,
            reason: visit.reason,
            key_id: visit.key.as_ref().map(|key| key.id.as_str()),
            account: visit.key.as_ref().map(|key| key.account.name.as_str()),
            latency_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        });
    }
}
