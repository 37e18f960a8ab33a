//! How names look that abusers register in bulk, or make by the thousand below one name.
//!
//! Owns the shapes. The manifest holds the suffixes and words, and the score.

use serde::{Deserialize, Serialize};

/// The lengths of the names that generators make below `short_name_suffixes`.
const SHORT_NAME_LENGTHS: std::ops::RangeInclusive<usize> = 4..=5;
/// The pairs of consonants that are common in words and names. A name with another pair, or without
/// a vowel, is a random one.
const COMMON_CONSONANT_PAIRS: [&str; 101] = [
    "bb", "bl", "br", "bs", "ch", "ck", "cl", "cr", "cs", "ct", "dd", "dg", "dl", "dr", "ds", "ff",
    "fl", "fr", "fs", "ft", "gg", "gh", "gl", "gn", "gr", "gs", "hn", "ht", "kl", "kn", "kr", "ks",
    "kt", "ld", "lf", "lk", "ll", "lm", "ln", "lp", "ls", "lt", "lv", "mb", "mm", "mn", "mp", "ms",
    "nc", "nd", "ng", "nk", "nn", "ns", "nt", "nz", "ph", "pl", "pp", "pr", "ps", "pt", "rb", "rc",
    "rd", "rf", "rg", "rk", "rl", "rm", "rn", "rp", "rr", "rs", "rt", "rv", "rw", "sc", "sh", "sk",
    "sl", "sm", "sn", "sp", "ss", "st", "sw", "tc", "th", "tl", "tr", "ts", "tt", "tw", "wh", "wl",
    "wn", "wr", "ws", "xt", "zz",
];
/// The longest label that counts as a short label.
const MAX_SHORT_LABEL_LEN: usize = 2;

/// The settings under `[rules.bulk]` in the manifest. A suffix is the part of a registrable name
/// behind its first label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BulkNameSettings {
    /// Suffixes below which a name costs about a dollar.
    pub suffixes: Vec<String>,
    /// Suffixes with registrable names below which abusers make names by the hundred.
    #[serde(default)]
    pub subdomain_suffixes: Vec<String>,
    /// Suffixes below which generators register names of four or five random letters.
    pub short_name_suffixes: Vec<String>,
    /// Suffixes with registrable names below which abusers make labels such as `0d` and `7x`.
    pub short_label_suffixes: Vec<String>,
    /// Words in labels below a registrable name. Each word names a service that abusers sign up
    /// with, or that their names pretend to be.
    pub label_words: Vec<String>,
}

impl BulkNameSettings {
    /// Whether an unlisted name is spelled like a bulk registration. `labels_below` are the labels
    /// below the registrable name with their dots, `label` and `suffix` are the two parts of the
    /// registrable name, and `has_mail_word` says whether `label` contains a word such as "mail".
    pub(super) fn is_bulk_name(
        &self,
        labels_below: &str,
        label: &str,
        suffix: &str,
        has_mail_word: bool,
    ) -> bool {
        let has_suffix = |suffixes: &[String]| suffixes.iter().any(|listed| listed == suffix);
        if labels_below.is_empty() {
            let is_number = label.bytes().all(|b| b.is_ascii_digit());
            let is_short_name = SHORT_NAME_LENGTHS.contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_lowercase())
                && !is_pronounceable(label);
            (is_number || has_mail_word) && has_suffix(&self.suffixes)
                || is_short_name && has_suffix(&self.short_name_suffixes)
        } else {
            self.label_words.iter().any(|word| has_part_with_word(labels_below, word))
                || has_suffix(&self.subdomain_suffixes)
                || is_short_label_with_digit(labels_below) && has_suffix(&self.short_label_suffixes)
        }
    }
}

/// Whether letters can be a word or the name of a person: they have a vowel and no rare pair of
/// consonants.
fn is_pronounceable(letters: &str) -> bool {
    let is_vowel = |letter: char| "aeiouy".contains(letter);
    let is_common_pair =
        |pair: &str| pair.contains(is_vowel) || COMMON_CONSONANT_PAIRS.binary_search(&pair).is_ok();
    letters.contains(is_vowel)
        && (2..=letters.len()).all(|end| is_common_pair(&letters[end - 2..end]))
}

/// Whether a part of the labels begins or ends with this word. Parts are separated by dots, hyphens
/// and digits. A word in the middle of another (`grok` in `agrokultura`) says nothing.
fn has_part_with_word(labels_below: &str, word: &str) -> bool {
    let mut parts = labels_below.split(|c: char| !c.is_ascii_alphabetic());
    parts.any(|part| part.starts_with(word) || part.ends_with(word))
}

/// Whether the text is one label of at most two characters, with a digit among them, and its dot.
fn is_short_label_with_digit(labels_below: &str) -> bool {
    let label = labels_below.trim_end_matches('.');
    label.len() <= MAX_SHORT_LABEL_LEN
        && label.bytes().any(|b| b.is_ascii_digit())
        && !label.contains('.')
}
