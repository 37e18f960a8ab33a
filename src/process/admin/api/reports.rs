//! Reports on traffic, verdicts, top domains, screened forms, lists, feeds, and the reasons for the
//! verdict on a domain. Answers requests to reload.

use serde_json::{Value, json};

use super::request::{ApiError, ApiRequest, json_response};
use super::{AdminApi, Answer, AuthorizedChange};
use crate::feed::FeedStatus;
use crate::management::{explain_domain, fault_of_domain};
use crate::model::domain::Domain;
use crate::model::month::format_rfc3339;
use crate::observe::top_domains::TopEntry;
use crate::process::admin::responses::reload_outcome_to_json;
use crate::table::ListInfo;

/// The minutes of traffic that riskgate shows by default.
const DEFAULT_HISTORY_MINUTES: u32 = 6 * 60;

impl AdminApi {
    pub(super) fn show_history(&self, request: &ApiRequest) -> Result<Value, ApiError> {
        let read = |name: &'static str, max: u32| -> Result<Option<u32>, ApiError> {
            let Some(found) = request.parameter(name) else { return Ok(None) };
            let number = found.parse().ok().filter(|number| (1..=max).contains(number));
            let expected = format!("a number from 1 to {max}");
            number.ok_or_else(|| ApiError::unexpected(name, &expected, found)).map(Some)
        };
        let hours = read("hours", 24)?.map(|hours| hours * 60);
        let minutes = read("minutes", 24 * 60)?.or(hours);
        let minutes = minutes.unwrap_or(DEFAULT_HISTORY_MINUTES);
        Ok(self.history.to_json(minutes))
    }

    pub(super) fn verdict_counts_json(&self) -> Value {
        let counts = self.state.metrics.requests.verdict_counts();
        let counts = counts.into_iter().filter(|(_, _, count)| *count > 0);
        let items: Vec<Value> = counts
            .map(|(reason, source, count)| {
                json!({ "reason": reason.as_str(), "source": source.as_str(), "count": count })
            })
            .collect();
        let since = format_rfc3339(self.started_at);
        json!({ "since": since, "items": items })
    }

    pub(super) fn top_domains_json(&self) -> Value {
        let items: Vec<Value> =
            self.state.top_domains.entries().iter().map(TopEntry::to_json_with_count).collect();
        json!({ "items": items })
    }

    /// Renders the counts of screened forms.
    pub(in crate::process::admin) fn form_counts_json(&self) -> Value {
        let forms = self.state.screening_counts.to_json();
        json!({ "since": format_rfc3339(self.started_at), "forms": forms })
    }

    pub(super) fn look_up(&self, request: &ApiRequest) -> Result<Value, ApiError> {
        let text = request.parameter("domain").unwrap_or_default();
        let domain = Domain::parse(text).map_err(|error| fault_of_domain(text, &error))?;
        let (table, config) = (self.state.table.snapshot(), self.config());
        let now = self.state.ledger.believed_now();
        if config.dns.is_learning_enabled {
            return self.read_from_store(|store| {
                explain_domain(&table, &domain, config.unknown_score, Some(store), now)
                    .map(|explained| explained.to_json(&domain))
            });
        }
        let explained = explain_domain(&table, &domain, config.unknown_score, None, now)?;
        Ok(explained.to_json(&domain))
    }

    pub(super) fn lists_json(&self) -> Value {
        let table = self.state.table.snapshot();
        let days = table.newest_source_days_of_lists();
        let lists = table.lists().iter().zip(days);
        let items: Vec<Value> = lists.map(|(list, day)| table_list_to_json(list, day)).collect();
        json!({ "items": items })
    }

    pub(super) fn feeds_json(&self) -> Value {
        let status = self.lock_reload_status();
        let items: Vec<Value> = status.feeds.iter().map(FeedStatus::to_json).collect();
        json!({ "items": items })
    }

    /// Reloads all parts, as `POST /reload` does.
    pub(super) fn reload(
        &self,
        request: &ApiRequest,
        _authorized: &AuthorizedChange<'_>,
    ) -> Answer {
        request.require_empty_body()?;
        let reload = self.reload_trigger.reload_and_wait();
        let outcome = tokio::runtime::Handle::current().block_on(reload);
        let Some(outcome) = outcome else {
            return Err(ApiError::internal("expected to reload, but the process ends"));
        };
        let (status, parts) = reload_outcome_to_json(outcome);
        Ok(json_response(status.as_u16(), &parts))
    }
}

/// Renders a list of the table. `updated_at` is the day on which the newest source of the list was
/// published.
fn table_list_to_json(list: &ListInfo, updated_at: Option<i64>) -> Value {
    json!({
        "name": list.file, "kind": list.kind, "rows": list.rows,
        "updated_at": updated_at.map(format_rfc3339),
    })
}
