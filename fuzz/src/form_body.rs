//! Reading the fields of a posted form never panics, and yields only values that are not empty,
//! each once. An address that parses shows at most four characters of its local part when it is
//! masked.
//!
//! The first line of an input is the value of `Content-Type`, the second the query, and the rest
//! the body.

use std::collections::BTreeSet;

use riskgate::model::domain::Domain;
use riskgate::model::email::EmailAddress;
use riskgate::screening::{BodyHeaders, FieldPath, ReceivedBody, read_field_values};

/// Panics if a promise is broken for this input.
pub fn check_input(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let (content_type, query, body) = (parts.next(), parts.next(), parts.next());
    let headers = BodyHeaders { content_type, is_encoded: false };
    let fields = ["email", "user.email"].map(|name| FieldPath::parse(name).unwrap());
    let (query, body) = (query.unwrap_or_default(), body.unwrap_or_default());
    let Ok(found) = read_field_values(headers, query, ReceivedBody::of_whole_body(body), &fields)
    else {
        return;
    };
    assert!(!found.values.is_empty());
    let distinct: BTreeSet<&String> = found.values.iter().collect();
    assert_eq!(distinct.len(), found.values.len());
    for value in &found.values {
        assert_eq!(value.trim(), value);
        assert!(!value.is_empty());
        let Ok(address) = EmailAddress::parse(value) else { continue };
        let domain = address.domain();
        assert_eq!(Domain::parse(domain.as_str()).as_ref(), Ok(domain));
        let masked = address.masked();
        let shown = masked.strip_suffix(&format!("@{domain}")).unwrap();
        assert!(shown.replacen("****", "", 1).chars().count() <= 4, "{masked}");
    }
}
