//! The id of a request: the caller's, or one of ours.
//!
//! Owns what an id may hold, and that no key ever becomes one: ids are logged and passed on. It
//! reads no header.

use std::fmt;
use std::hash::Hasher;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip128::{Hasher128, SipHasher13};

/// The longest id that is taken from a caller, in bytes.
const MAX_ID_LENGTH: usize = 128;

/// An id of 1 to 128 visible ASCII characters; none yet when empty.
#[derive(Clone, Copy)]
pub struct RequestId {
    bytes: [u8; MAX_ID_LENGTH],
    length: u8,
}

impl RequestId {
    /// The caller's id, if it may be one.
    pub fn parse(id: &[u8]) -> Option<RequestId> {
        let visible = id.iter().all(u8::is_ascii_graphic);
        ((1..=MAX_ID_LENGTH).contains(&id.len()) && visible).then(|| RequestId::from_ascii(id))
    }

    fn from_ascii(id: &[u8]) -> RequestId {
        let mut bytes = [0; MAX_ID_LENGTH];
        bytes[..id.len()].copy_from_slice(id);
        RequestId { bytes, length: id.len() as u8 }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // It is ASCII: nothing else is let in.
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl Default for RequestId {
    fn default() -> RequestId {
        RequestId { bytes: [0; MAX_ID_LENGTH], length: 0 }
    }
}

impl Deref for RequestId {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Makes ids: 128 bits each, a counter under SipHash with a random key, so that nobody can tell
/// the next one from those before.
pub struct RequestIdGenerator {
    key: [u8; 16],
    count: AtomicU64,
}

impl RequestIdGenerator {
    /// Draws the key.
    pub fn new() -> RequestIdGenerator {
        let mut key = [0; 16];
        // Without random bits ids repeat from run to run, which costs nobody an answer.
        let _ = getrandom::fill(&mut key);
        RequestIdGenerator { key, count: AtomicU64::new(0) }
    }

    /// One more id, in hexadecimal.
    pub fn generate(&self) -> RequestId {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u64(self.count.fetch_add(1, Ordering::Relaxed));
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(hasher.finish128().as_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        RequestId::from_ascii(&text)
    }
}

impl Default for RequestIdGenerator {
    fn default() -> RequestIdGenerator {
        RequestIdGenerator::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_ascii_of_some_length_is_an_id() {
        assert_eq!(RequestId::parse(b"a-1").unwrap().as_str(), "a-1");
        assert_eq!(RequestId::parse(&[b'x'; 128]).unwrap().len(), 128);
        for bad in [b"".as_slice(), &[b'x'; 129], b"a b", b"a\xc3\xa9", b"a\x7f"] {
            assert!(RequestId::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn ids_differ_between_calls_and_between_runs() {
        let (one, other) = (RequestIdGenerator::new(), RequestIdGenerator::new());
        let mut all: Vec<String> = (0..1_000)
            .flat_map(|_| [one.generate().to_string(), other.generate().to_string()])
            .collect();
        assert!(all.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2_000);
    }
}
