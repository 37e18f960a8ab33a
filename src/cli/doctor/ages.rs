//! How long ago a list was fetched, and how long a certificate lasts, by the clock of this machine.

use crate::model::month::SECONDS_PER_DAY;
use crate::store::Finding;
use crate::support::machine_clock::machine_unix_now;

/// A certificate that expires in fewer days than these gets a warning.
const MIN_DAYS_OF_CERTIFICATE: i64 = 14;

/// Returns the number of whole days since a time; 0 if the time is in the future.
pub(super) fn count_days_since(unix_seconds: i64) -> i64 {
    (machine_unix_now() - unix_seconds).max(0) / SECONDS_PER_DAY
}

/// Makes the finding of a certificate: it has expired, expires soon, or is good.
pub(super) fn judge_certificate_expiry(subject: String, expires_at: i64) -> Finding {
    let left = expires_at - machine_unix_now();
    let days = left / SECONDS_PER_DAY;
    match (left, days) {
        (..0, _) => Finding::fault(subject, format!("expired {} days ago", -days), "renew it"),
        (_, ..MIN_DAYS_OF_CERTIFICATE) => {
            let advice = "look why it was not renewed; riskgate reads a new file by itself";
            Finding::warning(subject, format!("expires in {days} days"), advice)
        }
        _ => Finding::good(subject, format!("expires in {days} days")),
    }
}
