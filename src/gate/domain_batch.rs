//! `POST /v1/public/domains`: the verdicts on many domains, in one request.
//!
//! Each name is one call. All names are charged before the first is looked up, or none is.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use pingora::Result;
use pingora_proxy::Session;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::exchange::BodyFault;
use crate::message::response::Reply;
use crate::model::domain::Domain;
use crate::model::refusal::Refusal;
use crate::table::Table;

use super::answers::look_up_and_count;
use super::request_context::RequestContext;
use super::route::is_domain_batch_path;
use super::session::send_continue_if_awaited;
use super::state::Gate;

/// The most names in one request.
const MAX_NAMES: usize = 1_000;
/// The longest body, in bytes: 1,000 of the longest names.
const MAX_BODY_BYTES: usize = 256 * 1024;
/// The time for which riskgate waits for the whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainBatch {
    domains: Vec<String>,
}

impl Gate {
    /// Returns true if the request asks for the verdicts on many domains.
    pub(super) fn is_domain_batch(&self, session: &Session) -> bool {
        let header = session.req_header();
        header.method == Method::POST && is_domain_batch_path(header.raw_path())
    }

    /// Answers the request. The gates for key, origin and `max_per_client` come before the body,
    /// and the quota after it. Always returns true.
    ///
    /// # Errors
    /// Returns an error if the client has left, or can't be written to.
    pub(super) async fn answer_domain_batch(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        let request = self.read_parts(session.req_header());
        let admitted = self
            .match_route_and_pass_gates(&request, ctx)
            .and_then(|_| self.state.batch_permits.acquire(ctx.client_address));
        let answered = match &admitted {
            Err(refusal) => Err(refusal.clone()),
            Ok(_permit) => match self.read_batch_body(session).await? {
                Err(refusal) => Err(refusal),
                Ok(body) => self.charge_and_look_up(&body, ctx).await,
            },
        };
        let reply = match answered {
            Ok(reply) => {
                ctx.set_outcome_if_unset(reply.status(), "ok");
                reply
            }
            Err(refusal) => self.finish_with_refusal(&refusal, ctx),
        };
        ctx.send_reply(&reply, session).await?;
        Ok(true)
    }

    /// Reads the whole body, as far as the limits of size and time allow.
    async fn read_batch_body(&self, session: &mut Session) -> Result<Result<Vec<u8>, Refusal>> {
        send_continue_if_awaited(session).await?;
        let client = session.as_downstream_mut();
        let read_to_end = async {
            let mut body = Vec::new();
            while let Some(bytes) = client.read_request_body().await? {
                if body.len() + bytes.len() > MAX_BODY_BYTES {
                    let expected = format!("expected at most {MAX_BODY_BYTES} bytes");
                    return Ok(Err(Refusal::InvalidBatch(expected)));
                }
                body.extend_from_slice(&bytes);
            }
            Ok(Ok(body))
        };
        let read: std::result::Result<Result<_>, _> = timeout(BODY_TIMEOUT, read_to_end).await;
        match read {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(error)) => match BodyFault::find_in(&error) {
                Some(fault) => Ok(Err(fault.refusal())),
                None => Err(error.into_down()),
            },
            Err(_) => Ok(Err(Refusal::RequestTimeout)),
        }
    }

    async fn charge_and_look_up(
        &self,
        body: &[u8],
        ctx: &mut RequestContext,
    ) -> Result<Reply, Refusal> {
        let names = parse_names(body).map_err(Refusal::InvalidBatch)?;
        self.charge(names.len() as u64, ctx).await?;
        let table = self.state.table.snapshot();
        let mut out = format!(r#"{{"table_version":{},"results":["#, json!(table.version()));
        for (index, name) in names.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            self.append_result(name, &table, ctx, &mut out);
        }
        out.push_str("]}");
        Ok(Reply::json(Bytes::from(out)))
    }

    /// Appends the verdict on a name, or why there is none.
    fn append_result(&self, name: &str, table: &Table, ctx: &RequestContext, out: &mut String) {
        let domain = match Domain::parse(name) {
            Ok(domain) => domain,
            Err(error) => {
                out.push_str(&Refusal::InvalidDomain(error).body());
                return;
            }
        };
        let lookup = look_up_and_count(&self.state, table, &domain, ctx);
        let tail = lookup.json_tail();
        // The body of a single verdict, without the brace at its end.
        let tail = tail.strip_suffix('}').unwrap_or(&tail);
        let matched = lookup.matched_name_offset.map(|start| &domain.as_str()[start..]);
        let facts = json!([
            lookup.verdict_source().as_str(),
            matched.filter(|row| row.len() < domain.as_str().len()),
            lookup.suggest_provider(&domain),
        ]);
        // Writing to a string can't fail.
        let _ = write!(
            out,
            r#"{{"domain":"{domain}{tail},"verdict_source":{},"matched_domain":{},"did_you_mean":{}}}"#,
            facts[0], facts[1], facts[2],
        );
    }
}

/// Returns the names in a body. The error says what was expected and what was found.
fn parse_names(body: &[u8]) -> Result<Vec<String>, String> {
    let expected = r#"expected {"domains": [...]} with 1 to 1,000 texts"#;
    let batch: DomainBatch =
        serde_json::from_slice(body).map_err(|error| format!("{expected}, but found {error}"))?;
    match batch.domains.len() {
        1..=MAX_NAMES => Ok(batch.domains),
        count => Err(format!("{expected}, but found {count}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_list_of_one_to_1000_names() {
        let list = |count: usize| format!(r#"{{"domains":{}}}"#, json!(vec!["a.com"; count]));
        for count in [1, 1_000] {
            assert_eq!(parse_names(list(count).as_bytes()).unwrap().len(), count);
        }
        for body in [
            list(0),
            list(1_001),
            String::new(),
            "[]".to_owned(),
            r#"["a.com"]"#.to_owned(),
            r#"{"domains":"a.com"}"#.to_owned(),
            r#"{"domains":[1]}"#.to_owned(),
            r#"{"domains":["a.com"],"domains":["b.com"]}"#.to_owned(),
            r#"{"domains":["a.com"],"more":1}"#.to_owned(),
            r#"{"domains":["a.com"]} "#.to_owned() + "x",
        ] {
            let fault = parse_names(body.as_bytes()).unwrap_err();
            assert!(fault.starts_with("expected {\"domains\""), "{body}: {fault}");
        }
    }
}
