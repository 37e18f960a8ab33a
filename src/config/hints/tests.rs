use super::*;

fn text(text: &str) -> RawValue {
    RawValue::Text(text.to_owned())
}

#[test]
fn a_hint_is_a_value_that_the_setting_takes() {
    let is_duration =
        |raw: &RawValue| raw.as_text().and_then(parse_duration).is_some_and(|it| !it.is_zero());
    for (found, meant) in [
        ("30", "30s"),
        ("30 sec", "30s"),
        ("2 minutes", "2m"),
        (" 5s", "5s"),
        ("5S", "5s"),
        ("2,5s", "2.5s"),
        ("1h30m", "90m"),
        ("1 week", "7d"),
        ("“5s”", "5s"),
        ("3600", "1h"),
        ("86400", "1d"),
        ("30000", "30000ms"),
    ] {
        let expected = Some(format!("write \"{meant}\""));
        assert_eq!(
            suggest_value(&text(found), Units::of_setting("max_bytes"), is_duration),
            expected,
            "{found}"
        );
    }
    assert_eq!(
        suggest_value(&RawValue::Integer(30), Units::of_setting("max_bytes"), is_duration)
            .as_deref(),
        Some("write \"30s\"")
    );
    assert_eq!(suggest_value(&text("soon"), Units::of_setting("max_bytes"), is_duration), None);
    let is_number = |raw: &RawValue| matches!(raw, RawValue::Integer(1..));
    let hint = suggest_value(&text("32MiB"), Units::of_setting("max_bytes"), is_number);
    assert_eq!(hint.as_deref(), Some("write 33554432"));
    let hint = suggest_value(&text("10k"), Units::of_setting("plans.free"), is_number);
    assert_eq!(hint.as_deref(), Some("write 10000"));
    let hint =
        suggest_value(&RawValue::Integer(10_000), Units::of_setting("max_bytes"), is_duration);
    assert_eq!(hint.as_deref(), Some("write \"10000ms\""));
    for number in ["10,000", "10 000", "10.000", "10'000", "10K"] {
        let hint = suggest_value(&text(number), Units::of_setting("plans.free"), is_number);
        assert_eq!(hint.as_deref(), Some("write 10000"), "{number}");
    }
    let hsts = Units::of_setting("listen.hsts");
    for raw in [RawValue::Integer(31_536_000), text("31536000")] {
        let hint = suggest_value(&raw, hsts, is_duration);
        assert_eq!(hint.as_deref(), Some("write \"365d\""));
    }
    let hint = suggest_value(&RawValue::Integer(15_768_000), hsts, is_duration);
    assert_eq!(hint.as_deref(), Some("write \"4380h\""));
    let is_flag = |raw: &RawValue| matches!(raw, RawValue::Boolean(_));
    assert_eq!(
        suggest_value(&text("yes"), Units::of_setting("max_bytes"), is_flag).as_deref(),
        Some("write true")
    );
}

#[test]
fn a_text_of_a_command_is_found_in_other_forms() {
    use crate::model::domain::DnsName;
    use crate::model::month::{Month, parse_rfc3339};
    let is_domain = |it: &str| it.contains('.') && DnsName::parse(it).is_ok();
    for text in ["https://bad.test/", "@bad.test", "me@bad.test", "*.bad.test", "bad.test "] {
        assert_eq!(guess_text(text, is_domain).as_deref(), Some("bad.test"), "{text}");
    }
    let is_month = |it: &str| Month::parse(it).is_some();
    assert_eq!(guess_text("2026/11", is_month).as_deref(), Some("2026-11"));
    let is_time = |it: &str| parse_rfc3339(it).is_some();
    let time = guess_text("2027-01-01", is_time);
    assert_eq!(time.as_deref(), Some("2027-01-01T00:00:00Z"));
    let is_limit = |it: &str| it == "unlimited" || it.parse::<u64>().is_ok();
    for (text, meant) in [("10k", "10000"), ("10,000", "10000"), ("-1", "unlimited")] {
        assert_eq!(guess_text(text, is_limit).as_deref(), Some(meant), "{text}");
    }
}

#[test]
fn an_address_is_found_in_other_forms() {
    let is_address =
        |raw: &RawValue| raw.as_text().is_some_and(|it| it.parse::<std::net::SocketAddr>().is_ok());
    for (found, meant) in [
        (":8080", "0.0.0.0:8080"),
        ("*:8080", "0.0.0.0:8080"),
        ("localhost:8080", "127.0.0.1:8080"),
        ("8080", "127.0.0.1:8080"),
        ("http://10.0.0.1:9000/", "10.0.0.1:9000"),
        ("https://10.0.0.1", "10.0.0.1:443"),
    ] {
        let expected = Some(format!("write \"{meant}\""));
        assert_eq!(
            suggest_value(&text(found), Units::of_setting("max_bytes"), is_address),
            expected,
            "{found}"
        );
    }
}

#[test]
fn the_nearest_name_is_found_for_slips_and_for_names_of_other_servers() {
    let known = ["http", "https", "admin", "redirect", "threads"];
    for (found, meant) in [
        ("httpp", Some("http")),
        ("htps", Some("https")),
        ("HTTP", Some("http")),
        ("bind", Some("http")),
        ("thread", Some("threads")),
        ("colour", None),
        ("host", Some("http")),
    ] {
        assert_eq!(find_nearest_name(found, known.into_iter()), meant, "{found}");
    }
}
