//! The top-level domains of a table: which exist, and which have rows that cover suffixes.
//!
//! Every miss asks here, so it is one small hash table of its own, exact, and warm.

use xxhash_rust::xxh3::xxh3_64;

const HEADS: usize = 2048;

/// Flags of top-level domains; 0 for one that is not known.
pub(super) struct Tlds {
    /// For each hash where its texts begin, and behind the last one where they end.
    heads: Vec<u32>,
    /// Flags, length and name of each, in the order of their hashes.
    texts: Vec<u8>,
}

impl Tlds {
    pub(super) fn new(tlds: &[(String, u8)]) -> Tlds {
        let mut sorted: Vec<(usize, &str, u8)> =
            tlds.iter().map(|(name, flags)| (head(name), name.as_str(), *flags)).collect();
        sorted.sort_unstable();
        let mut heads = Vec::with_capacity(HEADS + 1);
        let mut texts = Vec::with_capacity(tlds.len() * 8);
        for (head, name, flags) in sorted {
            heads.resize(head + 1, texts.len() as u32);
            texts.extend_from_slice(&[flags, name.len() as u8]);
            texts.extend_from_slice(name.as_bytes());
        }
        heads.resize(HEADS + 1, texts.len() as u32);
        Tlds { heads, texts }
    }

    pub(super) fn flags(&self, name: &str) -> u8 {
        let head = head(name);
        let range = self.heads[head] as usize..self.heads[head + 1] as usize;
        let mut rest = self.texts.get(range).unwrap_or_default();
        while let Some(([flags, length], after)) = rest.split_first_chunk() {
            let Some((text, after)) = after.split_at_checked(usize::from(*length)) else { break };
            if text == name.as_bytes() {
                return *flags;
            }
            rest = after;
        }
        0
    }
}

fn head(name: &str) -> usize {
    xxh3_64(name.as_bytes()) as usize % HEADS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_flags_and_others_have_none() {
        let all: Vec<(String, u8)> = (0..5000).map(|n| (format!("tld{n}"), n as u8 | 1)).collect();
        let tlds = Tlds::new(&all);
        for (name, flags) in &all {
            assert_eq!(tlds.flags(name), *flags, "{name}");
        }
        assert_eq!(tlds.flags("tld5000"), 0);
        assert_eq!(Tlds::new(&[]).flags("com"), 0);
    }
}
