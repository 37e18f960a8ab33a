//! What `Accept` says about the body of an error.

use super::list::members_of_list;

/// What `Accept` says about problem details, HTML and JSON (RFC 9110 section 12.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedTypes {
    /// Whether a member has another weight than 0.
    has_accepted_member: bool,
    accepts_other_than_problems: bool,
    /// Whether HTML stands before JSON; `None` if `Accept` has neither.
    is_html_first: Option<bool>,
}

impl AcceptedTypes {
    /// Reads all values of `Accept`.
    pub fn read<'v>(values: impl Iterator<Item = &'v [u8]>) -> AcceptedTypes {
        let mut accepted = AcceptedTypes::default();
        values.for_each(|value| accepted.add(value));
        accepted
    }

    /// Reads one more value of `Accept`.
    pub fn add(&mut self, value: &[u8]) {
        for member in members_of_list(value) {
            let media_type = member.split(|byte| *byte == b';').next().unwrap_or_default();
            let is = |name: &[u8]| media_type.trim_ascii().eq_ignore_ascii_case(name);
            if has_zero_weight(member) {
                continue;
            }
            self.has_accepted_member = true;
            self.accepts_other_than_problems |= !is(b"application/problem+json");
            if self.is_html_first.is_none() {
                self.is_html_first = match (is(b"text/html"), is(b"application/json")) {
                    (true, _) => Some(true),
                    (_, true) => Some(false),
                    _ => None,
                };
            }
        }
    }

    /// Whether the client accepts nothing but problem details (RFC 9457).
    pub fn is_problems_only(self) -> bool {
        self.has_accepted_member && !self.accepts_other_than_problems
    }

    /// Whether a person reads the answer: `Accept` names HTML, and does not name JSON before HTML.
    /// Browsers send such a field for forms and links, and Turbo for its forms.
    pub fn is_html_first(self) -> bool {
        self.is_html_first == Some(true)
    }
}

/// Returns true if the member has the weight 0: the client does not accept this type (RFC 9110
/// section 12.4.2).
fn has_zero_weight(member: &[u8]) -> bool {
    let mut parameters = member.split(|byte| *byte == b';').skip(1).map(<[u8]>::trim_ascii);
    parameters.any(|parameter| {
        let weight = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
        weight.is_some_and(|it| !it.is_empty() && it.iter().all(|byte| b"0.".contains(byte)))
    })
}

#[cfg(test)]
mod tests;
