//! Readiness, and the problems that an operator should fix.

use std::sync::PoisonError;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::responses::{JSON_TYPE, build_response, to_pretty_json};
use super::{AdminApp, PROBLEM_COMPONENTS};
use crate::model::month::{SECONDS_PER_DAY, format_rfc3339};

impl AdminApp {
    /// Answers `/readyz`, which anybody may request. The texts of problems name files. So a client
    /// that may not read these texts gets only the names of the faulty parts.
    pub(super) fn check_readiness_and_respond(&self, may_read_problems: bool) -> Response<Vec<u8>> {
        let draining = self.connection_tracker.is_draining();
        let accepts = self.connection_tracker.is_http_accepting();
        // Without a key ring, calls with a key get 500, so a load balancer should use other nodes.
        let has_keys = self.state.keys.peek().is_some();
        // Without a known time there is no month to charge, and calls get 500.
        let has_time = !self.state.ledger.waits_for_clock();
        let ready = !draining && accepts && has_keys && has_time;
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = json!({
            "ready": ready,
            "draining": draining,
            "degraded":
                if may_read_problems { self.list_problems() } else { self.list_faulty_parts() },
            "knowledge": self.knowledge_ages_to_json(),
        });
        build_response(status, JSON_TYPE, to_pretty_json(&body))
    }

    /// Renders the age of what the table and each feed know. The age of the table counts from the
    /// day of its newest source. The age of a feed counts from the last change of its list.
    fn knowledge_ages_to_json(&self) -> Value {
        let now = self.state.ledger.believed_now();
        let render = |source: String, newest_at: Option<i64>| {
            let age = newest_at.map(|at| now.saturating_sub(at).max(0) / SECONDS_PER_DAY);
            let newest_at = newest_at.map(format_rfc3339);
            json!({ "source": source, "newest_evidence_at": newest_at, "age_days": age })
        };
        let table = render("table".to_owned(), self.state.table.peek().newest_source_day());
        let status = self.reload_status.lock().unwrap_or_else(PoisonError::into_inner);
        let feeds = status.feeds.iter();
        let feeds = feeds.map(|feed| render(format!("feed {}", feed.name), feed.state.changed_at));
        std::iter::once(table).chain(feeds).collect()
    }

    /// Lists problems that the operator should fix, although the process serves.
    pub(super) fn list_problems(&self) -> Vec<String> {
        let status = self.reload_status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut degraded: Vec<String> =
            status.fault_by_part.iter().map(|(part, why)| format!("{part}: {why}")).collect();
        let [store_name, clock_name, upstream_name] = PROBLEM_COMPONENTS;
        let store = self.state.ledger.status();
        let missing = store.missing_replicas;
        match store.store_down {
            true if missing == 0 => degraded.push(match self.state.ledger.store_problem() {
                Some(why) => format!("{store_name}: down: {why}"),
                None => format!("{store_name}: down"),
            }),
            true => degraded.push(format!(
                "{store_name}: {missing} of store.wait_replicas are missing: calls without a lease \
                 are refused"
            )),
            false if missing == 0 => {}
            false => degraded.push(format!(
                "{store_name}: {missing} of store.wait_replicas are missing: what is reported now \
                 is stored on one server alone"
            )),
        }
        let faults = self.state.ledger.account_faults();
        degraded.extend(faults.iter().map(|why| format!("{store_name}: {why}")));
        if store.store_recovering {
            degraded.push(format!(
                "{store_name}: it may have lost data; all nodes report their totals again"
            ));
        }
        degraded
            .extend(self.state.ledger.clock_problem().map(|why| format!("{clock_name}: {why}")));
        let sign_ups = &self.state.sign_ups;
        let rules = self.state.reloadable_rules.peek();
        if rules.decisions.counts_sign_ups() && !sign_ups.is_ready() {
            let lacking = if sign_ups.has_secret() { "counts" } else { "inbox ids and counts" };
            degraded.push(format!(
                "sign_ups: those in the store are not read yet: {lacking} have no value"
            ));
        }
        let shares_rates = self.state.client_rates.exchange_thread().is_some();
        if shares_rates && !sign_ups.has_secret() && !status.fault_by_part.contains_key("rates") {
            degraded.push(
                "rates: are not shared: the secret of the pseudonyms is not known yet".to_owned(),
            );
        }
        let names = self.upstreams.list_name_problems();
        degraded.extend(names.iter().map(|problem| format!("{upstream_name}: {problem}")));
        if self.state.reloadable_rules.peek().may_need_upstream() {
            let outage = self.upstreams.describe_outage();
            degraded.extend(outage.map(|problem| format!("{upstream_name}: {problem}")));
        }
        degraded
    }

    /// Lists the parts that have problems, for clients that may not read the problems.
    fn list_faulty_parts(&self) -> Vec<String> {
        let part = |why: String| why.split(':').next().unwrap_or_default().to_owned();
        let mut parts: Vec<String> = Vec::new();
        for part in self.list_problems().into_iter().map(part) {
            // A part may have several problems.
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts
    }

    /// Renders the problems for the page, each with advice.
    pub(super) fn problems_to_json(&self) -> Value {
        let problem = |text: String| {
            let (component, problem) = text.split_once(": ").unwrap_or(("", &text));
            json!({
                "component": component, "problem": problem, "advice": find_advice(component),
            })
        };
        self.list_problems().into_iter().map(problem).collect()
    }
}

/// Returns what an operator should do about a problem of this component.
fn find_advice(component: &str) -> &'static str {
    match component {
        "config" => {
            "Correct the line that the text names. The last good config stays in force. riskgate \
             reads the file again once it changes; riskgate check shows every fault."
        }
        "keys" => {
            "Correct the key file, or repair the row that the text names with riskgate keys or \
             riskgate accounts. All other keys work."
        }
        "table" => {
            "Correct the list that the text names, or restore its last version. The last good \
             table serves."
        }
        "overrides" => {
            "See that the store answers and that the file which the text names is as it should be. \
             The last good overrides serve."
        }
        "certificates" => {
            "Put a matching certificate and key in place. The last good ones serve until they \
             expire."
        }
        "store" => {
            "See that the store's server or disk works and can be reached. If store.on_failure is \
             \"open\", riskgate admits calls meanwhile and counts them later."
        }
        "clock" => {
            "Set the clock of this machine, or of the Redis server, with NTP. riskgate believes a \
             clock again once it was steady for ten minutes."
        }
        "upstream" => "See that the servers of [upstream] run, and that their names resolve.",
        "audit" => {
            "See that the store answers and that the file of audit.path can be written. riskgate \
             then records the changes that wait."
        }
        "sign_ups" => {
            "See that the store answers, and that the Redis user may read and write the sign-ups. \
             This node counts on with what it knows."
        }
        "rates" => {
            "See that the store answers, and that the Redis user may write the shared rates. This \
             node limits clients by what it knows."
        }
        "webhook" => {
            "See that the receiver of [webhook] answers with 2xx. riskgate repeats each message \
             for three days."
        }
        _ => "docs/operations.md has a paragraph about it.",
    }
}
