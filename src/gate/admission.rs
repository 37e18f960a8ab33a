//! Admission: the rules of the gates for the key, the origin and the quota.
//!
//! Only this module makes a [`Permit`]. Its functions take the key ring, header values and the time
//! from the caller, write no response and choose no route.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::keys::{Key, KeyRing, sha256};
use crate::message::request_head::{bearer_credentials, value_if_single};
use crate::model::month::Month;
use crate::model::origin::Origin;
use crate::model::refusal::Refusal;
use crate::model::route_label::RouteLabel;
use crate::quota::{Allowance, Charge, Ledger, UsageDay};
use crate::store::MonthlyLimit;

/// Proof that a request passed the gates. riskgate forwards no request without a permit.
pub struct Permit {
    /// The key that the client authenticated with; `None` on a route that needs no key.
    key: Option<Arc<Key>>,
    /// The calls that were charged; `None` if the request charged none, or after
    /// [`Permit::refund`].
    charged: Option<ChargedCalls>,
}

/// Calls that were charged.
struct ChargedCalls {
    charge: Charge,
    /// The route for which the usage of the key counts them.
    route: RouteLabel,
    /// The day for which the usage of the key counts them.
    day: UsageDay,
}

/// The key that a request presents; `None` inside unless the request presents exactly one key.
#[derive(Clone, Copy)]
pub struct PresentedKey<'h>(Option<&'h [u8]>);

impl<'h> PresentedKey<'h> {
    /// Reads the key in exactly one `Authorization: Bearer <key>`.
    pub fn read_bearer(values: impl Iterator<Item = &'h [u8]>) -> PresentedKey<'h> {
        PresentedKey(bearer_credentials(values).filter(|token| is_single_token(token)))
    }

    /// Reads the key in a field that contains only the key, or in `Authorization`. If the request
    /// has both fields, they must contain the same key.
    pub fn read_bare_or_bearer(
        bare_values: impl Iterator<Item = &'h [u8]>,
        authorization_values: impl Iterator<Item = &'h [u8]>,
    ) -> PresentedKey<'h> {
        let mut bare_values = bare_values.peekable();
        let mut authorization_values = authorization_values.peekable();
        if bare_values.peek().is_none() {
            return PresentedKey::read_bearer(authorization_values);
        }
        let bare = PresentedKey::read_bare(bare_values);
        let is_contradicted = authorization_values.peek().is_some()
            && PresentedKey::read_bearer(authorization_values).0 != bare.0;
        if is_contradicted { PresentedKey(None) } else { bare }
    }

    /// Reads the key in a field that occurs once and contains only the key.
    pub fn read_bare(values: impl Iterator<Item = &'h [u8]>) -> PresentedKey<'h> {
        let value = value_if_single(values);
        PresentedKey(value.map(<[u8]>::trim_ascii).filter(|token| is_single_token(token)))
    }
}

/// The first gate: a request passes with a key that is in the ring and neither revoked nor expired.
/// If the key's row in the store is unreadable, the key may be valid: riskgate answers 500. Every
/// other request gets the same 401 after the look-up of one digest. So neither the response nor its
/// timing tells the cause.
pub fn authenticate_client(
    ring: &KeyRing,
    PresentedKey(token): PresentedKey<'_>,
    unix_now: i64,
) -> Result<Arc<Key>, Refusal> {
    // A request without a key is looked up like an unknown key, so that both take the same time.
    let digest = sha256(token.unwrap_or(b"no key at all"));
    match (token, ring.find_valid_key(&digest, unix_now)) {
        (Some(_), Some(key)) => Ok(Arc::clone(key)),
        (Some(_), None) if ring.is_row_unreadable(&digest) => Err(Refusal::Internal),
        _ => Err(Refusal::Unauthorized),
    }
}

/// Returns true if the text has the length and the characters of one key. A text with a space or a
/// comma may be two keys, of which riskgate must not choose one.
fn is_single_token(token: &[u8]) -> bool {
    token.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',')
        && (16..=256).contains(&token.len())
}

/// The second gate checks `Origin`. It refuses a request in these cases:
/// - The key lists origins, and the request has an `Origin` that the list does not allow.
/// - The key requires an origin, and the request has no valid `Origin`.
pub fn check_origin(key: &Key, origin: &OriginHeader) -> Result<(), Refusal> {
    let allowed = match origin {
        OriginHeader::Absent => !key.require_origin,
        OriginHeader::Valid(origin, _) => key.is_origin_allowed(origin),
        OriginHeader::Malformed(_) => !key.is_origin_restricted() && !key.require_origin,
    };
    match allowed {
        true => Ok(()),
        false => Err(Refusal::Forbidden { origin: origin.text_for_refusal() }),
    }
}

/// Returns what the RateLimit fields say about a key's account; `None` if the account has no limit.
pub fn compute_allowance(
    key: &Key,
    month: Month,
    remaining: u64,
    unix_now: i64,
) -> Option<Allowance> {
    match key.limit {
        MonthlyLimit::Unlimited => None,
        MonthlyLimit::Calls(limit) => {
            let reset_in_seconds = month.seconds_until_end(unix_now);
            Some(Allowance { limit, remaining, reset_in_seconds })
        }
    }
}

impl Permit {
    /// Makes the permit of a request whose calls the third gate has charged to the month's quota,
    /// and adds the calls to the usage of the key.
    pub fn of_charged_calls(
        ledger: &Ledger,
        key: &Arc<Key>,
        route: RouteLabel,
        unix_now: i64,
        charge: Charge,
    ) -> Permit {
        let day = ledger.usage_day(charge.month(), unix_now);
        key.usage().count_calls(route, day, charge.calls());
        let charged = ChargedCalls { charge, route, day };
        Permit { key: Some(Arc::clone(key)), charged: Some(charged) }
    }

    /// Makes the permit of a request that charges no call. The caller has checked the key if the
    /// route needs a key.
    pub fn without_charge(key: Option<&Arc<Key>>) -> Permit {
        Permit { key: key.cloned(), charged: None }
    }

    /// The key that the client authenticated with; `None` on a route that needs no key.
    pub fn key(&self) -> Option<&Arc<Key>> {
        self.key.as_ref()
    }

    /// The month's limit, the calls that remain, and the seconds until the reset. `None` if the
    /// request charged no call, after [`Permit::refund`], or if the account has no limit.
    pub fn allowance(&self, unix_now: i64) -> Option<Allowance> {
        let spent = &self.charged.as_ref()?.charge;
        compute_allowance(self.key.as_ref()?, spent.month(), spent.remaining.unwrap_or(0), unix_now)
    }

    /// Refunds the calls that the request was charged. Returns false if the request was charged no
    /// call, if the ledger can't refund the calls any more, or on a second call.
    pub fn refund(&mut self, ledger: &Ledger) -> bool {
        match (self.charged.take(), &self.key) {
            (Some(ChargedCalls { charge, route, day }), Some(key)) => {
                let calls = charge.calls();
                let is_refunded = ledger.refund(&key.lease, charge);
                if is_refunded {
                    key.usage().uncount_calls(route, day, calls);
                }
                is_refunded
            }
            _ => false,
        }
    }
}

/// The `Origin` header of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginHeader {
    /// No header. The client is usually a server, or a browser on the same origin.
    Absent,
    /// One header with a valid origin, and its text.
    Valid(Origin, SmolStr),
    /// `null`, several headers, or a text that is no origin. It is in no key's list of origins.
    Malformed(String),
}

impl OriginHeader {
    /// Reads the values of all `Origin` headers of a request.
    pub fn read<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> OriginHeader {
        let Some(first) = values.next() else { return OriginHeader::Absent };
        let mut others = values.peekable();
        if others.peek().is_none()
            && let Ok(text) = std::str::from_utf8(first)
            && let Ok(origin) = Origin::parse(text)
        {
            return OriginHeader::Valid(origin, text.into());
        }
        let mut shown = String::from_utf8_lossy(first).into_owned();
        for value in others {
            shown.push_str(", ");
            shown.push_str(&String::from_utf8_lossy(value));
        }
        OriginHeader::Malformed(shown.chars().take(256).collect())
    }

    fn text_for_refusal(&self) -> String {
        match self {
            OriginHeader::Absent => "none".to_owned(),
            OriginHeader::Valid(_, text) => text.to_string(),
            OriginHeader::Malformed(text) => text.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
