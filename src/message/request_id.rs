//! The id of a request: the client's id, or a generated id.
//!
//! Owns the grammar of an id, and the generator. The gate looks for keys and e-mail addresses in a
//! client's id, because riskgate logs and forwards ids.

use std::hash::Hasher;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayString;
use siphasher::sip128::{Hasher128, SipHasher13};

/// The longest id that riskgate accepts from a client, in bytes.
const MAX_ID_LENGTH: usize = 128;
/// The length of a generated id, in bytes.
const GENERATED_ID_LENGTH: usize = 32;

/// An id of 1 to 128 visible ASCII characters. The default is empty: no id is set yet.
#[derive(Clone, Debug, Default)]
pub struct RequestId(IdText);

/// The text of an id. A generated id needs no allocation, and moving it moves few bytes.
#[derive(Clone, Debug)]
enum IdText {
    Short(ArrayString<GENERATED_ID_LENGTH>),
    Long(Box<str>),
}

impl Default for IdText {
    fn default() -> IdText {
        IdText::Short(ArrayString::new_const())
    }
}

impl RequestId {
    /// Parses a client's id; `None` if it is not valid.
    pub fn parse(id: &[u8]) -> Option<RequestId> {
        let is_valid =
            (1..=MAX_ID_LENGTH).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
        let id = std::str::from_utf8(id).ok().filter(|_| is_valid)?;
        let text = ArrayString::from(id).map_or_else(|_| IdText::Long(id.into()), IdText::Short);
        Some(RequestId(text))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            IdText::Short(id) => id,
            IdText::Long(id) => id,
        }
    }
}

impl Deref for RequestId {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

/// Generates ids of 128 bits: SipHash with a random key hashes a counter. So nobody can predict the
/// next id from earlier ids.
pub struct RequestIdGenerator {
    siphash_key: [u8; 16],
    generated_count: AtomicU64,
}

impl RequestIdGenerator {
    /// Creates a generator with a random key.
    pub fn new() -> RequestIdGenerator {
        let mut siphash_key = [0; 16];
        // If the system has no random bytes, the key is zero and the ids repeat after a restart. No
        // request fails because of that.
        let _ = getrandom::fill(&mut siphash_key);
        RequestIdGenerator { siphash_key, generated_count: AtomicU64::new(0) }
    }

    /// Returns the next id, in hexadecimal.
    pub fn generate(&self) -> RequestId {
        let mut hasher = SipHasher13::new_with_key(&self.siphash_key);
        hasher.write_u64(self.generated_count.fetch_add(1, Ordering::Relaxed));
        let mut digits = [0; GENERATED_ID_LENGTH];
        // Encoding fails only if `digits` has another length.
        let _ = hex::encode_to_slice(hasher.finish128().as_bytes(), &mut digits);
        let id = ArrayString::from_byte_string(&digits);
        RequestId(id.map_or_else(|_| IdText::default(), IdText::Short))
    }
}

impl Default for RequestIdGenerator {
    fn default() -> RequestIdGenerator {
        RequestIdGenerator::new()
    }
}

#[cfg(test)]
mod tests;
