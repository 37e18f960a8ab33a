//! `POST /v1/public/domains`: the verdicts on many domains, in one request.
//!
//! Each name is one call. riskgate charges the calls of all names, and then looks the names up. If
//! the account can't pay for all names, riskgate charges none and refuses the request.

use std::fmt::Write;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use crate::message::response::Reply;
use crate::model::domain::Domain;
use crate::model::refusal::Refusal;
use crate::table::Table;

use super::answers::look_up_and_count;
use super::held_bytes::{HeldBytesGuard, NO_MEMORY_REFUSAL};
use super::json_body::parse_json_object;
use super::request_context::RequestContext;
use super::state::Gate;

/// The most names in one request.
const MAX_NAMES: usize = 1_000;
/// The longest body, in bytes. 1,000 of the longest ASCII names fit.
pub(super) const MAX_BATCH_BODY_BYTES: usize = 256 * 1024;

/// About how many bytes the answer has for one name, without what repeats the name: the domain, and
/// the row that matched.
const RESULT_BYTES_ESTIMATE: usize = 256;

/// The JSON in the body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainBatch {
    domains: Vec<String>,
}

impl Gate {
    /// Answers with the verdicts on the names in a body. `held` counts the bytes of the body. This
    /// function adds those of the parsed names, and an estimate of those of the answer.
    pub(super) async fn answer_domain_batch(
        &self,
        body: &[u8],
        held: &mut HeldBytesGuard,
        ctx: &mut RequestContext,
    ) -> Result<Reply, Refusal> {
        let names = parse_names(body).map_err(Refusal::InvalidBatch)?;
        if !held.grow_to(3 * body.len() + names.len() * RESULT_BYTES_ESTIMATE) {
            return Err(NO_MEMORY_REFUSAL);
        }
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
        Ok(Reply::of_json(Bytes::from(out)))
    }

    /// Appends the verdict on a name, or the error if the name is no valid domain.
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
    let batch: DomainBatch = parse_json_object(body, expected)?;
    match batch.domains.len() {
        1..=MAX_NAMES => Ok(batch.domains),
        count => Err(format!("{expected}, but found {count}")),
    }
}

#[cfg(test)]
mod tests;
