//! What a table stores of each name and each top-level domain, and the numbers of the answers that
//! every table has.

use crate::model::verdict::Rule;

/// No answer: the look-up goes on to the next parent.
pub(super) const NO_ANSWER: u16 = u16::MAX;

/// The answers for names without a row.
pub(super) const ANSWER_UNKNOWN: u16 = 0;

/// The answer for names whose top-level domain does not exist.
pub(super) const ANSWER_UNKNOWN_TLD: u16 = 1;

/// The answers of the rules for names without a row.
pub(super) const ANSWER_TYPO: u16 = 2;

/// See above.
pub(super) const ANSWER_THROWAWAY_NAME: u16 = 3;

/// See above.
pub(super) const ANSWER_MAIL_IN_NAME: u16 = 4;

/// The answers for names of which the DNS says that they get no mail.
pub(super) const ANSWER_NO_MAIL: u16 = 5;

/// See above.
pub(super) const ANSWER_PARKED: u16 = 6;

/// The rules of the answers that have a fixed number, in the order of these numbers.
pub(super) const FIXED_RULES: [Rule; 7] = [
    Rule::Unknown,
    Rule::UnknownTld,
    Rule::Typo,
    Rule::ThrowawayName,
    Rule::MailInName,
    Rule::NoMail,
    Rule::Parked,
];

/// How many answers every table has.
pub(super) const FIXED_ANSWER_COUNT: usize = FIXED_RULES.len();

/// The row of a name, as numbers of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// What it says of the name itself; `NONE` for a name that is only a way-mark.
    pub own: u16,
    /// What it says of names below it.
    pub below: u16,
    /// What it says of names below it past a public suffix, which have another owner.
    pub across_suffixes: u16,
    /// Whether there are rows below it; only told of registrable domains.
    pub has_rows_below: bool,
}

/// The top-level domain exists.
pub(super) const TLD_EXISTS: u8 = 1;

/// Its own row says something of every name below it.
pub(super) const TLD_COVERS_ALL: u8 = 2;

/// A row below it says something of names past a public suffix.
pub(super) const TLD_HAS_COVERING_SUFFIX: u8 = 4;
