//! Charges and refunds the calls of a request.

use crate::model::refusal::Refusal;

use super::admission::{self, Permit};
use super::request_context::RequestContext;
use super::state::Gate;

impl Gate {
    /// Runs the gate for the quota. Waits for the store if the account holds no leased call.
    pub(super) async fn charge_if_counted(
        &self,
        is_counted: bool,
        ctx: &mut RequestContext,
    ) -> Result<Permit, Refusal> {
        match is_counted {
            true => self.charge_calls(1, ctx).await,
            false => Ok(admission::uncounted_permit(ctx.key.as_ref())),
        }
    }

    /// Charges all these calls or none. A request without a key charges none.
    pub(super) async fn charge_calls(
        &self,
        count: usize,
        ctx: &mut RequestContext,
    ) -> Result<Permit, Refusal> {
        let now = ctx.unix_now();
        let Some(key) = ctx.key.as_ref() else {
            return Ok(admission::uncounted_permit(None));
        };
        let month = self.state.ledger.month_to_charge(now);
        let (ledger, route) = (&self.state.ledger, ctx.route);
        let charged = admission::charge_calls(ledger, key, route, month, now, count).await;
        if matches!(charged, Err(Refusal::QuotaExceeded { .. })) {
            // After a refused batch, some calls may be left.
            let left = match count {
                1 => 0,
                _ => ledger.remaining_calls(&key.lease, month).unwrap_or(0),
            };
            ctx.common_headers.allowance = admission::compute_allowance(key, month, left, now);
        }
        charged
    }

    /// Refunds the call, because riskgate failed to serve the request. If it is too late, the call
    /// stays spent.
    pub(crate) fn refund(&self, ctx: &mut RequestContext) {
        // The RateLimit fields would describe a call that doesn't count, or an old month or limit.
        ctx.common_headers.allowance = None;
        let is_refunded = ctx.permit.as_mut().is_some_and(|p| p.refund(&self.state.ledger));
        if is_refunded {
            self.state.metrics.requests.quota_refunds.inc();
        }
    }
}
