//! Words for a number of things.

use std::fmt;

/// A number and what it counts: `1 key`, `2 keys`. The noun is given in the singular, and its
/// plural ends in s.
#[derive(Clone, Copy, Debug)]
pub struct CountedNoun<'a>(pub usize, pub &'a str);

impl fmt::Display for CountedNoun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CountedNoun(count, noun) = self;
        write!(f, "{count} {noun}{}", if *count == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests;
