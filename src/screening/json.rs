//! Bodies of `application/json` (RFC 8259).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::field_path::FieldPath;
use super::field_values::{FieldValues, UnreadCause};

/// Reads all values of the fields: also those of repeated members, all texts in a list that has the
/// name of a field, and all texts with an `@` in such an object.
pub(super) fn read_values(body: &[u8], fields: &[FieldPath]) -> Result<FieldValues, UnreadCause> {
    let mut reader = Reader { fields, names: Vec::new(), found: FieldValues::default() };
    let mut parser = serde_json::Deserializer::from_slice(body);
    let parsed = Value { reader: &mut reader, place: Place::Outside }
        .deserialize(&mut parser)
        .and_then(|()| parser.end());
    parsed.map_err(|_| UnreadCause::Broken)?;
    Ok(reader.found)
}

/// What has been read so far.
struct Reader<'f> {
    fields: &'f [FieldPath],
    /// The names of the members on the way to the current value.
    names: Vec<String>,
    found: FieldValues,
}

/// The next value of the body.
struct Value<'r, 'f> {
    reader: &'r mut Reader<'f>,
    place: Place,
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Outside of all fields.
    Outside,
    /// The value of a field, or in a list that is one.
    InField,
    /// In an object that is the value of a field. Its texts may have other meanings.
    BelowField,
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.place {
            Place::Outside => {}
            Place::BelowField if !text.contains('@') => {}
            Place::InField | Place::BelowField => self.reader.found.push_text(text),
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
            .next_element_seed(Value { reader: &mut *self.reader, place: self.place })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            self.reader.names.push(name);
            let names = &self.reader.names;
            let is_named = self.reader.fields.iter().any(|field| field.matches_members(names));
            let place = match self.place {
                _ if is_named => Place::InField,
                Place::Outside => Place::Outside,
                Place::InField | Place::BelowField => Place::BelowField,
            };
            members.next_value_seed(Value { reader: &mut *self.reader, place })?;
            self.reader.names.pop();
        }
        Ok(())
    }
}
