use super::*;

#[test]
fn a_text_of_few_words_with_an_address_is_a_lone_address() {
    let is_lone_address = |text| is_new_lone_address(text, &[]);
    for text in [
        "c@d.com",
        " Joe <c@d.com> ",
        "a long name <c@d.com>",
        "c @d.com",
        "c@ d.com",
        "c @ d.com",
        "c@d .com",
        "c@d.com, x@y.com",
        "c@d.com x@y.com, a@b.com",
        "c@d.com\0 x",
        "c@d.com\0 and many more words",
        "foo,bar,c@d.com",
        "m a l l@d.com",
        "mall@d ex ample.com",
        "mall@d. c om",
        "c@d.com\r\nx y z",
        "meet @ 5. Bye",
        "c@d.\u{ad}com",
        "c@d.(x)com",
        "c@d.\"com\"",
        "c@d.\u{301}com",
        "c@d._com",
        "c@d.com \u{e9}",
        "c@d.com\u{a0}\u{e9}",
        "\u{e9} c@d.com",
        "\u{43d}\u{430} c@d.com",
        "c@d.com # \u{540d}",
        "c@d.com \u{e9}\u{e0}\u{fc}\u{f6}",
        "\u{6b22}\u{8fce} c@d.com",
        "c@d.co\u{e9}m",
        "Jane <c@d.com>",
        "<p>Welcome c@d.com</p>",
        "c@2x.png.d",
        "c@d.com/e.css",
        "c@2x.png#d",
        "c@203.0.113.7/e.css",
        "c@d.com:1.png",
        "c@d.com,e@2x.png",
        "@jane.doe @d.com",
        "+@jane.doe",
        "\u{e9}@jane.doe",
        "c@[203.0.113.7]",
        "c@203.0.113.7",
    ] {
        assert!(is_lone_address(text), "{text:?}");
    }
}

#[test]
fn a_sentence_or_a_text_without_a_local_part_is_no_lone_address() {
    for text in [
        "",
        "a@b",
        "Please use c@d.com",
        "Welcome c@d.com",
        "Hello c@d.com!",
        "Invalid: c@d.com",
        "c@d.com exists",
        "Welcome \u{e9} c@d.com",
        "@jane.doe",
        " @jane.doe ok",
        "logo@2x.png",
        "https://cdn/bootstrap@5.3.0/dist/css/x.min.css",
        "See you @ 5.30",
        "Price: 3 @ 2.50",
        "5@3.4",
        "c@d.1",
        "meet @ 8.30 pm",
        "c@d.com is taken",
        "is c@d.com, x@y.com or a@b.com yours?",
        "we meet @ the c.d today",
        "see\0c@d.com or ask",
    ] {
        assert!(!is_new_lone_address(text, &[]), "{text:?}");
    }
}

fn known_addresses() -> [String; 4] {
    ["jane@gmail.com", "c@d.com, x@y.com", "jane@b.co", "@"].map(str::to_owned)
}

#[test]
fn an_address_in_a_text_is_new_unless_the_form_has_it() {
    let known = known_addresses();
    for text in [
        "jane@gmail.com",
        "JANE@Gmail.com",
        "<jane@gmail.com>",
        "Hi jane@gmail.com!",
        "OK: jane@gmail.com.",
        "jane@gmail.com!",
        "\u{201c}jane@gmail.com\u{201d}",
        "jane@gmail.com \u{2713}",
        "\u{6b22}\u{8fce}jane@gmail.com\u{ff01}",
        "\u{3088}\u{3046}\u{3053}\u{305d}jane@gmail.com\u{3055}\u{3093}",
        "c@d.com, x@y.com",
        "jane@gmail.com, jane@gmail.com",
        "jane@gmail.com\0 and more",
        "<p>Welcome jane@gmail.com</p>",
        "Is it jane@gmail.com?",
        "De: jane@gmail.com",
        "\u{ab}jane@gmail.com\u{bb}",
        "'jane@gmail.com'",
        "mailto:jane@gmail.com",
        "Jane Doe <jane@gmail.com>",
        "\u{1f600}jane@gmail.com",
        "\u{2764}\u{fe0f} jane@gmail.com",
        "\u{6b22}\u{8fce} jane@gmail.com \u{540d}",
        "\u{6b22}\u{8fce}\u{ff0c}jane@gmail.com \u{6b22}\u{8fce}",
    ] {
        assert!(is_new_lone_address(text, &[]), "{text:?}");
        assert!(!is_new_lone_address(text, &known), "{text:?}");
    }
}

#[test]
fn an_address_is_new_if_it_may_be_another_than_that_of_the_form() {
    let known = known_addresses();
    for text in [
        "jane+1@gmail.com",
        "mary.jane@gmail.com",
        "\"jane@gmail.com\"@mailinator.com",
        "jane@gmail.com@mailinator.com",
        "jane@gmail.com.mailinator.com",
        "jane@gmail.com\u{3002}mailinator.com",
        "jane@gmail.com\u{65e5}.com",
        "jane@gmail.com\u{ad}munity.org",
        "jane@gmail.com-x.org",
        "jane@gmail.com\u{30fb}mailinator.com",
        "jane@gmail.com x@mailinator.com",
        "jane\u{ff20}gmail.com",
        "\u{e9}jane@gmail.com",
        "jane@b.co m",
        "jane@b.co\tm",
        "jane@b.co(m",
        "jane@gmail.com .au",
        "jane@gmail.com . m a i l i n a t o r . c o m",
        "e v i l jane@gmail.com",
        "xy jane@gmail.com",
        "evil,jane@gmail.com",
        "evil(jane@gmail.com",
        "evil\0jane@gmail.com",
        "Al Li <jane@gmail.com>",
        "Jane Doe <jane@gmail.com .evil.com>",
        "Jane Doe <jane@gmail.com.evil.com>",
        "Jane Doe <jane@gmail.com> <x@mailinator.com>",
        "Jane <x@mailinator.com> jane@gmail.com",
        "<p>Welcome jane@gmail.com.evil.com</p>",
        "jane@gmail.com<.evil.com>",
        "jane@gmail.com<!-- hello -->.evil.com",
        "<i hello there>jane@gmail.com<b>.evil.com",
        "Welcome <jane@gmail.com>.evil.com",
        "x@1.1 .evil.com",
        "x@1.1.1 .evil.com",
        "x@1. 1.evil.com",
        "'jane@gmail.com'.de",
        "jane@gmail.com \u{e9}",
        "x@mailinator.com \u{540d}",
        "jane@gmail.com(x).de",
        "jane@gmail.com\".de",
        "jane@gmail.com/.de",
    ] {
        assert!(is_new_lone_address(text, &known), "{text:?}");
    }
}

/// Longer than a test may take, if each at sign costs the whole text.
#[test]
fn a_long_text_with_many_at_signs_and_words_is_read_once() {
    let text = format!("{}{}b.c", "@ ".repeat(16_384), "a ".repeat(16_384));
    let known = vec!["jane@gmail.com".to_owned(); 16];
    assert!(is_new_lone_address(&text, &known));
    assert!(!is_new_lone_address(&"@ a ".repeat(16_384), &known));
    for unit in ["<a@b", "a@b>\0", "\u{e9}a@b ", "a@b\u{e9}\0"] {
        assert!(is_new_lone_address(&format!("{}b.c", unit.repeat(8_192)), &known), "{unit}");
    }
    let known = ["a@b.c", "@"].map(str::to_owned);
    for unit in ["\u{2013}@", "\u{2013}a@b", "a@b.c\u{2013}", "@\u{4e00}"] {
        assert!(is_new_lone_address(&format!("a@b.c{}", unit.repeat(8_192)), &known), "{unit}");
    }
}
