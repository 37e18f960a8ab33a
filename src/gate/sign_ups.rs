//! Whose sign-up a request is, and when it counts.

use std::net::IpAddr;

use crate::decide::SignUpScope;
use crate::model::email::EmailAddress;
use crate::model::sign_up::SignUp;
use crate::table::TableAnswer;

use super::request_context::RequestContext;
use super::state::Gate;

impl Gate {
    /// Records the status with which the server answers. Counts the sign-ups of a screened form if
    /// this answer says that they have succeeded.
    pub(crate) fn record_upstream_status(
        &self,
        status: u16,
        is_html: bool,
        ctx: &mut RequestContext,
    ) {
        ctx.set_upstream_outcome(status);
        if let (Some(screened), Some(rules)) = (&ctx.screened, &ctx.screen_rules)
            && rules.success.is_success(status, is_html)
        {
            self.state.sign_ups.record_form(&screened.sign_ups);
        }
    }

    /// Returns the sign-up of an address by this client; `None` if the config has neither a rule
    /// nor `[inbox]`, or if riskgate can make no inbox id.
    pub(super) fn identify_sign_up(
        &self,
        address: &EmailAddress,
        lookup: &TableAnswer<'_>,
        client: Option<IpAddr>,
        ctx: &RequestContext,
    ) -> Option<SignUp> {
        let decisions = &ctx.rules.decisions;
        if !decisions.counts_sign_ups() {
            return None;
        }
        // A trusted proxy is no client: its address stands for all clients behind it.
        let proxies = &self.startup_rules.client_address.trusted_proxies;
        let client = client.filter(|address| !proxies.contains(*address));
        let scope = match &ctx.key {
            Some(key) if decisions.is_by_account => SignUpScope::Account(&key.account.name),
            _ => SignUpScope::Deployment,
        };
        self.state.sign_ups.make_sign_up(
            address,
            client,
            !lookup.is_protected_or_free_provider(),
            scope,
            ctx.unix_now,
        )
    }
}
