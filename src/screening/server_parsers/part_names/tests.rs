use super::*;

#[test]
fn a_part_has_the_name_that_php_reads() {
    for (disposition, name) in [
        ("form-data; name=\"email\"", Some("email")),
        ("form-data; name=email", Some("email")),
        ("form-data; name='email'", Some("email")),
        ("form-data; name=\"a\"; name=\"b\"", Some("b")),
        ("form-data; name=\"photo\"; filename=\"it's; x\"", Some("photo")),
        ("form-data; name=x'; y=\"'; name=email\"", Some("email\"")),
        ("form-data; name=\"a\\\"b\"", Some("a\"b")),
        // The second backslash escapes the quote, so the text goes on.
        ("form-data; name=\"a\\\\\"; name=b", Some("a\\")),
        ("form-data; filename*=utf-8''a.png; name=email", Some("email")),
        ("form-data", None),
    ] {
        assert_eq!(read_part_name_as_php(disposition).as_deref(), name, "{disposition}");
    }
}

#[test]
fn a_part_has_the_name_that_rack_reads() {
    for (header, name) in [
        ("Content-Disposition: form-data; name=\"email\"", Some("email")),
        ("Content-Disposition: form-data; name=email", Some("email")),
        ("Content-Disposition: form-data; name=\"x\"; y=\"; name=email\"", Some("email")),
        ("Content-Disposition: form-data; name=\"x\"; y=\"a;name=.png\"", Some(".png")),
        ("Content-Disposition: form-data; x=\";\u{a0}name=y\"; name=a", Some("a")),
        ("Content-Disposition: form-data; name=\"a:b\"; name=\"c\"", Some("a:b")),
        ("X: Content-Disposition: form-data; name=\"email\"", Some("email")),
        ("Content-Disposition: form-data; x=\":\"; name=\"a\"\r\nContent-ID: email", Some("email")),
        ("Content-Disposition: form-data; name=\"\"\r\nContent-Type: email", Some("email[]")),
        ("Content-Disposition: form-data", None),
    ] {
        assert_eq!(read_part_name_as_rack(header).as_deref(), name, "{header}");
    }
}

#[test]
fn the_search_for_names_ends_at_its_limit() {
    let names = search_part_names("Content-Disposition: form-data; x=\"name=a\"; name=b");
    assert_eq!(names, ["a", "a\"", "b"]);
    let header = format!("Content-Disposition: form-data; {}", "name=.".repeat(600));
    assert!(
        (MAX_SEARCHED_NAMES..MAX_SEARCHED_NAMES + 2).contains(&search_part_names(&header).len())
    );
}

#[test]
fn a_part_has_the_name_that_formidable_reads() {
    for (disposition, name) in [
        ("form-data; name=\"email\"; filename=\"a\"", Some("email")),
        ("form-data; filename=\"a\"; name=email", Some("email")),
        ("form-data; x-name=\"email\"; name=\"foo\"", Some("email")),
        ("form-data; filename=\"a name=email b\"; name=\"foo\"", Some("email")),
        ("form-data; filename=\"x\"", None),
    ] {
        assert_eq!(read_part_name_as_formidable(disposition).as_deref(), name, "{disposition}");
    }
}

#[test]
fn the_names_that_a_part_may_have_are_counted() {
    for (header, count) in [
        ("Content-Disposition: form-data; name=\"name\"; filename=\"my name.png\"", 1),
        ("Content-Disposition: form-data; NAME =a; name*=b; x=\"name=c\"", 3),
        ("Content-Disposition: form-data; x-name=a; name=b", 2),
        ("Content-ID: email", 0),
    ] {
        assert_eq!(count_part_names(header), count, "{header}");
    }
}
