//! Comparisons of header field names, without regard to case.

/// The start of the names that riskgate reserves for its own fields.
pub const RISKGATE_FIELD_PREFIX: &str = "x-riskgate";

/// Returns true if the name begins with this prefix, without regard to case.
pub fn has_prefix_ignore_case(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

/// A set of header field names, in lower case.
pub struct FieldNameSet<const N: usize> {
    names: [&'static str; N],
    /// A bit for each length of a name in the set.
    lengths: u64,
}

impl<const N: usize> FieldNameSet<N> {
    /// Creates the set of these names.
    pub const fn new(names: [&'static str; N]) -> FieldNameSet<N> {
        let mut lengths = 0;
        let mut index = 0;
        while index < N {
            lengths |= length_bit(names[index].len());
            index += 1;
        }
        FieldNameSet { names, lengths }
    }

    /// Returns true if the name is in the set. The length alone rules out most names.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name.len()) != 0
            && self.names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    }
}

/// Returns the bit for a length. Lengths from 63 on share the last bit.
const fn length_bit(length: usize) -> u64 {
    1 << if length < 63 { length } else { 63 }
}

#[cfg(test)]
mod tests;
