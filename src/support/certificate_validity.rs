//! Whether a certificate is valid now, and for how long.

use std::fmt;

use super::counted::CountedNoun;
use crate::model::month::SECONDS_PER_DAY;

/// A certificate that expires in fewer days than these was probably not renewed.
const MIN_DAYS: i64 = 14;

/// The time during which clients accept a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidityPeriod {
    /// The first second.
    pub begins_at: i64,
    /// The last second.
    pub expires_at: i64,
}

/// Whether a certificate is valid, in whole days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateValidity {
    /// The certificate becomes valid in this number of days.
    NotYet(i64),
    /// The certificate expired this number of days ago.
    Expired(i64),
    /// The certificate expires in this number of days, and was probably not renewed.
    Soon(i64),
    /// The certificate expires in this number of days.
    Later(i64),
}

impl CertificateValidity {
    /// Judges a certificate at a time in Unix seconds.
    pub fn judge(period: ValidityPeriod, now: i64) -> CertificateValidity {
        if now < period.begins_at {
            return CertificateValidity::NotYet((period.begins_at - now) / SECONDS_PER_DAY);
        }
        let left = period.expires_at - now;
        let days = left / SECONDS_PER_DAY;
        match (left, days) {
            (..0, _) => CertificateValidity::Expired(-days),
            (_, ..MIN_DAYS) => CertificateValidity::Soon(days),
            _ => CertificateValidity::Later(days),
        }
    }

    /// Returns true if clients accept the certificate now.
    pub fn is_valid(self) -> bool {
        matches!(self, CertificateValidity::Soon(_) | CertificateValidity::Later(_))
    }

    /// Says that a certificate is not valid now; `None` if it is.
    pub fn problem(self) -> Option<String> {
        let problem = || format!("expected a certificate that is valid, but found one that {self}");
        (!self.is_valid()).then(problem)
    }

    /// Returns what the operator should do; `None` if nothing.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            CertificateValidity::NotYet(_) => Some(
                "see that the clock is right, or put one there that is valid now; riskgate reads \
                 a new file by itself",
            ),
            CertificateValidity::Expired(_) => {
                Some("renew it; riskgate reads a new file by itself")
            }
            CertificateValidity::Soon(_) => {
                Some("look why it was not renewed; riskgate reads a new file by itself")
            }
            CertificateValidity::Later(_) => None,
        }
    }
}

impl fmt::Display for CertificateValidity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateValidity::NotYet(days) => write!(f, "becomes valid in {}", Days(*days)),
            CertificateValidity::Expired(days) => write!(f, "expired {} ago", Days(*days)),
            CertificateValidity::Soon(days) | CertificateValidity::Later(days) => {
                write!(f, "expires in {}", Days(*days))
            }
        }
    }
}

/// A number of whole days.
struct Days(i64);

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.0) {
            Ok(days @ 1..) => write!(f, "{}", CountedNoun(days, "day")),
            _ => f.write_str("less than a day"),
        }
    }
}

#[cfg(test)]
mod tests;
