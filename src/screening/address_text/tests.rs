use super::*;

#[test]
fn a_text_of_few_words_with_an_address_is_a_lone_address() {
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
    ] {
        assert!(is_lone_address(text), "{text:?}");
    }
    for text in [
        "",
        "a@b",
        "Please use c@d.com",
        "Welcome c@d.com",
        "Hello c@d.com!",
        "Invalid: c@d.com",
        "c@d.com exists",
        "\u{6b22}\u{8fce} c@d.com",
        "See you @ 5.30",
        "Price: 3 @ 2.50",
        "meet @ 8.30 pm",
        "c@d.com is taken",
        "is c@d.com, x@y.com or a@b.com yours?",
        "we meet @ the c.d today",
        "see\0c@d.com or ask",
    ] {
        assert!(!is_lone_address(text), "{text:?}");
    }
}
