use super::*;

#[test]
fn h1_prefixes_are_those_that_pingora_writes() {
    let all = [
        &STRICT_TRANSPORT_SECURITY,
        &CONTENT_TYPE,
        &CONTENT_LENGTH,
        &TRANSFER_ENCODING,
        &CACHE_CONTROL,
        &DATE,
        &CONNECTION,
        &ALLOW,
        &LOCATION,
        &RETRY_AFTER,
        &WWW_AUTHENTICATE,
        &VARY,
        &X_REQUEST_ID_FIELD,
        &X_RISKGATE_SOURCE_FIELD,
        &X_FAIL_OPEN_FIELD,
        &X_TABLE_VERSION,
        &X_MATCHED_DOMAIN,
        &X_VERDICT_SOURCE,
        &X_DID_YOU_MEAN,
        &RATELIMIT_POLICY,
        &RATELIMIT,
        &ACCESS_CONTROL_ALLOW_ORIGIN,
        &ACCESS_CONTROL_ALLOW_CREDENTIALS,
        &ACCESS_CONTROL_EXPOSE_HEADERS,
        &ACCESS_CONTROL_ALLOW_METHODS,
        &ACCESS_CONTROL_ALLOW_HEADERS,
        &ACCESS_CONTROL_MAX_AGE,
    ];
    for field in all {
        let mut header = pingora::http::ResponseHeader::build_no_case(200, None).unwrap();
        header.insert_header(&field.name, "x").unwrap();
        let mut bytes = Vec::new();
        header.header_to_h1_wire(&mut bytes);
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("{}x\r\n", field.h1_prefix));
    }
}
