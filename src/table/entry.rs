//! The entry of a name, the flags of a top-level domain, and the indexes of the answers that every
//! table has.

use super::seen_days::SeenDays;
use crate::model::verdict::Rule;

/// Stands for no answer where an index is expected. The look-up then continues with the parent.
pub(super) const NO_ANSWER: u16 = u16::MAX;

/// The answers that every table has, in the order of their indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FixedAnswer {
    /// For names to which neither a row nor a rule applies.
    Unknown,
    /// For names whose top-level domain does not exist.
    UnknownTld,
    /// For names without a row that are a slip of the finger away from a large provider.
    Typo,
    /// For names without a row that contain a word such as "tempmail".
    ThrowawayName,
    /// For names without a row that contain a word such as "mail".
    MailInName,
    /// For names that receive no mail according to the DNS.
    NoMail,
    /// For names that are parked according to the DNS.
    Parked,
    /// For names without a row in letters that look like Latin ones.
    LookAlike,
    /// For names without a row that are spelled like bulk registrations.
    BulkName,
}

/// The rules of these answers, in the order of [`FixedAnswer`].
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
