//! Which slips of the finger lead from the name of a provider to a typed name.
//!
//! This module has no lists: `unlisted_rules` has the providers, and decides what a slip means.

/// Two neighbours swapped, or a double letter in place of a single one or the reverse.
const SWAP_COST: u8 = 5;
/// A letter missing or at a near place, a key beside the right one, or one vowel for another.
const NEAR_SLIP_COST: u8 = 6;
/// Another edit of one letter, if it is likely.
const OTHER_SLIP_COST: u8 = 9;
/// The additional cost of a slip in the first letter, because people mistype it least.
const FIRST_LETTER_EXTRA_COST: u8 = 2;
/// The additional cost if the first letter is missing.
const FIRST_MISSING_EXTRA_COST: u8 = 4;
/// The additional cost of a provider that is not among the largest, if a name may mean several.
const SMALL_PROVIDER_EXTRA_COST: u8 = 4;
/// The highest cost of slips that are likely.
const MAX_LIKELY_COST: u8 = 2 * NEAR_SLIP_COST;
/// The cost of slips that are not likely: it is above every limit.
const UNLIKELY_COST: u8 = 100;
/// A longer label with `mail` in it is a name: `mail`, `email` and `e-mail` are words.
const MAX_MAIL_WORD_BYTES: usize = 6;
/// The longest label and the longest suffix that are compared, in bytes.
const MAX_COMPARED_BYTES: usize = 20;

/// Whether the suffix behind the first label of a typed name is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuffixState {
    /// The text is a public suffix, and its top-level domain exists.
    Exists,
    /// The text is no public suffix, but its top-level domain exists.
    IsNoSuffix,
    /// The top-level domain does not exist.
    HasNoTld,
}

/// A name as a person typed it.
#[derive(Clone, Copy)]
pub(super) struct TypedName<'n> {
    name: &'n str,
    label: &'n str,
    suffix: &'n str,
    suffix_state: SuffixState,
    letters: u32,
}

impl<'n> TypedName<'n> {
    /// Splits a name behind its first label. `None` if the name is too long to be compared.
    pub(super) fn new(name: &'n str, suffix_state: SuffixState) -> Option<TypedName<'n>> {
        let (label, suffix) = name.split_once('.')?;
        let is_compared = label.len().max(suffix.len()) <= MAX_COMPARED_BYTES;
        let letters = letter_bits(label);
        is_compared.then_some(TypedName { name, label, suffix, suffix_state, letters })
    }
}

/// Finds the provider that a user meant by a mistyped name.
pub(super) struct MistypedProviderFinder {
    /// The labels of the largest providers.
    large_labels: Vec<ProviderLabel>,
    /// The other labels, the shortest first.
    small_labels: Vec<ProviderLabel>,
    largest_count: usize,
}

/// A first label of providers, such as `hotmail`.
struct ProviderLabel {
    label: String,
    letters: u32,
    /// Whether one of the providers is among the largest. Then two slips may lead to the label.
    is_large: bool,
    providers: Vec<Provider>,
}

struct Provider {
    name: String,
    suffix_start: usize,
    /// The place in the order of the providers, the largest first.
    rank: usize,
    /// Whether the provider has no other domain with the same label.
    is_sole_domain: bool,
}

impl MistypedProviderFinder {
    /// `largest` and `others` are the names of providers, each in the order in which they are
    /// suggested. `sole_domains` are those that have no other domain with the same label.
    pub(super) fn new(
        largest: &[String],
        others: &[String],
        sole_domains: &[String],
    ) -> MistypedProviderFinder {
        let mut labels: Vec<ProviderLabel> = Vec::new();
        for (rank, name) in largest.iter().chain(others).enumerate() {
            let Some((label, _)) = name.split_once('.') else { continue };
            let provider = Provider {
                name: name.clone(),
                suffix_start: label.len() + 1,
                rank,
                is_sole_domain: sole_domains.contains(name),
            };
            match labels.iter_mut().find(|it| it.label == label) {
                Some(known) => known.providers.push(provider),
                None => labels.push(ProviderLabel {
                    label: label.to_owned(),
                    letters: letter_bits(label),
                    is_large: rank < largest.len(),
                    providers: vec![provider],
                }),
            }
        }
        labels.sort_by_key(|label| label.label.len());
        let (large_labels, small_labels) = labels.into_iter().partition(|label| label.is_large);
        MistypedProviderFinder { large_labels, small_labels, largest_count: largest.len() }
    }

    /// The names of all providers, those with the same label side by side.
    pub(super) fn providers(&self) -> impl Iterator<Item = &str> {
        let labels = self.large_labels.iter().chain(&self.small_labels);
        labels.flat_map(|label| &label.providers).map(|provider| &*provider.name)
    }

    /// Finds the provider that a label without a suffix means: `gmail`, `protonmail`. Only names
    /// that mean nothing else count: `mail`, `online` and `planet` are words.
    pub(super) fn find_by_bare_label(&self, name: &str) -> Option<&str> {
        let labels = self.large_labels.iter().chain(&self.small_labels);
        let mut same = labels.filter(|label| label.label == name);
        let is_clear = |label: &&ProviderLabel| {
            label.is_large || name.contains("mail") && name.len() > MAX_MAIL_WORD_BYTES
        };
        Some(&same.find(is_clear)?.providers.first()?.name)
    }

    /// Finds the large provider below `com` that a word means by a slip: its label with two letters
    /// swapped, or with a letter doubled or halved (`gmial`), or its whole name without a dot and
    /// with a slip in `com` (`gmailcon`). Other slips lead to words: `mail`.
    pub(super) fn find_by_mistyped_word(&self, name: &str) -> Option<&str> {
        const COM: &str = "com";
        let is_slip_of_com = |end: &str| {
            let cost = compute_edit_cost(end.as_bytes(), COM.as_bytes());
            (1..=NEAR_SLIP_COST + FIRST_LETTER_EXTRA_COST).contains(&cost)
        };
        let means = |label: &&ProviderLabel| {
            compute_edit_cost(name.as_bytes(), label.label.as_bytes()) == SWAP_COST
                || name.strip_prefix(&label.label).is_some_and(is_slip_of_com)
        };
        let label = self.large_labels.iter().find(means)?;
        let is_com = |it: &&Provider| it.suffix() == COM;
        Some(&label.providers.iter().find(is_com)?.name)
    }

    /// Whether slips may lead from one of the largest providers to a name that begins with this
    /// label. Quick, and false for nearly all names.
    pub(super) fn may_be_slip_of_largest(&self, label: &str) -> bool {
        let mut letters = None;
        self.large_labels.iter().any(|large| {
            large.has_near_length(label)
                && large.has_near_letters(*letters.get_or_insert_with(|| letter_bits(label)))
        })
    }

    /// Whether slips lead from one of the largest providers to the typed name.
    pub(super) fn is_slip_of_largest(&self, typed: &TypedName<'_>) -> bool {
        let mut costs = self.large_labels.iter().flat_map(|label| label.compute_slip_costs(typed));
        costs.any(|(_, provider)| provider.rank < self.largest_count)
    }

    /// Finds the provider that the user probably meant: the one with the lowest cost of slips.
    pub(super) fn find_meant_provider(&self, typed: &TypedName<'_>) -> Option<&str> {
        let length = typed.label.len();
        let start = self.small_labels.partition_point(|label| label.label.len() + 1 < length);
        let end = self.small_labels.partition_point(|label| label.label.len() <= length + 1);
        let small_labels = self.small_labels.get(start..end).unwrap_or_default();
        let of_small = small_labels.iter().flat_map(|label| label.compute_slip_costs(typed));
        let of_small =
            of_small.map(|(cost, provider)| (cost + SMALL_PROVIDER_EXTRA_COST, provider));
        let of_large = self.large_labels.iter().flat_map(|label| label.compute_slip_costs(typed));
        let nearest = of_large.chain(of_small).min_by_key(|(cost, it)| (*cost, it.rank));
        nearest.map(|(_, provider)| &*provider.name)
    }
}

impl ProviderLabel {
    /// Lists the providers of this label that a user may have mistyped as the typed name, each with
    /// the cost of the slips. Leaves out a provider if the cost is too high for its name, or if the
    /// typed name is the provider's own.
    fn compute_slip_costs(&self, typed: &TypedName<'_>) -> impl Iterator<Item = (u8, &Provider)> {
        let is_near = self.has_near_length(typed.label)
            && self.has_near_letters(typed.letters)
            && (self.is_large || differ_in_three_letters(typed.label, &self.label));
        let providers = if is_near { &*self.providers } else { &[] };
        let mut label_cost = None;
        providers.iter().filter_map(move |provider| {
            if provider.differs_only_in_dots(typed.name) {
                return Some((SWAP_COST, provider));
            }
            let is_same_label = self.label == typed.label;
            let suffix_cost = self.find_suffix_cost(provider, is_same_label, typed)?;
            if is_same_label {
                return (suffix_cost > 0).then_some((suffix_cost, provider));
            }
            let label_cost =
                *label_cost.get_or_insert_with(|| self.compute_label_cost(typed.label));
            let is_likely = label_cost <= self.max_label_cost(provider, suffix_cost, typed);
            is_likely.then(|| (label_cost + suffix_cost, provider))
        })
    }

    /// The most edits that lead from the label to a typed one.
    fn max_edits(&self) -> usize {
        if self.is_large { 2 } else { 1 }
    }

    fn has_near_length(&self, typed: &str) -> bool {
        let max_difference = if self.label.len() > 5 { self.max_edits() } else { 1 };
        self.label.len().abs_diff(typed.len()) <= max_difference
    }

    /// Whether the allowed edits can change the typed set of letters into the set of the label. An
    /// edit changes at most two letters of the set; the edit from `m` to `rn` changes three.
    fn has_near_letters(&self, typed_letters: u32) -> bool {
        let clear_lowest_bit = |bits: u32| bits & bits.wrapping_sub(1);
        let bits = self.letters ^ typed_letters;
        let without_three = clear_lowest_bit(clear_lowest_bit(clear_lowest_bit(bits)));
        match self.is_large {
            true => clear_lowest_bit(without_three) == 0,
            false => without_three == 0,
        }
    }

    fn compute_label_cost(&self, typed: &str) -> u8 {
        let (typed, label) = (typed.as_bytes(), self.label.as_bytes());
        match label.len() {
            ..=2 => UNLIKELY_COST,
            3 | 4 => compute_short_label_cost(typed, label),
            _ => compute_edit_cost(typed, label),
        }
    }

    /// The highest cost that the slips in the label may have.
    fn max_label_cost(&self, provider: &Provider, suffix_cost: u8, typed: &TypedName<'_>) -> u8 {
        let (length, is_com) = (self.label.len(), provider.name.ends_with(".com"));
        // A name that is shorter than a short one is often a real one.
        let is_too_short = length <= 5 && typed.label.len() < length;
        match (suffix_cost, typed.suffix_state) {
            (0, _) if self.is_large && is_too_short => NEAR_SLIP_COST + FIRST_MISSING_EXTRA_COST,
            (0, _) if self.is_large && is_com && length > 5 => 2 * NEAR_SLIP_COST,
            (0, _) if self.is_large && (is_com || length > 5) => SWAP_COST + NEAR_SLIP_COST,
            (0, _) if !self.is_large && length > 6 => NEAR_SLIP_COST + FIRST_MISSING_EXTRA_COST,
            (0, _) if self.is_large || length > 5 => OTHER_SLIP_COST,
            (0, _) if is_too_short => SWAP_COST,
            (0, _) => NEAR_SLIP_COST,
            (_, SuffixState::Exists) if self.is_large => NEAR_SLIP_COST,
            (_, SuffixState::Exists) => 0,
            _ if self.is_large => OTHER_SLIP_COST,
            _ if length > 4 => NEAR_SLIP_COST,
            _ => 0,
        }
    }

    fn has_com_provider(&self) -> bool {
        self.providers.iter().any(|provider| provider.suffix() == "com")
    }

    /// Finds the cost of the slips in the suffix. `None` if the user probably meant the typed
    /// suffix.
    fn find_suffix_cost(
        &self,
        provider: &Provider,
        is_same_label: bool,
        typed: &TypedName<'_>,
    ) -> Option<u8> {
        let suffix = provider.suffix();
        if typed.suffix == suffix {
            return Some(0);
        }
        if typed.suffix == "c" {
            // Far more people stop within `com` than within `ca` or `cz`. Only a long label that
            // is no provider below `com` means another suffix.
            let is_meant = suffix == "com" || self.label.len() > 5 && !self.has_com_provider();
            return (is_meant && suffix.starts_with('c')).then_some(NEAR_SLIP_COST);
        }
        if is_same_label && self.label.len() > 2 && provider.is_meant_by_doubled_country(typed) {
            return Some(OTHER_SLIP_COST);
        }
        if self.changes_country(provider, typed) {
            return None;
        }
        if typed.suffix_state != SuffixState::Exists {
            let cost = compute_edit_cost(typed.suffix.as_bytes(), suffix.as_bytes());
            let limit = if suffix.len() <= 2 {
                NEAR_SLIP_COST + FIRST_MISSING_EXTRA_COST
            } else {
                2 * NEAR_SLIP_COST
            };
            return (cost <= limit).then_some(cost);
        }
        // Nearly every name of two letters is a real one.
        let is_one_letter_short = self.label.len() > 2
            && matches!((suffix, typed.suffix), ("com", "cm" | "co" | "om") | ("net", "ne"));
        if is_one_letter_short && (self.is_large || is_same_label) {
            return Some(NEAR_SLIP_COST);
        }
        // `uk` for `co.uk`, and `net` for `com`.
        let missing = suffix.strip_suffix(typed.suffix).unwrap_or_default();
        let is_generic = self.is_large && suffix == "com" && matches!(typed.suffix, "net" | "org");
        let is_slip = matches!(missing, "co." | "com.") || is_generic || provider.is_sole_domain;
        (is_same_label && is_slip).then_some(OTHER_SLIP_COST)
    }

    /// Whether the provider has a compound suffix of another country than the typed one (`co.in`
    /// for `co.un`), and the typed country may be meant: it exists, or a slip in it leads from
    /// several providers of the label.
    fn changes_country(&self, provider: &Provider, typed: &TypedName<'_>) -> bool {
        let (Some((typed_second, typed_country)), Some((_, country))) =
            (typed.suffix.rsplit_once('.'), provider.suffix().rsplit_once('.'))
        else {
            return false;
        };
        if typed_country == country {
            return false;
        }
        let is_slip_of = |it: &Provider| {
            it.suffix().rsplit_once('.').is_some_and(|(second, _)| second == typed_second)
                && compute_edit_cost(typed.suffix.as_bytes(), it.suffix().as_bytes())
                    <= OTHER_SLIP_COST
        };
        let is_only_one = self.providers.iter().filter(|it| is_slip_of(it)).count() == 1;
        typed.suffix_state != SuffixState::HasNoTld || !is_slip_of(provider) || !is_only_one
    }
}

impl Provider {
    fn suffix(&self) -> &str {
        &self.name[self.suffix_start..]
    }

    /// Whether the typed suffix is `com` or `co` before a country, and the provider is the one of
    /// this country, or the only one with its label: `yahoo.com.fr` for `yahoo.fr`.
    fn is_meant_by_doubled_country(&self, typed: &TypedName<'_>) -> bool {
        let country = typed.suffix.strip_prefix("com.").or(typed.suffix.strip_prefix("co."));
        let is_country = |it: &&str| it.len() == 2 && typed.suffix_state != SuffixState::HasNoTld;
        let Some(country) = country.filter(is_country) else { return false };
        let before = self.suffix().strip_suffix(country);
        self.is_sole_domain || matches!(before, Some("" | "co." | "com."))
    }

    /// Whether the names differ only in their dots: a dot is at a wrong place (`gmailc.om`),
    /// missing or needless.
    fn differs_only_in_dots(&self, name: &str) -> bool {
        fn letters(name: &str) -> impl Iterator<Item = u8> + '_ {
            name.bytes().filter(|byte| *byte != b'.')
        }
        self.name.len().abs_diff(name.len()) <= 1
            && self.name != name
            && letters(&self.name).eq(letters(name))
    }
}

/// Whether two labels differ in three letters side by side at most, as after one edit.
fn differ_in_three_letters(label: &str, other: &str) -> bool {
    let (label, other) = (label.as_bytes(), other.as_bytes());
    let prefix = label.iter().zip(other).take_while(|(a, b)| a == b).count();
    let rest = label[prefix..].iter().rev().zip(other[prefix..].iter().rev());
    let suffix = rest.take_while(|(a, b)| a == b).count();
    label.len().max(other.len()) - prefix - suffix <= 3
}

/// A bit for each letter. Other characters share the bits of letters.
fn letter_bits(label: &str) -> u32 {
    label.bytes().fold(0, |bits, byte| bits | 1 << (byte % 32))
}

/// Finds the cost of a slip in a label of three or four letters. Most names that are so near are
/// real. So only a doubled letter counts, and in four letters a swap as well.
fn compute_short_label_cost(typed: &[u8], label: &[u8]) -> u8 {
    let is_considered = typed.len() > label.len() || label.len() == 4 && typed.len() == label.len();
    match compute_edit_cost(typed, label) {
        SWAP_COST if is_considered => SWAP_COST,
        _ => UNLIKELY_COST,
    }
}

/// The cost of the cheapest slips that lead from the meant text to the typed text. This is the
/// distance of optimal string alignment (Damerau 1964, Levenshtein 1966) with a cost for each kind
/// of slip and two more slips: a letter that moves by two places, and `rn` for `m`. The cost is
/// [`UNLIKELY_COST`] if the slips are not likely, or if a text is longer than
/// [`MAX_COMPARED_BYTES`].
fn compute_edit_cost(typed: &[u8], meant: &[u8]) -> u8 {
    if typed.len().max(meant.len()) > MAX_COMPARED_BYTES {
        return UNLIKELY_COST;
    }
    let mut costs = [[UNLIKELY_COST; MAX_COMPARED_BYTES + 1]; MAX_COMPARED_BYTES + 1];
    costs[0][0] = 0;
    let mut last_likely = 0;
    for t in 0..=typed.len() {
        // A row depends on the three rows before it.
        if t > last_likely + 3 {
            return UNLIKELY_COST;
        }
        // Two edits shift a letter by at most two places.
        for m in t.saturating_sub(2)..=(t + 2).min(meant.len()) {
            let mut cheapest = costs[t][m];
            let mut offer = |before: u8, cost: u8| {
                cheapest = cheapest.min(before.saturating_add(cost));
            };
            if t > 0 {
                offer(costs[t - 1][m], cost_of_extra(typed, t - 1));
            }
            if m > 0 {
                offer(costs[t][m - 1], cost_of_missing(meant, m - 1));
            }
            if t > 0 && m > 0 {
                let is_first = t == 1 && m == 1;
                let cost = cost_of_replaced(typed[t - 1], meant[m - 1], is_first);
                offer(costs[t - 1][m - 1], cost);
            }
            if t > 1 && m > 1 && typed[t - 2..t] == [meant[m - 1], meant[m - 2]] {
                offer(costs[t - 2][m - 2], SWAP_COST);
            }
            if t > 2 && m > 2 && is_rotated(&typed[t - 3..t], &meant[m - 3..m]) {
                offer(costs[t - 3][m - 3], NEAR_SLIP_COST);
            }
            if t > 1 && m > 0 && typed[t - 2..t] == *b"rn" && meant[m - 1] == b'm' {
                offer(costs[t - 2][m - 1], NEAR_SLIP_COST);
            }
            costs[t][m] = cheapest;
            if cheapest <= MAX_LIKELY_COST {
                last_likely = t;
            }
        }
    }
    costs[typed.len()][meant.len()]
}

/// Whether one letter of three stands two places too early or too late: `icould`.
fn is_rotated(typed: &[u8], meant: &[u8]) -> bool {
    *typed == [meant[1], meant[2], meant[0]] || *typed == [meant[2], meant[0], meant[1]]
}

/// The cost of a letter that the user typed and did not mean.
fn cost_of_extra(typed: &[u8], at: usize) -> u8 {
    let letter = typed[at];
    let before = at.checked_sub(1).map(|before| typed[before]);
    let mut neighbours = before.into_iter().chain(typed.get(at + 1).copied());
    if letter.is_ascii_alphabetic() && before == Some(letter) {
        return SWAP_COST;
    }
    match neighbours.any(|other| are_keys_near(letter, other)) {
        true if at == 0 => NEAR_SLIP_COST + FIRST_LETTER_EXTRA_COST,
        true => NEAR_SLIP_COST,
        // Numbers and letters before a name are chosen, not mistyped.
        false if at == 0 || letter.is_ascii_digit() => UNLIKELY_COST,
        false => OTHER_SLIP_COST,
    }
}

/// The cost of a letter that the user meant and did not type.
fn cost_of_missing(meant: &[u8], at: usize) -> u8 {
    match at.checked_sub(1) {
        Some(before) if meant[before] == meant[at] => SWAP_COST,
        Some(_) => NEAR_SLIP_COST,
        None => NEAR_SLIP_COST + FIRST_MISSING_EXTRA_COST,
    }
}

fn cost_of_replaced(typed: u8, meant: u8, is_first: bool) -> u8 {
    let is_vowel = |letter: u8| b"aeiou".contains(&letter);
    match typed == meant {
        true => 0,
        false if are_keys_near(typed, meant) => {
            NEAR_SLIP_COST + if is_first { FIRST_LETTER_EXTRA_COST } else { 0 }
        }
        false if is_first || typed.is_ascii_digit() => UNLIKELY_COST,
        false if is_vowel(typed) && is_vowel(meant) => NEAR_SLIP_COST,
        false => OTHER_SLIP_COST,
    }
}

/// Whether two keys are neighbours on a QWERTY keyboard, or their characters look alike.
fn are_keys_near(key: u8, other: u8) -> bool {
    /// A bit for each key that is near a key: those of [`bit_of_key`].
    static NEAR_KEYS: [u64; 256] = {
        let mut bits = [0; 256];
        let mut key = 0;
        while key < bits.len() {
            let near = keys_near(key as u8);
            let mut at = 0;
            while at < near.len() {
                bits[key] |= bit_of_key(near[at]);
                at += 1;
            }
            key += 1;
        }
        bits
    };
    NEAR_KEYS[usize::from(key)] & bit_of_key(other) != 0
}

/// Returns the bit of a letter or digit; 0 for another key.
const fn bit_of_key(key: u8) -> u64 {
    match key {
        b'a'..=b'z' => 1 << (key - b'a'),
        b'0'..=b'9' => 1 << (26 + key - b'0'),
        _ => 0,
    }
}

const fn keys_near(key: u8) -> &'static [u8] {
    match key {
        b'0' => b"op",
        b'1' => b"liq",
        b'2' => b"qw",
        b'3' => b"we",
        b'4' => b"er",
        b'5' => b"rts",
        b'6' => b"ty",
        b'7' => b"yu",
        b'8' => b"ui",
        b'9' => b"io",
        b'a' => b"qwsz",
        b'b' => b"ghvn",
        b'c' => b"dfxv",
        b'd' => b"ersfxc",
        b'e' => b"34wrsd",
        b'f' => b"rtdgcv",
        b'g' => b"tyfhvb",
        b'h' => b"yugjbn",
        b'i' => b"189uojkl",
        b'j' => b"uihknm",
        b'k' => b"iojlm",
        b'l' => b"1iopk",
        b'm' => b"jkn",
        b'n' => b"hjbm",
        b'o' => b"09ipkl",
        b'p' => b"0ol",
        b'q' => b"12wa",
        b'r' => b"45etdf",
        b's' => b"5wedazx",
        b't' => b"56ryfg",
        b'u' => b"78yihj",
        b'v' => b"fgcb",
        b'w' => b"23qeas",
        b'x' => b"sdzc",
        b'y' => b"67tugh",
        b'z' => b"asx",
        _ => b"",
    }
}

#[cfg(test)]
mod tests;
