//! What a check of a deployment finds.

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, such as `persistence`.
    pub subject: &'static str,
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
    Ok,
    /// It works, but something may hurt later.
    Warning,
    /// Something does not work, or loses counts.
    Fault,
}

impl FindingLevel {
    /// The name in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            FindingLevel::Ok => "ok",
            FindingLevel::Warning => "warning",
            FindingLevel::Fault => "fault",
        }
    }
}

impl Finding {
    /// Something is as it should be.
    pub fn ok(subject: &'static str, found: impl Into<String>) -> Finding {
        Finding { subject, level: FindingLevel::Ok, found: found.into(), advice: None }
    }

    /// Something may hurt later.
    pub fn warning(
        subject: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        let level = FindingLevel::Warning;
        Finding { subject, level, found: found.into(), advice: Some(advice.into()) }
    }

    /// Something does not work, or loses counts.
    pub fn fault(
        subject: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        let level = FindingLevel::Fault;
        Finding { subject, level, found: found.into(), advice: Some(advice.into()) }
    }
}
