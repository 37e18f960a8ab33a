//! How many names of a body riskgate reads in all ways, to limit its work.

use super::field_path::FieldPath;

/// The most names that riskgate decodes in one reading of a form, to compare them with the fields.
const MAX_DECODED_NAMES: usize = 4_096;
/// The most names of a form that riskgate compares with all spellings of the fields.
const MAX_COSTLY_NAMES: usize = 256;
/// The most names of all parts of a body, beside one name of each part.
const MAX_FURTHER_NAMES: usize = 128;

/// How many costly names of a body riskgate may still read, so that a body of 64 KiB does not take
/// long.
pub(super) struct NameBudget {
    /// Names that must be decoded.
    decoded: usize,
    /// Names that must be compared with all spellings of a field.
    costly: usize,
    /// Names of parts that have another name already.
    further: usize,
}

impl Default for NameBudget {
    fn default() -> NameBudget {
        NameBudget {
            decoded: MAX_DECODED_NAMES,
            costly: MAX_COSTLY_NAMES,
            further: MAX_FURTHER_NAMES,
        }
    }
}

impl NameBudget {
    /// Returns true if riskgate may decode one more name.
    pub(super) fn allows_to_decode(&mut self) -> bool {
        try_use(1, &mut self.decoded)
    }

    /// Returns true if riskgate may compare this name with the fields.
    pub(super) fn allows_to_compare(&mut self, name: &str, fields: &[FieldPath]) -> bool {
        !fields.iter().any(|field| field.is_costly_to_match(name)) || try_use(1, &mut self.costly)
    }

    /// Returns true if riskgate may read all names of a part with at most this many names.
    pub(super) fn allows_part(&mut self, name_count: usize) -> bool {
        try_use(name_count.saturating_sub(1), &mut self.further)
    }
}

/// Subtracts as many names as asked. Returns false, and subtracts the rest, if fewer are left.
fn try_use(count: usize, left: &mut usize) -> bool {
    let has_all = count <= *left;
    *left = left.saturating_sub(count);
    has_all
}
