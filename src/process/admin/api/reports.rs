//! Reports on traffic, verdicts, top domains, screened forms, lists, feeds, and the reasons for the
//! verdict on a domain. Answers requests to reload.

use std::sync::PoisonError;

use http::Response;
use serde_json::{Value, json};

use super::request::{ApiError, ApiRequest, json_response};
use super::{AdminApi, ChangePermit};
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
    pub(super) fn show_history(&self, request: &ApiRequest) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&["hours", "minutes"])?;
        let read = |name: &str, max: u32| -> Result<Option<u32>, ApiError> {
            let Some(found) = request.parameter(name) else { return Ok(None) };
            let number = found.parse().ok().filter(|number| (1..=max).contains(number));
            let expected = || format!("{name}: expected a number from 1 to {max}");
            let fault = || ApiError::invalid(format!("{}, but found {found:?}", expected()));
            number.ok_or_else(fault).map(Some)
        };
        let hours = read("hours", 24)?.map(|hours| hours * 60);
        let minutes = read("minutes", 24 * 60)?.or(hours);
        let minutes = minutes.unwrap_or(DEFAULT_HISTORY_MINUTES);
        Ok(json_response(200, &self.history.to_json(minutes)))
    }

    pub(super) fn show_verdict_counts(
        &self,
        request: &ApiRequest,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        let counts = self.state.metrics.requests.verdict_counts();
        let counts = counts.into_iter().filter(|(_, _, count)| *count > 0);
        let items: Vec<Value> = counts
            .map(|(reason, source, count)| {
                json!({ "reason": reason.as_str(), "source": source.as_str(), "count": count })
            })
            .collect();
        let since = format_rfc3339(self.started_at);
        Ok(json_response(200, &json!({ "since": since, "items": items })))
    }

    pub(super) fn list_top_domains(
        &self,
        request: &ApiRequest,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        let items: Vec<Value> =
            self.state.top_domains.entries().iter().map(TopEntry::to_json_with_count).collect();
        Ok(json_response(200, &json!({ "items": items })))
    }

    pub(super) fn show_form_counts(
        &self,
        request: &ApiRequest,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        Ok(json_response(200, &self.form_counts_json()))
    }

    /// Renders the counts of screened forms.
    pub(in crate::process::admin) fn form_counts_json(&self) -> Value {
        let forms = self.state.screening_counts.to_json();
        json!({ "since": format_rfc3339(self.started_at), "forms": forms })
    }

    pub(super) fn look_up(&self, request: &ApiRequest) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&["domain"])?;
        let text = request.parameter("domain").unwrap_or_default();
        let domain = Domain::parse(text).map_err(|error| fault_of_domain(text, &error))?;
        let (table, config) = (self.state.table.snapshot(), self.config());
        let now = self.state.ledger.believed_now();
        let object = match config.dns.is_learning_enabled {
            true => self.read_from_store(|store| {
                explain_domain(&table, &domain, config.unknown_score, Some(store), now)
                    .map(|explained| explained.to_json(&domain))
            })?,
            false => {
                let explained = explain_domain(&table, &domain, config.unknown_score, None, now)?;
                explained.to_json(&domain)
            }
        };
        Ok(json_response(200, &object))
    }

    pub(super) fn list_lists(&self, request: &ApiRequest) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        let table = self.state.table.snapshot();
        let days = table.newest_source_days_of_lists();
        let lists = table.lists().iter().zip(days);
        let items: Vec<Value> = lists.map(|(list, day)| table_list_to_json(list, day)).collect();
        Ok(json_response(200, &json!({ "items": items })))
    }

    pub(super) fn list_feeds(&self, request: &ApiRequest) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
        let status = self.reload_status.lock().unwrap_or_else(PoisonError::into_inner);
        let items: Vec<Value> = status.feeds.iter().map(FeedStatus::to_json).collect();
        Ok(json_response(200, &json!({ "items": items })))
    }

    /// Reloads all parts, as `POST /reload` does.
    pub(super) fn reload(
        &self,
        request: &ApiRequest,
        _permit: &ChangePermit<'_>,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&[])?;
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
