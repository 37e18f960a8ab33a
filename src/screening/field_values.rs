//! What was read from a body, or why nothing was.

/// Why no value was read from a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unscreened {
    /// The body is compressed, or encoded in another way.
    Encoded,
    /// The body is too long, or its length is unknown before it has arrived.
    TooLong,
    /// The type of the body is missing, or is none that is read.
    OtherType,
    /// The body has another charset than UTF-8.
    OtherCharset,
    /// The body breaks the grammar of its type, or servers may read it in different ways.
    Broken,
    /// The body has none of the fields.
    NoField,
}

impl Unscreened {
    /// All causes.
    pub const ALL: [Unscreened; 6] = [
        Unscreened::Encoded,
        Unscreened::TooLong,
        Unscreened::OtherType,
        Unscreened::OtherCharset,
        Unscreened::Broken,
        Unscreened::NoField,
    ];

    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unscreened::Encoded => "encoded",
            Unscreened::TooLong => "too_long",
            Unscreened::OtherType => "other_type",
            Unscreened::OtherCharset => "other_charset",
            Unscreened::Broken => "broken",
            Unscreened::NoField => "no_field",
        }
    }
}

/// The values of the fields in a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldValues {
    /// All values that are not empty, in the order of the body.
    pub values: Vec<String>,
    /// Why there may be further values, which could not be read; `None` if there are none.
    pub unread: Option<Unscreened>,
}

impl FieldValues {
    /// Adds a value as the bytes of the body. Blanks around it do not count: servers remove them.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.push_text(text),
            Err(_) => self.unread = Some(Unscreened::OtherCharset),
        }
    }

    /// Adds a value, unless it is empty or has been read before.
    pub(super) fn push_text(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() && !self.values.iter().any(|value| value == text) {
            self.values.push(text.to_owned());
        }
    }
}
