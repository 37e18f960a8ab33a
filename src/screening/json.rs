//! JSON (RFC 8259), as a body or in a part of a multipart body.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::field_path::{FieldPath, MemberName};
use super::field_values::{FieldValues, UnreadCause};

/// Reads all values of the fields, including the values of repeated members. If the value of a
/// field is a list, each text in the list is a value. If it is an object, each address in the
/// object is a value. An object with a name and an address, such as
/// `{"name":"email","value":"…"}`, is a field, and so is one with a list of addresses. `name` is
/// the name of the form field that has the JSON as its value; `None` if the JSON is a whole body.
/// If the JSON breaks the grammar, riskgate reads the values before the break.
pub(super) fn read_values(body: &[u8], name: Option<&str>, fields: &[FieldPath]) -> FieldValues {
    let is_field = |name: &&str| fields.iter().any(|field| field.matches_form_name(name));
    let place =
        if name.as_ref().is_some_and(is_field) { ValuePlace::InField } else { ValuePlace::Outside };
    let names = name.map(|name| MemberName::new(name.to_owned())).into_iter().collect();
    let mut reader = JsonReaderState {
        fields,
        names,
        is_in_pair: false,
        texts_of_pair: Vec::new(),
        found: FieldValues::default(),
    };
    let is_utf8 = std::str::from_utf8(body).is_ok();
    let body = to_strict_json(body);
    let mut parser = serde_json::Deserializer::from_slice(&body);
    let parsed = ValueVisitor { reader: &mut reader, place }
        .deserialize(&mut parser)
        .and_then(|()| parser.end());
    if parsed.is_err() {
        reader.found.mark_unread(UnreadCause::Broken);
    }
    if !is_utf8 {
        reader.found.remove_undecoded_values();
    }
    reader.found
}

/// Parses JSON as JavaScript reads it: see [`to_strict_json`].
///
/// # Errors
/// Returns an error if the JSON breaks the grammar, or if it is too deep for riskgate.
pub(super) fn parse(body: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(&to_strict_json(body))
}

/// Returns true if the predicate holds for the JSON, or if the JSON is too deep for riskgate,
/// though not for JavaScript. False for a text that breaks the grammar, which JavaScript refuses as
/// a whole.
pub(super) fn may_satisfy(body: &[u8], predicate: impl FnOnce(&Value) -> bool) -> bool {
    let body = to_strict_json(body);
    match serde_json::from_slice::<Value>(&body) {
        Ok(value) => predicate(&value),
        // Reads a value of any depth, and keeps nothing of it.
        Err(_) => serde_json::from_slice::<IgnoredAny>(&body).is_ok(),
    }
}

/// Returns true if the text is JSON for JavaScript.
pub(super) fn is_json(body: &[u8]) -> bool {
    may_satisfy(body, |_| true)
}

/// Returns the JSON in a spelling that the parser of riskgate takes. Some servers accept what is
/// replaced. Servers that accept a byte order mark skip the mark. If one text of the JSON is not
/// UTF-8, some servers still read all other texts.
fn to_strict_json(body: &[u8]) -> Vec<u8> {
    let body = String::from_utf8_lossy(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body));
    let mut body = replace_lone_surrogates(body.as_bytes()).into_owned();
    replace_large_numbers(&mut body);
    body
}

/// Replaces each number beyond the range of a double by 0. Servers accept such a number: Node and
/// PHP read infinity, Python infinity or a long integer.
fn replace_large_numbers(body: &mut [u8]) {
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let (mut at, mut is_in_text) = (0, false);
    while let Some(byte) = body.get(at).copied() {
        match byte {
            b'"' => is_in_text = !is_in_text,
            // Skips the escaped character.
            b'\\' => at += 1,
            b'-' | b'0'..=b'9' if !is_in_text => {
                let length = body[at..].iter().take_while(|byte| is_of_number(byte)).count();
                let number = &mut body[at..at + length];
                if is_large_number(number) {
                    number.fill(b' ');
                    number[0] = b'0';
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
}

fn is_large_number(text: &[u8]) -> bool {
    // The grammar is checked without a look at the range.
    serde_json::from_slice::<f64>(text).is_err()
        && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Replaces each escaped half of a surrogate pair that stands alone by U+FFFD. A script that cuts a
/// text in the middle of an emoji sends such a half, and Node and Python accept it.
fn replace_lone_surrogates(body: &[u8]) -> Cow<'_, [u8]> {
    let mut replaced = Cow::Borrowed(body);
    let mut at = 0;
    while let Some(offset) = memchr::memchr(b'\\', &body[at..]) {
        at += offset;
        match (parse_surrogate(body, at), parse_surrogate(body, at + UNICODE_ESCAPE_BYTES)) {
            (Some(Surrogate::High), Some(Surrogate::Low)) => at += 2 * UNICODE_ESCAPE_BYTES,
            (Some(_), _) => {
                let end = at + UNICODE_ESCAPE_BYTES;
                replaced.to_mut()[at..end].copy_from_slice(b"\\ufffd");
                at = end;
            }
            // Skips the escaped character.
            (None, _) => at = (at + 2).min(body.len()),
        }
    }
    replaced
}

/// The length of an escape such as `\ud83d`.
const UNICODE_ESCAPE_BYTES: usize = 6;

/// A half of a surrogate pair.
enum Surrogate {
    High,
    Low,
}

fn parse_surrogate(body: &[u8], at: usize) -> Option<Surrogate> {
    let digits = body.get(at..at + UNICODE_ESCAPE_BYTES)?.strip_prefix(b"\\u")?;
    match u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()? {
        0xd800..=0xdbff => Some(Surrogate::High),
        0xdc00..=0xdfff => Some(Surrogate::Low),
        _ => None,
    }
}

/// The state of the reader: where it is, and the values that it has found.
struct JsonReaderState<'f> {
    fields: &'f [FieldPath],
    /// The names of the members that lead to the current value.
    names: Vec<MemberName>,
    /// Whether the current value may be the name or the value of a [`PairObject`], or an item of
    /// such a value.
    is_in_pair: bool,
    /// The texts that were read last as the name or the value of a [`PairObject`], or as items of
    /// such a value. Empty once the reader has left the member with these texts.
    texts_of_pair: Vec<String>,
    found: FieldValues,
}

impl JsonReaderState<'_> {
    /// Adds the name of a member in an object at `place`, and returns the place of the member.
    fn enter_member(&mut self, name: String, place: ValuePlace) -> ValuePlace {
        self.names.push(MemberName::new(name));
        self.place_in_field().unwrap_or(match place {
            ValuePlace::Outside => ValuePlace::Outside,
            ValuePlace::InField | ValuePlace::BelowField => ValuePlace::BelowField,
        })
    }

    /// Returns the place of the current member, if a server may take it for a field or a part of a
    /// field. If only some servers do so, marks the body as unread.
    fn place_in_field(&mut self) -> Option<ValuePlace> {
        let names = self.names.as_slice();
        let mut matching = self.fields.iter().filter(|field| field.matches_members(names));
        if let Some(first) = matching.next() {
            let is_part = |field: &FieldPath| field.may_members_have_other_text(names);
            return Some(match is_part(first) && matching.all(is_part) {
                true => ValuePlace::BelowField,
                false => ValuePlace::InField,
            });
        }
        let is_read_by_some = |field: &FieldPath| field.matches_members_without_skipped(names);
        if self.fields.iter().any(is_read_by_some) {
            self.found.mark_unread(UnreadCause::Broken);
            return Some(ValuePlace::InField);
        }
        None
    }
}

/// An object that names a field and has its value, as jQuery (`serializeArray`), Cognito and
/// SuperTokens send fields: `{"name":"email","value":"…"}`.
#[derive(Default)]
struct PairObject {
    has_name_of_field: bool,
    values: Vec<String>,
}

/// What a member of a [`PairObject`] is.
#[derive(Clone, Copy)]
enum PartOfPair {
    Name,
    Value,
}

impl PartOfPair {
    fn of_member(name: &str) -> Option<PartOfPair> {
        let is_one_of = |names: &[&str]| names.iter().any(|it| it.eq_ignore_ascii_case(name));
        match () {
            () if is_one_of(&["value"]) => Some(PartOfPair::Value),
            () if is_one_of(&["id", "key", "name", "field"]) => Some(PartOfPair::Name),
            () => None,
        }
    }
}

impl PairObject {
    fn add(&mut self, part: PartOfPair, mut texts: Vec<String>, fields: &[FieldPath]) {
        let is_field = |name: &String| fields.iter().any(|field| field.matches_form_name(name));
        match part {
            PartOfPair::Name => self.has_name_of_field |= texts.iter().any(is_field),
            PartOfPair::Value => self.values.append(&mut texts),
        }
    }
}

/// Reads the next value of the body.
struct ValueVisitor<'r, 'f> {
    reader: &'r mut JsonReaderState<'f>,
    place: ValuePlace,
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValuePlace {
    /// Outside of all fields.
    Outside,
    /// The value of a field, or an item of a list that is the value of a field.
    InField,
    /// In an object that is the value of a field. The texts of the object may be no addresses.
    BelowField,
}

impl<'de> DeserializeSeed<'de> for ValueVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if self.reader.is_in_pair {
            self.reader.texts_of_pair.push(text.to_owned());
        }
        match self.place {
            ValuePlace::Outside => {}
            ValuePlace::BelowField => self.reader.found.push_if_address(text),
            ValuePlace::InField => self.reader.found.push_text(text),
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items
            .next_element_seed(ValueVisitor { reader: &mut *self.reader, place: self.place })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        // This object may be an item in the value of another pair.
        let is_in_pair = std::mem::take(&mut self.reader.is_in_pair);
        let texts_before = std::mem::take(&mut self.reader.texts_of_pair);
        let mut pair = PairObject::default();
        while let Some(name) = members.next_key::<String>()? {
            let part_of_pair = PartOfPair::of_member(&name);
            // `Object.assign` of JavaScript puts the members of this one into the object itself.
            let is_prototype = name == "__proto__";
            let place = match is_prototype {
                true => self.place,
                false => self.reader.enter_member(name, self.place),
            };
            self.reader.is_in_pair = part_of_pair.is_some();
            members.next_value_seed(ValueVisitor { reader: &mut *self.reader, place })?;
            self.reader.is_in_pair = false;
            if !is_prototype {
                self.reader.names.pop();
            }
            if let Some(part) = part_of_pair {
                let texts = std::mem::take(&mut self.reader.texts_of_pair);
                pair.add(part, texts, self.reader.fields);
            }
        }
        (self.reader.is_in_pair, self.reader.texts_of_pair) = (is_in_pair, texts_before);
        for address in pair.values.iter().filter(|_| pair.has_name_of_field) {
            self.reader.found.push_if_address(address);
        }
        Ok(())
    }
}
