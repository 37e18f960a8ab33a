//! The entry of a name, the flags of a top-level domain, and the indexes of the answers that every
//! table has.

use super::seen_days::SeenDays;
use crate::model::verdict::Rule;

/// Stands for no answer where an index is expected. The look-up then continues with the parent.
pub(super) const NO_ANSWER: u16 = u16::MAX;

/// The index of the answer for names to which neither a row nor a rule applies. The following
/// constants are indexes too.
pub(super) const UNKNOWN_ANSWER_INDEX: u16 = 0;

/// The answer for names whose top-level domain does not exist.
pub(super) const UNKNOWN_TLD_ANSWER_INDEX: u16 = 1;

/// The answer for names without a row that are a slip of the finger away from a large provider.
pub(super) const TYPO_ANSWER_INDEX: u16 = 2;

/// The answer for names without a row that contain a word such as "tempmail".
pub(super) const THROWAWAY_NAME_ANSWER_INDEX: u16 = 3;

/// The answer for names without a row that contain a word such as "mail".
pub(super) const MAIL_IN_NAME_ANSWER_INDEX: u16 = 4;

/// The answer for names that receive no mail according to the DNS.
pub(super) const NO_MAIL_ANSWER_INDEX: u16 = 5;

/// The answer for names that are parked according to the DNS.
pub(super) const PARKED_ANSWER_INDEX: u16 = 6;

/// The answer for names without a row in letters that look like Latin ones.
pub(super) const LOOK_ALIKE_ANSWER_INDEX: u16 = 7;

/// The answer for names without a row that are spelled like bulk registrations.
pub(super) const BULK_NAME_ANSWER_INDEX: u16 = 8;

/// The rules of the answers with a fixed index, in the order of the indexes.
pub(super) const RULES_OF_FIXED_ANSWERS: [Rule; 9] = [
    Rule::Unknown,
    Rule::UnknownTld,
    Rule::Typo,
    Rule::ThrowawayName,
    Rule::MailInName,
    Rule::NoMail,
    Rule::Parked,
    Rule::LookAlike,
    Rule::BulkName,
];

/// What a table stores for a name: the indexes of its answers. Names with equal entries share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameEntry {
    /// The answer for the name itself; [`NO_ANSWER`] if only names below it have rows.
    pub own_answer: u16,
    /// The answer for names below it.
    pub answer_below: u16,
    /// The answer for names below it and below a further public suffix, which have another owner.
    pub answer_across_suffixes: u16,
    /// Whether names below this name have rows. Set only for registrable domains.
    pub has_rows_below: bool,
    /// When sources had the name, if their lists tell this for single names.
    pub seen_days: SeenDays,
}

/// Flag: the top-level domain exists.
pub(super) const TLD_EXISTS: u8 = 1;

/// Flag: the row of the top-level domain itself covers every name below it.
pub(super) const TLD_COVERS_ALL: u8 = 2;

/// Flag: a name below the top-level domain has a row that covers names across public suffixes.
pub(super) const TLD_HAS_ROW_ACROSS_SUFFIXES: u8 = 4;
