//! Findings that wait until a probe has shown that the resolvers still tell the truth.
//!
//! A resolver may begin to deny every name at any time. What it then says looks like the answer
//! about a name that does not exist. So a finding that mail can't reach a name counts only once the
//! resolvers, asked later, still knew the mail hosts of a large provider.

use std::sync::Arc;

use super::finding::DnsFinding;

/// The most findings that are held. While this many are held, the caller resolves no further names.
pub const MAX_HELD_FINDINGS: usize = 10_000;

/// The held findings, each with its name.
#[derive(Default)]
pub struct HeldFindings {
    /// Findings that came before the latest probe began.
    before_probe: Vec<(Arc<str>, DnsFinding)>,
    /// Findings that came since then.
    since_probe: Vec<(Arc<str>, DnsFinding)>,
}

impl HeldFindings {
    /// Holds a finding until a probe that begins later has passed.
    pub fn hold(&mut self, name: Arc<str>, finding: DnsFinding) {
        self.since_probe.push((name, finding));
    }

    /// The number of held findings.
    pub fn count(&self) -> usize {
        self.before_probe.len() + self.since_probe.len()
    }

    /// Notes that a probe begins.
    pub fn note_probe_began(&mut self) {
        self.before_probe.append(&mut self.since_probe);
    }

    /// Takes the findings that came before the latest probe began, because this probe has passed.
    pub fn take_confirmed(&mut self) -> Vec<(Arc<str>, DnsFinding)> {
        std::mem::take(&mut self.before_probe)
    }
}

#[cfg(test)]
mod tests;
