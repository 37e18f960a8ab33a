//! Fields whose values are lists.

/// Iterates over the members of a list, without empty ones (RFC 9110 section 5.6.1.2).
pub fn list_members(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let members = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.filter(|member| !member.is_empty())
}
