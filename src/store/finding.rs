//! What a check of a deployment finds.

use std::borrow::Cow;

/// The subject of a fault of a server that is of another kind than the address says. Apart from
/// that, only the version of such a server was checked.
pub const MODE_SUBJECT: &str = "mode";

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, such as `persistence`.
    pub subject: Cow<'static, str>,
    /// How bad it is.
    pub level: FindingLevel,
    /// What was found.
    pub found: String,
    /// What to do about it; `None` if nothing is to be done.
    pub advice: Option<String>,
}

/// How bad a finding is, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLevel {
    /// As it should be.
    Good,
    /// It works, but something may hurt later.
    Warning,
    /// Something does not work, but a gateway runs with it: the server may get what is missing at
    /// any time.
    ToleratedFault,
    /// A gateway can't work with it, or loses counts.
    Fault,
}

impl FindingLevel {
    /// The name in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            FindingLevel::Good => "good",
            FindingLevel::Warning => "warning",
            FindingLevel::ToleratedFault | FindingLevel::Fault => "fault",
        }
    }

    /// Whether something does not work.
    pub const fn is_fault(self) -> bool {
        matches!(self, FindingLevel::ToleratedFault | FindingLevel::Fault)
    }
}

impl Finding {
    /// Something is as it should be.
    pub fn good(subject: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Finding {
        let subject = subject.into();
        Finding { subject, level: FindingLevel::Good, found: found.into(), advice: None }
    }

    /// Something may hurt later.
    pub fn warning(
        subject: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { level: FindingLevel::Warning, ..Finding::fault(subject, found, advice) }
    }

    /// Something does not work, but a gateway runs with it.
    pub fn tolerated_fault(
        subject: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { level: FindingLevel::ToleratedFault, ..Finding::fault(subject, found, advice) }
    }

    /// A gateway can't work with it, or loses counts.
    pub fn fault(
        subject: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        let (level, advice) = (FindingLevel::Fault, Some(advice.into()));
        Finding { level, advice, ..Finding::good(subject, found) }
    }
}
