//! How long ago a list was fetched, and how long a certificate lasts, by the clock of this machine.

use crate::model::month::SECONDS_PER_DAY;
use crate::store::Finding;
use crate::support::certificate_validity::{CertificateValidity, ValidityPeriod};
use crate::support::machine_clock::machine_unix_now;

/// Returns the number of whole days since a time; 0 if the time is in the future.
pub(super) fn count_days_since(unix_seconds: i64) -> i64 {
    (machine_unix_now() - unix_seconds).max(0) / SECONDS_PER_DAY
}

/// Makes the finding of a certificate: it is not valid, expires soon, or is good.
pub(super) fn judge_certificate(subject: String, period: ValidityPeriod) -> Finding {
    let validity = CertificateValidity::judge(period, machine_unix_now());
    match validity.advice() {
        Some(advice) if validity.is_valid() => {
            Finding::warning(subject, validity.to_string(), advice)
        }
        Some(advice) => Finding::fault(subject, validity.to_string(), advice),
        None => Finding::good(subject, validity.to_string()),
    }
}
