//! How commands show what a check has found.

use serde_json::json;

use super::failure::CommandFailure;
use super::output::{escape_controls, print_result};
use crate::store::Finding;

/// Prints one line for each finding, or a JSON object. Fails if a finding is a fault. The message
/// then says that `subject`, such as `the store`, has a fault.
pub(super) fn print_findings(
    findings: &[Finding],
    json: bool,
    subject: &str,
) -> Result<(), CommandFailure> {
    let text = match json {
        true => {
            let objects = findings.iter().map(|it| {
                json!({
                    "subject": it.subject, "level": it.level.as_str(), "found": it.found,
                    "advice": it.advice,
                })
            });
            format!("{}\n", json!({ "findings": objects.collect::<Vec<_>>() }))
        }
        false => findings.iter().map(format_finding).collect(),
    };
    print_result(text)?;
    match findings.iter().filter(|it| it.level.is_fault()).count() {
        0 => Ok(()),
        1 => Err(CommandFailure::failed(format!("{subject} has a fault"))),
        count => Err(CommandFailure::failed(format!("{subject} has {count} faults"))),
    }
}

fn format_finding(finding: &Finding) -> String {
    format!("{:<8} {}\n", finding.level.as_str(), describe_finding(finding))
}

/// What was checked, what was found, and what to do about it.
pub(super) fn describe_finding(finding: &Finding) -> String {
    let Finding { subject, found, advice, .. } = finding;
    let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
    // A server may have sent a part of the line.
    escape_controls(&format!("{subject}: {found}{advice}"))
}
