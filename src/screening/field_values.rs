//! The values that riskgate has read from a body, and why it may not have read all values.

use std::borrow::Cow;

use super::address_text::{has_address, has_address_without_blanks};
use super::field_path::FieldPath;
use crate::model::typed_address::{AT_SIGNS, has_at_sign};

/// The most values that riskgate keeps of a body and its query, to limit its work. No honest form
/// has more.
const MAX_VALUES: usize = 16;
/// The most addresses of one value that riskgate judges. If a value has more, the body counts as
/// not read completely.
pub const MAX_ADDRESSES_IN_VALUE: usize = 8;

/// Why riskgate may not have read all values of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadCause {
    /// The body is compressed, or encoded in another way.
    Encoded,
    /// The body is too long, or riskgate did not get it.
    TooLong,
    /// The body has no type, or a type that riskgate does not read.
    OtherType,
    /// The body, or a value in it, has a charset that riskgate can't read.
    OtherCharset,
    /// The body breaks the grammar of its type, or servers may read it in different ways.
    Broken,
    /// The body has none of the fields.
    NoField,
}

impl UnreadCause {
    /// All causes.
    pub const ALL: [UnreadCause; 6] = [
        UnreadCause::Encoded,
        UnreadCause::TooLong,
        UnreadCause::OtherType,
        UnreadCause::OtherCharset,
        UnreadCause::Broken,
        UnreadCause::NoField,
    ];

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
    /// The values that riskgate has read, none of them empty and none twice.
    pub values: Vec<String>,
    /// Why the body may have further values; `None` if riskgate has read all values.
    pub unread: Option<UnreadCause>,
}

impl FieldValues {
    /// Makes the result for a body that riskgate did not read, for this cause.
    pub fn of_unread_body(cause: UnreadCause) -> FieldValues {
        FieldValues { unread: Some(cause), ..FieldValues::default() }
    }

    /// Removes the values that riskgate could not decode whole, and marks the body as unread if
    /// there are any.
    pub(super) fn remove_undecoded_values(&mut self) {
        let count = self.values.len();
        self.values.retain(|value| !value.contains(char::REPLACEMENT_CHARACTER));
        if self.values.len() < count {
            self.mark_unread(UnreadCause::OtherCharset);
        }
    }

    /// Notes that the body may have further values. The first cause that is noted counts.
    pub fn mark_unread(&mut self, cause: UnreadCause) {
        self.unread.get_or_insert(cause);
    }

    /// Returns the values.
    ///
    /// # Errors
    /// Returns the cause if there is no value.
    pub fn or_unread_cause(self) -> Result<FieldValues, UnreadCause> {
        match self.values.is_empty() {
            true => Err(self.unread.unwrap_or(UnreadCause::NoField)),
            false => Ok(self),
        }
    }

    /// Adds the value if the name is the name of one of `fields`, or of a part of a field. Returns
    /// true for such a name. Does not add another text of a part than an address. If the value is
    /// not UTF-8, marks the body as unread.
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
            Ok(text) if field.may_have_other_text(name) => self.push_if_address(text),
            Ok(text) => self.push_text(text),
            Err(_) => self.mark_unread(UnreadCause::OtherCharset),
        }
        true
    }

    /// Adds the values of `other`, and notes its cause.
    pub fn append(&mut self, other: FieldValues) {
        other.values.iter().for_each(|value| self.push_text(value));
        self.unread = self.unread.or(other.unread);
    }

    /// Adds the values of a query. The query may have a placeholder from the link to the form, and
    /// most servers prefer the value in the body. So beside other values, leaves out a value
    /// without `@`, and marks the body as unread. Many links have a `+` of an address as it is, for
    /// which servers read a blank. So leaves out such a value as well if the body has the address.
    pub fn append_query(&mut self, mut of_query: FieldValues) {
        of_query.values.retain(|value| !self.has_with_plus(value));
        let is_address = |value: &String| has_at_sign(value);
        if !self.values.is_empty() && !of_query.values.iter().all(is_address) {
            of_query.values.retain(is_address);
            of_query.mark_unread(UnreadCause::Broken);
        }
        self.append(of_query);
    }

    /// Returns true if `text` is an address with a blank in its local part, and there is a value
    /// that differs from it only by a `+` in place of the blank.
    fn has_with_plus(&self, text: &str) -> bool {
        let local_part = text.split_once('@').filter(|(_, domain)| !domain.contains([' ', '@']));
        local_part.is_some_and(|(local_part, _)| local_part.contains(' '))
            && self.values.contains(&text.replace(' ', "+"))
    }

    /// Adds a text that may be no address, such as a password, if it has a domain behind an `@`. If
    /// it has a domain only without its blanks, which some servers remove, marks the body as
    /// unread.
    pub(super) fn push_if_address(&mut self, text: &str) {
        if has_address(text) {
            self.push_text(text);
        } else if has_address_without_blanks(text) {
            self.mark_unread(UnreadCause::Broken);
        }
    }

    /// Adds a value without the blanks around it, which servers remove. Adds no empty value, and
    /// none twice. If there are too many values, or too many addresses in this value, marks the
    /// body as unread.
    pub fn push_text(&mut self, text: &str) {
        let text = text.trim();
        if text.is_empty() || self.values.iter().any(|value| value == text) {
            return;
        }
        if has_at_sign(text) && text.matches(AT_SIGNS).count() > MAX_ADDRESSES_IN_VALUE {
            self.mark_unread(UnreadCause::Broken);
        }
        match self.values.len() < MAX_VALUES {
            true => self.values.push(text.to_owned()),
            false => self.mark_unread(UnreadCause::Broken),
        }
    }
}
