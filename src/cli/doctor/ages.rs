//! How long ago a list was fetched, and how long a certificate lasts, by the clock of this machine.

use crate::model::month::SECONDS_PER_DAY;
use crate::store::Finding;
use crate::support::certificate_expiry::CertificateExpiry;
use crate::support::machine_clock::machine_unix_now;

/// Returns the number of whole days since a time; 0 if the time is in the future.
pub(super) fn count_days_since(unix_seconds: i64) -> i64 {
    (machine_unix_now() - unix_seconds).max(0) / SECONDS_PER_DAY
}

/// Makes the finding of a certificate: it has expired, expires soon, or is good.
pub(super) fn judge_certificate_expiry(subject: String, expires_at: i64) -> Finding {
    let expiry = CertificateExpiry::judge(expires_at, machine_unix_now());
    match (expiry, expiry.advice()) {
        (CertificateExpiry::Expired(_), Some(advice)) => {
            Finding::fault(subject, expiry.to_string(), advice)
        }
        (_, Some(advice)) => Finding::warning(subject, expiry.to_string(), advice),
        (_, None) => Finding::good(subject, expiry.to_string()),
    }
}
