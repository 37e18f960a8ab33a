//! The [`Gate`], and the shared state and rules by which it judges requests. No code in this file
//! judges a request.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderName;

use crate::decide::SignUpCounter;
use crate::dns::DnsFactCache;
use crate::keys::KeyRing;
use crate::message::request_id::RequestIdGenerator;
use crate::message::response::StrictTransportSecurity;
use crate::model::path_prefix::PathPrefix;
use crate::model::verdict::Score;
use crate::observe::access_log::AccessLog;
use crate::observe::latest_forms::LatestForms;
use crate::observe::metrics::Metrics;
use crate::observe::screening_counts::ScreeningCounts;
use crate::observe::top_domains::TopList;
use crate::observe::traces::Tracer;
use crate::quota::Ledger;
use crate::support::client_rates::{ClientRates, Rate};
use crate::support::counted::CountedNoun;
use crate::support::serving_flag::ServingFlag;
use crate::support::snapshot::SnapshotCell;
use crate::table::Table;
use crate::webhook::WebhookControl;

use super::authz_rules::AuthzRules;
use super::client_address::ClientAddressRule;
use super::decisions::DecisionSettings;
use super::held_bytes::{BodyOptions, HeldBytes};
use super::route::{CheckAnswer, UpstreamRoute};

/// The longest time that [`Gate::close`] waits for the store to take the last sign-ups.
const LAST_SIGN_UPS_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time that [`Gate::close`] waits for the store to take the last charges of shared
/// rates.
const LAST_RATE_CHARGES_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest time that [`Gate::close`] waits for the collector of traces to take the last spans.
const LAST_SPANS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after its call [`Gate::close`] still waits for the webhook messages in flight.
const LAST_WEBHOOKS_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time that [`Gate::close`] waits for all of these parts together.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest time that [`Gate::close`] waits after that for the access log. Its reader may hang.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(1);

impl GateState {
    /// Renders all metrics in Prometheus' text format. `process_log_lines_dropped` is the number of
    /// lines for standard error that were dropped.
    pub fn render_metrics(&self, process_log_lines_dropped: u64) -> Vec<u8> {
        let is_clock_suspect = self.ledger.clock_problem().is_some();
        self.metrics.store.set_ledger_status(&self.ledger.status(), is_clock_suspect);
        self.metrics.requests.set_dropped_totals(
            self.access_log.dropped_lines(),
            process_log_lines_dropped,
            self.top_domains.dropped_lookups(),
        );
        self.metrics.requests.set_held_body_bytes(self.held_bytes.used_bytes());
        if self.tracer.is_on() {
            let (exported, dropped) = self.tracer.span_counts();
            self.metrics.traces.set_span_counts(exported, dropped);
        }
        self.metrics.render()
    }
}

/// The rules that change only with a restart of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupRules {
    /// The proxies in front of riskgate, and how riskgate finds the client behind them.
    pub client_address: ClientAddressRule,
    /// The path on which proxies ask; `None` without `[authz]`.
    pub authz_path: Option<PathPrefix>,
    /// The field that may contain a key instead of `Authorization`; `None` if only `Authorization`
    /// may contain a key.
    pub key_header: Option<HeaderName>,
    /// `Strict-Transport-Security` in responses over TLS; `None` if they have no such field.
    pub hsts: Option<StrictTransportSecurity>,
    /// The limits of request bodies.
    pub bodies: BodyOptions,
}

/// The rules that a reload may change while requests run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadableRules {
    /// The routes of `[[upstream.route]]`.
    pub upstream_routes: Vec<UpstreamRoute>,
    /// The operator's score for unknown domains; if `None`, the score in the table applies.
    pub unknown_score: Option<Score>,
    /// Who answers checks.
    pub check_answer: CheckAnswer,
    /// How often one client may use one key, if browsers use the key.
    pub max_per_client_of_key: Option<Rate>,
    /// What riskgate checks for proxies that ask; `None` without `[authz]`.
    pub authz: Option<Arc<AuthzRules>>,
    /// How riskgate decides about sign-ups and counts them.
    pub decisions: Arc<DecisionSettings>,
}

impl ReloadableRules {
    /// Returns true if riskgate may have to forward a request to an upstream server.
    pub fn may_need_upstream(&self) -> bool {
        self.check_answer != CheckAnswer::Table || !self.upstream_routes.is_empty()
    }
}

/// The state by which the gates judge requests.
pub struct GateState {
    /// The table of domains that was compiled from the lists.
    pub table: Arc<SnapshotCell<Table>>,
    /// The keys; `None` until riskgate could load a key ring. Until then, requests that need a key
    /// get a response with `X-Fail-Open`.
    pub keys: SnapshotCell<Option<KeyRing>>,
    /// What riskgate has learned from the DNS about domains.
    pub dns: DnsFactCache,
    /// Whether this process serves.
    pub serving: ServingFlag,
    /// The calls that each account may still spend.
    pub ledger: Ledger,
    /// The domains that were flagged most often.
    pub top_domains: TopList,
    /// The metrics.
    pub metrics: Metrics,
    /// The access log.
    pub access_log: AccessLog,
    /// The traces of requests.
    pub tracer: Arc<Tracer>,
    /// Generates the id of a request that brings none which riskgate accepts.
    pub request_ids: RequestIdGenerator,
    /// The rules that a reload may change.
    pub reloadable_rules: SnapshotCell<ReloadableRules>,
    /// The counts of screened forms.
    pub screening_counts: ScreeningCounts,
    /// The inbox ids, and the counts of sign-ups.
    pub sign_ups: SignUpCounter,
    /// The last forms that riskgate refused.
    pub refused_forms: LatestForms,
    /// The last forms that a rule decided.
    pub forms_decided_by_rules: LatestForms,
    /// The token buckets of `max_per_client`.
    pub client_rates: ClientRates,
    /// The memory that riskgate holds while it waits for clients.
    pub held_bytes: Arc<HeldBytes>,
    /// The options of webhooks, and the end of their threads.
    pub webhook: WebhookControl,
    /// Locked while the audit writes a record and notes that it has done so. [`Gate::close`] locks
    /// it for good, so that the process does not end between the two.
    pub audit_writes: Mutex<()>,
    /// Lets [`Gate::close`] run once.
    pub close_once: Once,
}

/// The gates, to mount in a proxy of your own. [`Mount::gate`] creates one; clones share its state.
///
/// Keep a [`RequestContext`](crate::RequestContext) in your proxy's context. In each of your six
/// filters `request_filter`, `request_body_filter`, `upstream_request_filter`, `response_filter`,
/// `fail_to_proxy` and `logging`, call the method of the same name. If you leave a call out, API
/// keys reach your upstream server, the start of a longer form is missing, clients can forge
/// `X-Riskgate-` fields, or calls that failed stay counted.
///
/// Return true from `suppress_error_log` and `suppress_proxy_warn_log`, and
/// [`RequestContext::request_id`](crate::RequestContext::request_id) from `request_summary`: else
/// Pingora logs e-mail addresses, queries and parts of bodies.
///
/// [`Mount::gate`]: crate::Mount::gate
#[derive(Clone)]
pub struct Gate {
    pub(super) state: Arc<GateState>,
    /// See [`StartupRules`].
    pub(super) startup_rules: Arc<StartupRules>,
}

impl Gate {
    /// Creates a gate over this state.
    pub(crate) fn new(state: Arc<GateState>, startup_rules: StartupRules) -> Gate {
        Gate { state, startup_rules: Arc::new(startup_rules) }
    }

    /// The state by which the gates judge requests.
    #[doc(hidden)]
    pub fn state(&self) -> &Arc<GateState> {
        &self.state
    }

    /// Reports all leases and the last counts to the store, and writes the queued log lines and
    /// spans. Call this method at the end of the process, once no request is in flight. Without the
    /// call, the process loses what it loses in a crash, such as leased calls that it has not
    /// spent, and sign-ups, log lines and spans that wait to be written. If the store hangs,
    /// `close` gives up after 4 s and logs an error. If a reader of the access log hangs, `close`
    /// gives up after one more second. If the store did not take all sign-ups and unsettled calls,
    /// `close` logs how many are lost. Only the first call on a gate or one of its clones does all
    /// this. A further call waits until the first one is done.
    pub fn close(&self) {
        self.state.close_once.call_once(|| self.close_first());
    }

    fn close_first(&self) {
        let state = Arc::clone(&self.state);
        let (begun, closed) = channel();
        let closing_since = Instant::now();
        std::thread::spawn(move || {
            let begin = |part: Option<&'static str>| {
                // Once `close` has given up and returned, the receiver is gone and a send fails.
                let _ = begun.send(part);
            };
            begin(Some("the store"));
            state.webhook.close();
            state.sign_ups.exchange_thread().close(LAST_SIGN_UPS_TIMEOUT);
            if let Some(thread) = state.client_rates.exchange_thread() {
                thread.close(LAST_RATE_CHARGES_TIMEOUT);
            }
            state.top_domains.close();
            // The ledger closes after the top list: when the ledger closes, SQLite's write-ahead
            // log, which contains the writes of both, is merged into the database file.
            state.ledger.close();
            begin(Some("the queue of spans"));
            state.tracer.close(LAST_SPANS_TIMEOUT);
            begin(Some("the queue of webhook messages"));
            let time_left = LAST_WEBHOOKS_TIMEOUT.saturating_sub(closing_since.elapsed());
            state.webhook.wait_for_sender(time_left);
            begin(Some("the audit"));
            // The lock is never released, so from now on the audit writes nothing.
            let audit_writes = state.audit_writes.lock();
            std::mem::forget(audit_writes.unwrap_or_else(PoisonError::into_inner));
            begin(None);
        });
        let mut part = "the store";
        loop {
            let time_left = CLOSE_TIMEOUT.saturating_sub(closing_since.elapsed());
            match closed.recv_timeout(time_left) {
                Ok(Some(next)) => part = next,
                Ok(None) => break,
                Err(_) => {
                    log::error!("{part} was not flushed within {CLOSE_TIMEOUT:?}");
                    break;
                }
            }
        }
        // The access log comes last, so that nothing else waits for a target that takes no lines.
        let access_log = &self.state.access_log;
        if !access_log.close(LAST_LINES_TIMEOUT) {
            let (within, target) = (LAST_LINES_TIMEOUT, access_log.target_text());
            log::error!(
                "log.path: expected to write the last lines within {within:?}, but found that \
                 {target} takes none"
            );
        }
        self.report_losses();
    }

    /// Logs what the store has not taken before the end of the process.
    fn report_losses(&self) {
        let sign_ups = self.state.sign_ups.count_unsaved();
        let calls = usize::try_from(self.state.ledger.status().unsettled_calls);
        let calls = calls.unwrap_or(usize::MAX);
        if sign_ups > 0 || calls > 0 {
            log::error!(
                "the store did not take the last counts: {} and {} are lost",
                CountedNoun(sign_ups, "sign-up"),
                CountedNoun(calls, "unsettled call")
            );
        }
    }
}
