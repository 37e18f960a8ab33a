//! The status of the process as JSON, for `/status` and the page.

use serde_json::{Value, json};

use super::api::AdminApi;
use crate::feed::FeedStatus;
use crate::keys::KeyRing;
use crate::model::month::format_rfc3339;
use crate::webhook::WebhookStatus;

impl AdminApi {
    /// Renders the object of `/status`.
    pub(super) fn status_json(&self) -> Value {
        let table = self.state.table.snapshot();
        let keys = self.state.keys.snapshot();
        let ring = Option::as_ref(&keys);
        let (store, now) = (self.state.ledger.status(), self.state.ledger.believed_now());
        let (healthy, servers) = self.upstreams.count_healthy_and_all();
        let status = self.lock_reload_status().clone();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "started_at": format_rfc3339(self.started_at),
            "draining": self.connection_tracker.is_draining(),
            "not_ready": self.why_not_ready(),
            "degraded": self.list_problems(),
            "problems": self.problems_to_json(),
            "needs_restart": status.needs_restart,
            "connections": self.connection_tracker.count_open_connections(),
            "requests_in_flight": self.connection_tracker.count_requests_in_flight(),
            "table": {
                "version": table.version(),
                "built_at": format_rfc3339(table.built_at()),
                "newest_evidence_at": table.newest_source_day().map(format_rfc3339),
                "rows": table.row_count(),
                "warnings": table.warnings(now),
            },
            "feeds": status.feeds.iter().map(FeedStatus::to_json).collect::<Vec<_>>(),
            "dns": status.dns.to_json(),
            "keys": {
                "loaded": ring.is_some(),
                "count": ring.map(KeyRing::len),
                "version": ring.map(KeyRing::version),
            },
            "store": {
                "down": store.store_down,
                "commits": store.store_commits,
                "failures": store.store_failures,
                "unsettled_calls": store.unsettled_calls,
            },
            "upstream": { "servers": servers, "healthy": healthy },
            "webhook": status.webhook.as_ref().map(WebhookStatus::to_json),
            "month": self.state.ledger.month_to_charge(now).to_string(),
        })
    }
}
