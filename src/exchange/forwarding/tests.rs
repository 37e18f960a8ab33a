use super::*;
use crate::message::request_head::iter_parsed_fields;

#[test]
fn a_client_cannot_spoof_riskgate_fields_in_any_spelling() {
    for name in
        ["X-Riskgate-Account", "x_riskgate_account", "x-riskgate_plan", "x-Original-url", "a_b"]
    {
        let name = name.as_bytes();
        assert!(
            !is_request_field_forwarded(name, false) && !is_request_field_forwarded(name, true),
            "{name:?}"
        );
    }
    // The X-Forwarded- fields of a trusted proxy are kept.
    assert!(!is_request_field_forwarded(b"X-Forwarded-Prefix", false));
    assert!(is_request_field_forwarded(b"X-Forwarded-Prefix", true));
    assert!(is_request_field_forwarded(b"Traceparent", false));
    for name in ["CF-Connecting-IP", "Fly-Client-IP", "Client-IP", "X-Script-Name", "Remote-User"] {
        assert!(!is_request_field_forwarded(name.as_bytes(), false), "{name}");
        assert!(is_request_field_forwarded(name.as_bytes(), true), "{name}");
    }
}

#[test]
fn connection_removes_the_fields_it_lists_but_none_on_which_riskgate_relies() {
    let mut request = RequestHeader::build("POST", b"/", None).unwrap();
    let kept = ["content-length", "host", "transfer-encoding", "x-forwarded-for"];
    for name in kept.iter().chain(&["x-hop"]) {
        request.append_header(*name, "1").unwrap();
        request.append_header("Connection", *name).unwrap();
    }
    remove_connection_and_listed_fields(&mut request);
    let mut names: Vec<&str> = request.headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, kept);
}

/// Returns the fields that the upstream server gets for a request with these fields, without
/// Host and X-Request-Id. Checks that the Pingora path and the fast path forward the same.
fn forwarded_fields_on_both_paths(fields: &[(&str, &str)], is_trusted_proxy: bool) -> Vec<String> {
    forwarded_fields_with(fields, is_trusted_proxy, false)
}

fn forwarded_fields_with(
    fields: &[(&str, &str)],
    is_trusted_proxy: bool,
    reads_forwarded: bool,
) -> Vec<String> {
    let trusted_proxies = Networks::parse(&["10.0.0.0/8".to_owned()]).unwrap();
    let address = Some(IpAddr::from([192, 0, 2, 1]));
    let client_info = ClientInfo {
        key: None,
        request_id: "id",
        peer_address: address,
        is_trusted_proxy,
        trusted_proxies: &trusted_proxies,
        reads_forwarded,
        is_client_tls: false,
        traceparent: None,
        is_new_trace: false,
        key_header: Some(&HeaderName::from_static("x-api-key")),
        passes_authorization: false,
        host: HostChoice::OfServer,
        screening: None,
    };
    let mut request = RequestHeader::build("GET", b"/asked", None).unwrap();
    let mut header = "GET /asked HTTP/1.1\r\n".to_owned();
    for (name, value) in fields {
        request.append_header((*name).to_owned(), *value).unwrap();
        header.push_str(&format!("{name}: {value}\r\n"));
    }
    prepare_upstream_request(&mut request, b"/target", "server", &client_info).unwrap();
    let text = |name: &[u8], value: &[u8]| {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        format!("{}: {value}", name.to_ascii_lowercase())
    };
    let pairs = request.headers.iter();
    let mut filtered: Vec<String> =
        pairs.map(|(name, value)| text(name.as_str().as_bytes(), value.as_bytes())).collect();
    let mut out = Vec::new();
    write_upstream_request(
        iter_parsed_fields(format!("{header}\r\n").as_bytes()),
        ("GET", b"/target"),
        None,
        "server",
        &client_info,
        &mut out,
    );
    let mut written: Vec<String> =
        iter_parsed_fields(&out).map(|(name, value)| text(name, value)).collect();
    filtered.sort();
    written.sort();
    assert_eq!(filtered, written);
    let always_set = ["host: ", "x-request-id: "];
    filtered.retain(|line| !always_set.iter().any(|name| line.starts_with(name)));
    filtered
}

#[test]
fn the_key_is_not_forwarded() {
    let fields = [("Host", "asked.test"), ("x-API-key", "secret"), ("Authorization", "secret")];
    let forwarded = forwarded_fields_on_both_paths(&fields, false);
    assert!(forwarded.iter().all(|line| !line.contains("secret")), "{forwarded:?}");
}

#[test]
fn x_forwarded_values_count_only_from_a_trusted_proxy() {
    let fields = [
        ("Host", "asked.test"),
        ("X-Forwarded-For", "6.6.6.6, ,7.7.7.7,"),
        ("x-forwarded-proto", "gopher"),
        ("X-FORWARDED-FOR", ""),
        ("X-Forwarded-Host", "evil.test, more.test"),
        ("X-Forwarded-Port", "1"),
        ("x-forwarded-for", "8.8.8.8"),
        ("X-Forwarded-Proto", "http, https"),
        ("X-Forwarded-Host", "shop.test"),
        ("X-forwarded-port", "80, 443"),
        ("X-Forwarded-Prefix", "/evil"),
        ("x-forwarded-prefix", "/shop"),
    ];
    let seen = [
        "x-forwarded-for: 6.6.6.6, 7.7.7.7, 8.8.8.8, 192.0.2.1",
        "x-forwarded-host: shop.test",
        "x-forwarded-port: 443",
        "x-forwarded-prefix: /shop",
        "x-forwarded-proto: https",
    ];
    assert_eq!(forwarded_fields_on_both_paths(&fields, true), seen);
    let seen =
        ["x-forwarded-for: 192.0.2.1", "x-forwarded-host: asked.test", "x-forwarded-proto: http"];
    assert_eq!(forwarded_fields_on_both_paths(&fields, false), seen);
    // A value of only blanks and commas counts as absent.
    let blank = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"];
    let blank = blank.map(|name| (name, " , "));
    assert_eq!(forwarded_fields_on_both_paths(&[&fields[..1], &blank[..]].concat(), true), seen);
}

#[test]
fn a_request_without_a_host_has_no_forwarded_host() {
    let forged = ("X-Forwarded-Host", "evil.test");
    let told = ["x-forwarded-for: 192.0.2.1", "x-forwarded-proto: http"];
    for fields in [&[forged][..], &[("Host", ""), forged]] {
        assert_eq!(forwarded_fields_on_both_paths(fields, false), told, "{fields:?}");
    }
    let told = [told[0], "x-forwarded-host: evil.test", told[1]];
    assert_eq!(forwarded_fields_on_both_paths(&[forged], true), told);
}

#[test]
fn the_server_is_told_the_scheme_of_the_connection_that_the_client_made() {
    for (hops, schemes, expected) in [
        (&["192.0.2.9"][..], &["https"][..], "https"),
        (&["192.0.2.9, 10.0.0.2"], &["https, http"], "https"),
        (&["192.0.2.9"], &["HTTPS"], "https"),
        (&["192.0.2.9", "10.0.0.2"], &["https", "http"], "https"),
        (&["192.0.2.9, 10.0.0.3, 10.0.0.2"], &["https, http, http"], "https"),
        // What the client put before the values of the proxies does not count.
        (&["6.6.6.6, 192.0.2.9, 10.0.0.2"], &["https, http, http"], "http"),
        (&["6.6.6.6, 192.0.2.9"], &["https, http"], "http"),
        (&["10.9.9.9, 192.0.2.9"], &["https, http"], "http"),
        // A proxy replaced the list.
        (&["192.0.2.9, 10.0.0.2"], &["https"], "https"),
        // The client is in a trusted network, or its address is unknown.
        (&["10.9.9.9"], &["https"], "https"),
        (&["10.9.9.9"], &["gopher, https"], "https"),
        (&["unknown, 10.0.0.2"], &["https, http"], "https"),
        (&["unknown"], &["https, http"], "http"),
        (&[], &["https, http"], "http"),
        (&["192.0.2.9, 10.0.0.2"], &[], "http"),
        (&["192.0.2.9, 10.0.0.2"], &["https, , http"], "http"),
    ] {
        let mut fields: Vec<(&str, &str)> = vec![("Host", "asked.test")];
        fields.extend(hops.iter().map(|hops| ("X-Forwarded-For", *hops)));
        fields.extend(schemes.iter().map(|schemes| ("X-Forwarded-Proto", *schemes)));
        let seen = forwarded_fields_on_both_paths(&fields, true);
        let seen = seen.iter().find_map(|line| line.strip_prefix("x-forwarded-proto: "));
        assert_eq!(seen, Some(expected), "{hops:?} {schemes:?}");
    }
}

#[test]
fn the_server_is_told_what_trusted_proxies_report_in_forwarded() {
    let reported = |fields: &[(&str, &str)], reads_forwarded: bool| {
        let fields = [&[("Host", "asked.test")], fields].concat();
        let mut seen = forwarded_fields_with(&fields, true, reads_forwarded);
        seen.retain(|line| !line.starts_with("x-forwarded-host: "));
        seen.iter().map(|line| line["x-forwarded-".len()..].to_owned()).collect::<Vec<_>>()
    };
    let chain = ("Forwarded", "for=6.6.6.6, for=192.0.2.9;proto=https, for=10.0.0.2;proto=http");
    let forged = [("X-Forwarded-For", "7.7.7.7"), ("X-Forwarded-Proto", "gopher"), chain];
    let told = ["for: 192.0.2.9, 10.0.0.2, 192.0.2.1", "proto: https"];
    assert_eq!(reported(&[chain], true), told);
    assert_eq!(reported(&forged, true), told);
    // Proxies that report the client elsewhere may forward the client's `Forwarded`.
    assert_eq!(reported(&[chain], false), ["for: 192.0.2.1", "proto: http"]);
    assert_eq!(reported(&forged, false), ["for: 7.7.7.7, 192.0.2.1", "proto: gopher"]);
    // What the proxy has found out of the client goes on.
    let identified = [("Host", "asked.test"), ("X-Ssl-Client-Cert", "abc"), chain];
    let seen = forwarded_fields_with(&identified, true, true);
    assert!(seen.contains(&"x-ssl-client-cert: abc".to_owned()), "{seen:?}");
    let odd = ("Forwarded", "for=192.0.2.9;proto=\"a, b\"");
    assert_eq!(reported(&[odd], true), ["for: 192.0.2.9, 192.0.2.1", "proto: http"]);
    let unknown = ("Forwarded", "for=unknown;proto=https");
    assert_eq!(reported(&[unknown], true), ["for: 192.0.2.1", "proto: https"]);
    // A proxy that reports in `Forwarded` passes what a client writes in the other fields.
    for names_nobody in ["for=unknown", "for=_hidden", "for=\"", "for=192.0.2.9;;for=1", ""] {
        let forged = [forged[0], forged[1], ("Forwarded", names_nobody)];
        assert_eq!(reported(&forged, true), ["for: 192.0.2.1", "proto: http"], "{names_nobody}");
    }
    let mut forged = vec![("X-Forwarded-Host", "evil.test"), chain];
    for name in ["X-Forwarded-Port", "X-Forwarded-Ssl", "X-Forwarded-Scheme", "X-Forwarded-Prefix"]
    {
        forged.push((name, "on"));
    }
    let fields = [&[("Host", "asked.test")], &forged[..]].concat();
    let seen = forwarded_fields_with(&fields, true, true);
    assert!(seen.contains(&"x-forwarded-host: asked.test".to_owned()), "{seen:?}");
    assert_eq!(seen.len(), 3, "for, host and proto: {seen:?}");
}

#[test]
fn a_response_loses_the_fields_that_an_upstream_may_not_set() {
    let mut response = ResponseHeader::build(200, None).unwrap();
    for (name, value) in [
        ("Server", "x"),
        ("X-Table-Version", "forged"),
        ("Access-Control-Allow-Origin", "*"),
        ("Connection", "X-Hop"),
        ("X-Hop", "1"),
        ("Content-Type", "text/plain"),
    ] {
        response.insert_header(name, value).unwrap();
    }
    let common = CommonHeaders::default();
    prepare_client_response(&mut response, AllowedResponseFields::OfCheck, &common).unwrap();
    let has = |name: &str| response.headers.contains_key(name);
    assert!(!has("server") && !has("x-table-version") && !has("x-hop"));
    assert!(!has("access-control-allow-origin"));
    assert!(has("content-type") && has("x-riskgate-source") && has("cache-control"));
}

#[test]
fn a_response_has_one_content_length_or_chunks() {
    let forward = |fields: &[(&'static str, &str)]| {
        let mut response = ResponseHeader::build(200, None).unwrap();
        for (name, value) in fields {
            response.append_header(*name, *value).unwrap();
        }
        let common = CommonHeaders::default();
        prepare_client_response(&mut response, AllowedResponseFields::OfCheck, &common)?;
        let lengths = response.headers.get_all(CONTENT_LENGTH).iter();
        Ok(lengths.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<String>>())
    };
    let (one, other) = (("Content-Length", "2"), ("Content-Length", "3"));
    assert_eq!(forward(&[one, one]), Ok(vec!["2".to_owned()]));
    assert_eq!(forward(&[("Content-Length", "2, 2")]), Ok(vec!["2".to_owned()]));
    assert_eq!(forward(&[one, other]), Err(MalformedResponse::ContentLength));
    assert_eq!(forward(&[one, other, ("Transfer-Encoding", "chunked")]), Ok(vec![]));
}
