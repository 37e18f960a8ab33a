//! Reads the values of named fields out of the body of a posted form and out of a query, as a
//! server would read them.
//!
//! Servers read unusual bodies in different ways. So this module returns the values that it has
//! read, and says whether some server may read other values. It does no I/O, and judges no value.

mod address_text;
mod content_type;
mod field_path;
mod field_values;
mod json;
mod multipart;
mod name_budget;
mod parameters;
mod reader;
mod server_parsers;
mod urlencoded;

pub use field_path::FieldPath;
pub use field_values::{FieldValues, MAX_ADDRESSES_IN_VALUE, UnreadCause};
pub use reader::{
    BodyHeaders, MAX_SCREENED_BODY_BYTES, ReceivedBody, read_body_values, read_field_values,
    read_query_values,
};

#[cfg(test)]
mod tests;
