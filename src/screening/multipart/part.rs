//! A part of a multipart body, and its text as the value of a field.

use std::borrow::Cow;
use std::cell::RefCell;

use super::line_end::LineEnd;
use super::part_header::PartHeader;
use crate::screening::content_type::Charset;
use crate::screening::field_path::FieldPath;
use crate::screening::field_values::{FieldValues, UnreadCause};
use crate::screening::name_budget::NameBudget;

/// How riskgate reads the parts of a body.
#[derive(Clone, Copy)]
pub(super) struct PartContext<'f> {
    pub(super) fields: &'f [FieldPath],
    pub(super) line_end: LineEnd,
    /// Whether the text is the content of a part. riskgate looks for parts in such a text, but not
    /// for parts in these parts.
    pub(super) is_inner: bool,
    /// The names that riskgate may still read, in all parts of the body.
    pub(super) budget: &'f RefCell<NameBudget>,
}

impl PartContext<'_> {
    /// Returns the names that riskgate may compare with the fields. If they are not all, marks the
    /// body as unread.
    pub(super) fn names_to_compare<'n>(
        self,
        names: impl Iterator<Item = &'n str>,
        found: &mut FieldValues,
    ) -> Vec<&'n str> {
        let mut budget = self.budget.borrow_mut();
        let is_allowed = |name: &&str| budget.allows_to_compare(name, self.fields);
        let (allowed, others): (Vec<&str>, Vec<&str>) = names.partition(is_allowed);
        if !others.is_empty() {
            found.mark_unread(UnreadCause::Broken);
        }
        allowed
    }
}

/// A part of a body.
pub(super) struct Part<'b> {
    pub(super) header: PartHeader,
    pub(super) content: &'b [u8],
}

impl Part<'_> {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.header.names.iter().map(String::as_str)
    }

    /// Returns true if a server that decodes the content may read another text than riskgate.
    pub(super) fn has_own_encoding(&self) -> bool {
        self.header.is_encoded(self.content) || self.header.charset == Charset::Other
    }

    /// Adds the content if one of these names of the part is the name of a field. If servers may
    /// read the content in different ways, marks the body as unread.
    pub(super) fn read_field(
        &self,
        names: &[&str],
        context: PartContext<'_>,
        found: &mut FieldValues,
    ) {
        let Part { header, content } = self;
        let fields = context.fields;
        let matches = |name: &&str| fields.iter().any(|field| field.matches_form_name(name));
        if !names.iter().any(matches) {
            return;
        }
        // Only some servers read a file, inner parts or an encoded part as a text, and they decode
        // the text in different ways.
        if header.is_file || !header.inner_boundaries.is_empty() || self.has_own_encoding() {
            return found.mark_unread(UnreadCause::Broken);
        }
        if !names.iter().all(matches) {
            found.mark_unread(UnreadCause::Broken);
        }
        if header.charset != Charset::Utf8 && !content.is_ascii() {
            found.mark_unread(UnreadCause::OtherCharset);
        }
        for name in names {
            found.push_if_field(name, || Cow::Borrowed(content), fields);
        }
    }
}
