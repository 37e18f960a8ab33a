//! What was read from a body, and why not all was.

use std::borrow::Cow;

use super::field_path::FieldPath;

/// The most values that are read: no honest form has more. It bounds the work for a body.
const MAX_VALUES: usize = 16;
/// The most addresses of one value that are judged. With more of them, the value does not count as
/// read completely.
pub const MAX_ADDRESSES_IN_VALUE: usize = 8;

/// Why not all values were read from a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadCause {
    /// The body is compressed, or encoded in another way.
    Encoded,
    /// The body is too long, or was not read.
    TooLong,
    /// The type of the body is missing, or is none that is read.
    OtherType,
    /// The body, or a value in it, has a charset that riskgate can't read.
    OtherCharset,
    /// The body breaks the grammar of its type, or servers may read it in different ways.
    Broken,
    /// The body has none of the fields.
    NoField,
}

impl UnreadCause {
    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            UnreadCause::Encoded => "encoded",
            UnreadCause::TooLong => "too_long",
            UnreadCause::OtherType => "other_type",
            UnreadCause::OtherCharset => "other_charset",
            UnreadCause::Broken => "broken",
            UnreadCause::NoField => "no_field",
        }
    }
}

/// The values of the fields in a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldValues {
    /// All values that are not empty, in the order of the body.
    pub values: Vec<String>,
    /// Why there may be further values, which could not be read; `None` if there are none.
    pub unread: Option<UnreadCause>,
}

impl FieldValues {
    /// No values, because they could not be read.
    pub fn unread(cause: UnreadCause) -> FieldValues {
        FieldValues { unread: Some(cause), ..FieldValues::default() }
    }

    /// Removes the values of which not all bytes could be decoded.
    pub(super) fn remove_undecoded_values(&mut self) {
        let count = self.values.len();
        self.values.retain(|value| !value.contains(char::REPLACEMENT_CHARACTER));
        if self.values.len() < count {
            self.mark_unread(UnreadCause::OtherCharset);
        }
    }

    /// Notes that there may be further values. The first cause counts.
    pub fn mark_unread(&mut self, cause: UnreadCause) {
        self.unread.get_or_insert(cause);
    }

    /// Returns the values.
    ///
    /// # Errors
    /// Returns an error if there is no value.
    pub fn or_cause(self) -> Result<FieldValues, UnreadCause> {
        match self.values.is_empty() {
            true => Err(self.unread.unwrap_or(UnreadCause::NoField)),
            false => Ok(self),
        }
    }

    /// Returns true if this is the name of one of `fields`. Then adds its value, unless the name is
    /// that of a part of the field and the value has no `@`. A value that is not UTF-8 marks the
    /// body as unread. Blanks around a value do not count: servers remove them.
    pub(super) fn push_if_field<'v>(
        &mut self,
        name: &str,
        value: impl FnOnce() -> Cow<'v, [u8]>,
        fields: &[FieldPath],
    ) -> bool {
        let Some(field) = fields.iter().find(|field| field.matches_form_name(name)) else {
            return false;
        };
        match std::str::from_utf8(&value()) {
            Ok(text) if field.is_part_of_field(name) && !text.contains('@') => {}
            Ok(text) => self.push_text(text),
            Err(_) => self.mark_unread(UnreadCause::OtherCharset),
        }
        true
    }

    /// Adds all values of `other`.
    pub fn append(&mut self, other: FieldValues) {
        other.values.iter().for_each(|value| self.push_text(value));
        self.unread = self.unread.or(other.unread);
    }

    /// Adds a value, unless it is empty or has been read before.
    pub fn push_text(&mut self, text: &str) {
        let text = text.trim();
        if text.is_empty() || self.values.iter().any(|value| value == text) {
            return;
        }
        if text.matches('@').count() > MAX_ADDRESSES_IN_VALUE {
            self.mark_unread(UnreadCause::Broken);
        }
        match self.values.len() < MAX_VALUES {
            true => self.values.push(text.to_owned()),
            false => self.mark_unread(UnreadCause::Broken),
        }
    }
}
