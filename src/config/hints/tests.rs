use super::*;

fn text(text: &str) -> RawValue {
    RawValue::Text(text.to_owned())
}

fn units(key: &str, kind: SettingKind) -> Units {
    Units::of_setting(key, &kind)
}

#[test]
fn a_hint_is_a_value_that_the_setting_takes() {
    let is_duration =
        |raw: &RawValue| raw.as_text().and_then(parse_duration).is_some_and(|it| !it.is_zero());
    let time = units("upstream.deadline", SettingKind::Duration);
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
        assert_eq!(suggest_value(&text(found), time, is_duration), expected, "{found}");
    }
    assert_eq!(
        suggest_value(&RawValue::Integer(30), time, is_duration).as_deref(),
        Some("write \"30s\"")
    );
    assert_eq!(suggest_value(&text("soon"), time, is_duration), None);
    let is_number = |raw: &RawValue| matches!(raw, RawValue::Integer(1..));
    let size = units("max_bytes", SettingKind::Integer(1..=u64::MAX));
    let calls = units("plans.free", SettingKind::CallLimit);
    for (found, units, meant) in [
        ("32MiB", size, Some(33_554_432)),
        ("32 MB", size, Some(33_554_432)),
        ("1 GB", size, Some(1_073_741_824)),
        ("500 kB", size, Some(512_000)),
        ("10k", calls, Some(10_000)),
        ("10 k", calls, Some(10_000)),
        ("5 000 calls", calls, Some(5_000)),
        ("1 million", calls, None),
        ("7 rabbits", size, None),
    ] {
        let expected = meant.map(|number| format!("write {number}"));
        assert_eq!(suggest_value(&text(found), units, is_number), expected, "{found}");
    }
    let hint = suggest_value(&RawValue::Integer(10_000), time, is_duration);
    assert_eq!(hint.as_deref(), Some("write \"10000ms\""));
    for number in ["10,000", "10 000", "10.000", "10'000", "10K"] {
        let hint = suggest_value(&text(number), calls, is_number);
        assert_eq!(hint.as_deref(), Some("write 10000"), "{number}");
    }
    let hsts = units("listen.hsts", SettingKind::Duration);
    for raw in [RawValue::Integer(31_536_000), text("31536000")] {
        let hint = suggest_value(&raw, hsts, is_duration);
        assert_eq!(hint.as_deref(), Some("write \"365d\""));
    }
    let hint = suggest_value(&RawValue::Integer(15_768_000), hsts, is_duration);
    assert_eq!(hint.as_deref(), Some("write \"4380h\""));
    let is_flag = |raw: &RawValue| matches!(raw, RawValue::Boolean(_));
    assert_eq!(
        suggest_value(&text("yes"), units("log.access", SettingKind::Boolean), is_flag).as_deref(),
        Some("write true")
    );
}

#[test]
fn a_text_of_a_command_is_found_in_other_forms() {
    use crate::model::domain::DnsName;
    use crate::model::month::{Month, parse_rfc3339};
    let is_domain = |it: &str| it.contains('.') && DnsName::parse(it).is_ok();
    for text in
        ["https://bad.test/", "@bad.test", "me@bad.test", "*.bad.test", ".bad.test", "bad.test "]
    {
        assert_eq!(
            guess_text(text, TextKind::Domain, is_domain).as_deref(),
            Some("bad.test"),
            "{text}"
        );
    }
    let is_month = |it: &str| Month::parse(it).is_some();
    assert_eq!(guess_text("2026/11", TextKind::Time, is_month).as_deref(), Some("2026-11"));
    let is_time = |it: &str| parse_rfc3339(it).is_some();
    let time = guess_text("2027-01-01", TextKind::Time, is_time);
    assert_eq!(time.as_deref(), Some("2027-01-01T00:00:00Z"));
    let is_limit = |it: &str| it == "unlimited" || it.parse::<u64>().is_ok();
    for (text, meant) in
        [("10k", "10000"), ("10 k", "10000"), ("10,000", "10000"), ("-1", "unlimited")]
    {
        assert_eq!(guess_text(text, TextKind::Number, is_limit).as_deref(), Some(meant), "{text}");
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
            suggest_value(&text(found), units("listen.http", SettingKind::Text), is_address),
            expected,
            "{found}"
        );
    }
    for text in [":9000", "*:9000", "9000", "localhost:9000"] {
        let near = guess_text(text, TextKind::ServerAddress, |it| {
            it.parse::<std::net::SocketAddr>().is_ok()
        });
        assert_eq!(near.as_deref(), Some("127.0.0.1:9000"), "{text}");
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
        ("HTTPS", Some("https")),
    ] {
        assert_eq!(find_nearest_name(found, known.into_iter()), meant, "{found}");
    }
    let modes = ["shadow", "annotate", "block"];
    for (found, meant) in [
        ("blocking", Some("block")),
        ("Blocked", Some("block")),
        ("blocks", Some("block")),
        ("annotating", Some("annotate")),
        ("annotated", Some("annotate")),
        ("shadowing", Some("shadow")),
        ("blockade", None),
    ] {
        assert_eq!(find_nearest_name(found, modes.into_iter()), meant, "{found}");
    }
}
