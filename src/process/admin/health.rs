//! Readiness, and the problems that an operator should fix.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::PROBLEM_COMPONENTS;
use super::api::AdminApi;
use super::responses::pretty_json_response;
use crate::management::tells_lost_override;
use crate::model::month::{SECONDS_PER_DAY, format_rfc3339};

impl AdminApi {
    /// Answers `/readyz`, which anybody may request. The texts of problems name files. So a client
    /// that may not read these texts gets only the names of the faulty parts.
    pub(super) fn check_readiness_and_respond(&self, may_read_problems: bool) -> Response<Vec<u8>> {
        let ready = self.why_not_ready().is_none();
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = json!({
            "ready": ready,
            "draining": self.connection_tracker.is_draining(),
            "degraded":
                if may_read_problems { self.list_problems() } else { self.list_faulty_parts() },
            "knowledge": self.knowledge_ages_to_json(),
        });
        pretty_json_response(status, &body)
    }

    /// Says why a load balancer should use other nodes. Returns `None` if this node is ready.
    pub(super) fn why_not_ready(&self) -> Option<&'static str> {
        if self.connection_tracker.is_draining() {
            Some("it finishes its requests and ends")
        } else if !self.connection_tracker.is_http_accepting() {
            Some("its listeners are not open yet")
        } else if self.state.keys.peek().is_none() {
            Some("it has no keys loaded, so it answers each call with a key by 500")
        } else if self.state.ledger.waits_for_clock() {
            Some("it does not know the time, so it answers each call that counts by 500")
        } else {
            None
        }
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
        let status = self.lock_reload_status();
        let feeds = status.feeds.iter();
        let feeds = feeds.map(|feed| render(format!("feed {}", feed.name), feed.state.changed_at));
        std::iter::once(table).chain(feeds).collect()
    }

    /// Lists problems that the operator should fix, although the process serves.
    pub(super) fn list_problems(&self) -> Vec<String> {
        let status = self.lock_reload_status().clone();
        let [store_name, clock_name, upstream_name] = PROBLEM_COMPONENTS;
        let mut fault_by_part = status.fault_by_part;
        let of_reloader = fault_by_part.remove(store_name);
        let mut degraded: Vec<String> =
            fault_by_part.iter().map(|(part, why)| format!("{part}: {why}")).collect();
        let has_rates_fault = fault_by_part.contains_key("rates");
        let of_store = self.list_store_problems(of_reloader);
        degraded.extend(of_store.iter().map(|why| format!("{store_name}: {why}")));
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
        if shares_rates && !sign_ups.has_secret() && !has_rates_fault {
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

    /// Lists the problems of the store. `of_reloader` is the one that the reloader has found. While
    /// the store is down, the ledger tells the same problem.
    fn list_store_problems(&self, of_reloader: Option<String>) -> Vec<String> {
        let ledger = &self.state.ledger;
        let status = ledger.status();
        let missing = status.missing_replicas;
        let mut problems = Vec::new();
        if status.store_down && missing == 0 {
            problems.push(match ledger.store_problem().or(of_reloader) {
                Some(why) => format!("down: {why}"),
                None => "down".to_owned(),
            });
        } else {
            problems.extend(of_reloader);
        }
        if missing > 0 {
            let consequence = match status.store_down {
                true => "calls without a lease are refused",
                false => "what is reported now is stored on one server alone",
            };
            problems.push(format!("{missing} of store.wait_replicas are missing: {consequence}"));
        }
        problems.extend(ledger.account_faults());
        if status.store_recovering {
            problems.push("it may have lost data; all nodes report their totals again".to_owned());
        }
        problems
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
        let is_store_read = self.lock_reload_status().is_store_read;
        let keys = match (is_store_read, self.state.keys.peek().is_some()) {
            (true, _) => KeyReadState::Read,
            (false, true) => KeyReadState::ReadBefore,
            (false, false) => KeyReadState::NeverRead,
        };
        let problem = |text: String| {
            let (component, problem) = text.split_once(": ").unwrap_or(("", &text));
            let advice = find_advice(component, problem, keys);
            json!({ "component": component, "problem": problem, "advice": advice })
        };
        self.list_problems().into_iter().map(problem).collect()
    }
}

/// Whether riskgate has read the keys of the store.
#[derive(Clone, Copy)]
enum KeyReadState {
    /// At the last attempt.
    Read,
    /// Not at the last attempt, but before.
    ReadBefore,
    /// Never since the start.
    NeverRead,
}

/// Returns what an operator should do about a problem of this component.
fn find_advice(component: &str, problem: &str, keys: KeyReadState) -> &'static str {
    match component {
        "config" => {
            "Correct the line that the text names. The last good config stays in force. riskgate \
             reads the file again once it changes; riskgate check shows every fault."
        }
        "keys" => match keys {
            KeyReadState::Read => {
                "Correct the key file, or repair the row that the text names with riskgate keys or \
                 riskgate accounts. All other keys work."
            }
            KeyReadState::ReadBefore => {
                "See that the store answers, takes the password of store.url, and is the one that \
                 has the keys. The last good keys serve."
            }
            KeyReadState::NeverRead => {
                "See that the store answers, takes the password of store.url, and is the one that \
                 has the keys. Until then, riskgate answers each call with a key by 500."
            }
        },
        "table" => {
            "Correct the list that the text names, or restore its last version. The last good \
             table serves."
        }
        "overrides" => find_advice_about_overrides(problem),
        "certificates" => {
            "Put a valid certificate and its key in place; riskgate reads them by itself. Until \
             then, riskgate shows the certificate that it has, which clients refuse unless it is \
             valid."
        }
        "store" => {
            "See that the store's server or disk works, can be reached and lets riskgate in. If \
             store.on_failure is \"open\", riskgate admits calls meanwhile and counts them later."
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
        "feeds" => {
            "See that this machine reaches the url of the feed, and that the list there is as it \
             should be. The last good list of the feed serves, if riskgate has fetched one."
        }
        "dns" => {
            "See that the resolvers of dns.resolvers and the store answer. Unlisted names that \
             riskgate has not resolved get no verdict of the DNS meanwhile."
        }
        _ => NO_ADVICE,
    }
}

fn find_advice_about_overrides(problem: &str) -> &'static str {
    match tells_lost_override(problem) {
        true => {
            "Run the commands that the text names, or set what is right. Until then, the overrides \
             that the store has are in force."
        }
        false => {
            "See that the store answers and that the file which the text names is as it should be. \
             The overrides that riskgate read last serve, if it has read any."
        }
    }
}

/// The advice about a component that has none of its own.
const NO_ADVICE: &str = "Read the log of riskgate.";

#[cfg(test)]
mod tests;
