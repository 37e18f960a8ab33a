use super::*;

#[test]
fn every_spelling_that_a_server_may_read_leads_to_the_prefix() {
    for path in [
        "/open/admin",
        "/open/admin/",
        "/open/admin/users",
        "/open/%61dmin",
        "/open/%2561dmin",
        "/open/admi%6E/users",
        "/open/admin;x=1",
        "/open/admin;/users",
        "/open/admin%3bx",
        "/OPEN/ADMIN",
        "/open/%41dmin",
        "/open/;x/admin",
        "/open/%3b/admin",
        "/open/admin.",
        "/open/admin.json",
        "/open/admin.json/x",
        "/open/admin%20/x",
        "/open/admin::$DATA",
        "/open/admin%3Fx",
        "/open/admin%23x",
        "/open//admin",
        "//open/admin",
        "/open%2Fadmin",
        "/open%2fadmin/x",
        "/open%c0%afadmin",
        "/open/%20/admin",
        "/index.php/open/admin",
        "/open/INDEX.PHP/admin",
        "/open/app.php7;x/admin/users",
        "/cgi.fcgi/open/admin.json",
        "/index%2Ephp/open/admin",
        "/public/index.php/open/admin",
        "/cgi-bin/app.cgi/open/admin/",
        "/app.aspx./open/admin",
        "/x.py/y.php/open/admin",
        "/index.cfm/open/admin",
        "/open/Api.cfc/admin",
        "/app.wsgi/open/admin/users",
        "/app.psgi/open/admin",
        "//x/open/admin",
        "//x:80/open/admin",
        "/%2Fx/open/admin",
    ] {
        let readings = PathReadings::of(path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
        assert!(readings.is_at_or_below("/open/admin"), "{path}");
        assert!(readings.is_at_or_below("/open") && readings.is_at_or_below("/"), "{path}");
    }
}

#[test]
fn every_character_and_session_id_that_a_server_decodes_leads_to_the_prefix() {
    for path in [
        "/open/%u0061dmin",
        "/%u006Fpen/%U0061dmin/users",
        "/open%u002fadmin",
        "/open/%25u0061dmin",
        "/open%e0%80%afadmin",
        "/open/%f0%80%81%a1dmin",
        "/(S(k3j2h1))/open/admin",
        "/open/(A(x)S(y))/admin",
        "/open/adm(S(x))in",
        "/open/adm/(S(x))in",
        "/op/(S(x))en/(S(y))/adm/(S(z))in",
        "/open/adm%28S(x)%29in",
    ] {
        let readings = PathReadings::of(path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
        assert!(readings.is_at_or_below("/open/admin"), "{path}");
        assert!(readings.is_at_or_below("/open") && readings.is_at_or_below("/"), "{path}");
    }
    for path in [
        "/",
        "/open",
        "/open/administrators",
        "/open/x/admin",
        "/x/open/admin",
        "/%zz",
        "/index.html/open/admin",
        "/php/open/admin",
        "/py;x/open/admin",
        "/index.php/administrators",
        "//x/y/open/admin",
        "/open/adm(in)",
        "/open/adm(S(/)in",
        "/%u00/open/admin",
        "/%u+061/open/admin",
    ] {
        let readings = PathReadings::of(path.as_bytes()).unwrap();
        assert!(!readings.is_at_or_below("/open/admin"), "{path}");
        assert!(readings.is_at_or_below("/"));
    }
}

#[test]
fn letters_beyond_ascii_that_are_ascii_in_another_case_lead_to_the_prefix() {
    for path in [
        "/%C5%BFigns/%E2%84%AAiss",
        "/s%C4%B1gns/kiss",
        "/S%C4%B0GNS/KISS/x",
        "/%25C5%25BFigns/kiss",
        "/%u017figns/%u212Aiss",
        "/signs/ki%C3%9F",
        "/signs/ki\u{df}",
        "/signs%2F%E2%84%AAiss",
        "/\u{17f}igns/\u{212a}iss",
        "/(S(x))/%C5%BFigns/kiss.json",
    ] {
        let readings = PathReadings::of(path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
        assert!(readings.is_at_or_below("/signs/kiss"), "{path}");
        assert!(readings.may_hide_path(), "{path}");
    }
    for path in ["/%C5igns/kiss", "/\u{e9}signs/kiss", "/%C5%BF%C5%BFigns/kiss"] {
        let readings = PathReadings::of(path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
        assert!(!readings.is_at_or_below("/signs/kiss"), "{path}");
    }
}

#[test]
fn a_query_that_begins_with_a_slash_may_be_the_rest_of_the_path() {
    for (target, expected) in [
        ("/?/open", true),
        ("/?/Open/", true),
        ("/?/%6fpen/x", true),
        ("/?%2Fopen", true),
        ("/?%2fopen", true),
        ("/??/open", true),
        ("//?//open", true),
        ("/?/open?x=1", true),
        ("/?/open&x=1", true),
        ("/?/open&x?/y", true),
        ("/index.php?/open", true),
        ("/Index%2Ephp?/open", true),
        ("/index.php/?/open", true),
        ("/app/index.php?/open", true),
        ("/?/index.php/open", true),
        ("/?open", false),
        ("/?x=/open", false),
        ("/?x/open", false),
        ("/?/x?/open", false),
        ("/?/x&/open", false),
        ("/app?/open", false),
        ("/?", false),
        ("/?/", false),
    ] {
        let readings = PathReadings::of(target.as_bytes()).unwrap_or_else(|| panic!("{target}"));
        assert_eq!(readings.is_at_or_below("/open"), expected, "{target}");
        assert!(!readings.is_at_or_below_without_host_and_query("/open"), "{target}");
    }
    for target in ["/app?/open", "/app/?/open", "/app/index.php?/open"] {
        let readings = PathReadings::of(target.as_bytes()).unwrap();
        assert!(readings.is_at_or_below("/app/open"), "{target}");
    }
    for (target, may_lead_to_each) in [
        ("/?/../open", true),
        ("/?/%2e%2e/open", true),
        ("/?/op%00en", true),
        ("/?/a\\open", true),
        ("/?/search/&q=a%0D%0Ab", false),
        ("/?/search/&q=a\\b", false),
        ("/?/x&/../open", true),
        ("/?/x&/%252e%2e/open", true),
        ("/?/x&\\..\\open", true),
        ("/?/x&/.%0a./open", true),
        ("/?/x&/.(S(a))./open", true),
        ("/combo?/yui/a.js&/yui/../b.js", true),
    ] {
        let readings = PathReadings::of(target.as_bytes()).unwrap();
        assert!(readings.is_query_unreadable() && readings.may_hide_path(), "{target}");
        assert_eq!(readings.may_query_lead_to_each_path(), may_lead_to_each, "{target}");
    }
    assert!(!PathReadings::of(b"/?/open").unwrap().is_query_unreadable());
}

#[test]
fn a_plain_path_is_read_as_by_the_full_rules() {
    let names = ["open", "Open", "admin", "a", "v1", "php", "PHP7x", "pl", "x_y-1", "openadmin"];
    let prefixes = ["/", "/open", "/open/admin", "/v1/public", "/a", "/php", "/x_y-1"];
    let mut plain_count = 0;
    for number in 0..names.len().pow(3) * 2 {
        let (number, end) = (number / 2, if number % 2 == 0 { "" } else { "/" });
        let at = |place: u32| names[number / names.len().pow(place) % names.len()];
        for depth in 1..=3 {
            let path: String = (0..depth).map(|place| format!("/{}", at(place))).collect();
            let path = path + end;
            let readings = PathReadings::of(path.as_bytes()).unwrap();
            plain_count += usize::from(readings.is_plain);
            for prefix in prefixes {
                let by_full_rules = Reading::of(Cow::Borrowed(path.as_bytes()))
                    .is_some_and(|it| it.paths_without_host().any(|it| it.is_at_or_below(prefix)));
                let found = readings.is_at_or_below_without_host_and_query(prefix);
                assert_eq!(found, by_full_rules, "{path} {prefix}");
            }
        }
    }
    assert!(plain_count > 1_000);
}

#[test]
fn a_path_that_leads_elsewhere_in_some_server_has_no_reading() {
    let brackets = format!("/open/{}", "(a".repeat(66));
    let ids = format!("/open/({}x", "B(x)".repeat(MAX_SESSION_ID_BEGINNINGS + 1));
    let long = format!("/open/x.y{}", "/a".repeat(MAX_SEGMENTS));
    for path in [
        "",
        "open",
        "*",
        "http://host/open",
        "/open/./admin",
        "/open/x/../admin",
        "/open/..",
        "/open/%2e%2e/a",
        "/open/..;/a",
        "/open/.%3bx/a",
        "/open/x/..%20/admin",
        "/open/x/..%c0%afadmin",
        "/open/%252e%252e/a",
        "/open/a\\b",
        "/open/a%5Cb",
        "/open/%00",
        "/open/%0a",
        "/open/%7f",
        "/open/%c0%ae%c0%ae/x",
        "/open/%u002e%u002e/a",
        "/open/%u005ca",
        "/open/%e0%80%ae%f0%80%80%ae/x",
        "/open/.(S(x))./a",
        &brackets,
        &ids,
        &long,
    ] {
        assert!(PathReadings::of(path.as_bytes()).is_none(), "{path}");
    }
    for path in [
        "//",
        "///",
        "/%2f",
        "/%20/",
        "/;x/",
        "/(S(x))",
        "/.well-known/x",
        "/a..b",
        "/b%C3%BC",
        "/a%2Fb",
        "/100%",
        "/a:b",
        "/a%20b",
        "/f(g(x))",
        "/%u20ac",
        "/%E2%82%AC",
    ] {
        let readings = PathReadings::of(path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
        assert!(readings.is_at_or_below("/") && !readings.is_at_or_below("/open"), "{path}");
    }
}

#[test]
fn a_program_hides_a_path_only_if_a_segment_follows_its_name() {
    for (path, expected) in [
        ("/open/i.php", false),
        ("/open/i.php/", false),
        ("/open/i.php/;x", false),
        ("/open/i.php/a", true),
        ("/open/i.php/a/", true),
        ("/open/.php/a", true),
        // Without a dot, the name is that of a section.
        ("/open/pl/", false),
        ("/php/a", false),
        ("/open/py;x.pl/a", false),
        ("/php./a", false),
    ] {
        let readings = PathReadings::of(path.as_bytes()).unwrap();
        assert_eq!(readings.may_hide_path(), expected, "{path}");
    }
}
