//! Whether a certificate has expired, or expires soon.

use std::fmt;

use crate::model::month::SECONDS_PER_DAY;

/// A certificate that expires in fewer days than these was probably not renewed.
const MIN_DAYS: i64 = 14;

/// How long a certificate lasts, in whole days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateExpiry {
    /// It expired so many days ago.
    Expired(i64),
    /// It expires in so many days, and was probably not renewed.
    Soon(i64),
    /// It expires in so many days.
    Later(i64),
}

impl CertificateExpiry {
    /// Judges a certificate that expires at a time. Both times are Unix seconds.
    pub fn judge(expires_at: i64, now: i64) -> CertificateExpiry {
        let left = expires_at - now;
        let days = left / SECONDS_PER_DAY;
        match (left, days) {
            (..0, _) => CertificateExpiry::Expired(-days),
            (_, ..MIN_DAYS) => CertificateExpiry::Soon(days),
            _ => CertificateExpiry::Later(days),
        }
    }

    /// Says that a certificate which should be valid has expired; `None` if it has not.
    pub fn problem(self) -> Option<String> {
        let has_expired = matches!(self, CertificateExpiry::Expired(_));
        has_expired
            .then(|| format!("expected a certificate that is valid, but found one that {self}"))
    }

    /// Returns what the operator should do; `None` if nothing.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            CertificateExpiry::Expired(_) => Some("renew it; riskgate reads a new file by itself"),
            CertificateExpiry::Soon(_) => {
                Some("look why it was not renewed; riskgate reads a new file by itself")
            }
            CertificateExpiry::Later(_) => None,
        }
    }
}

impl fmt::Display for CertificateExpiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateExpiry::Expired(days) => write!(f, "expired {days} days ago"),
            CertificateExpiry::Soon(days) | CertificateExpiry::Later(days) => {
                write!(f, "expires in {days} days")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CertificateExpiry::{Expired, Later, Soon};
    use super::*;

    #[test]
    fn a_certificate_has_expired_or_expires_soon_or_later() {
        let now = 1_000 * SECONDS_PER_DAY;
        for (days, expected) in [(-3, Expired(3)), (0, Soon(0)), (13, Soon(13)), (14, Later(14))] {
            assert_eq!(CertificateExpiry::judge(now + days * SECONDS_PER_DAY, now), expected);
        }
        assert_eq!(CertificateExpiry::judge(now - 1, now), Expired(0));
    }
}
