//! Fields whose values are lists.

/// Iterates over the members of a list, without empty members (RFC 9110 section 5.6.1.2).
pub fn members_of_list(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let members = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.filter(|member| !member.is_empty())
}

/// Returns true if a value of `Expect` has the member `100-continue` (RFC 9110 section 10.1.1).
pub fn expects_continue<'v>(mut values: impl Iterator<Item = &'v [u8]>) -> bool {
    values.any(|value| members_of_list(value).any(is_continue))
}

/// Returns true if a member of `Expect` is `100-continue`.
pub(super) fn is_continue(member: &[u8]) -> bool {
    member.eq_ignore_ascii_case(b"100-continue")
}
