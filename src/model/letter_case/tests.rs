use super::*;

#[test]
fn each_letter_whose_other_case_is_ascii_becomes_ascii() {
    let in_other_case = |c: char| {
        let upper: String = c.to_lowercase().flat_map(char::to_uppercase).collect();
        [upper, c.to_lowercase().collect(), c.to_uppercase().collect()]
            .into_iter()
            .find(|text| text.is_ascii())
            .map(|text| text.to_ascii_lowercase())
    };
    for c in ('\u{80}'..=char::MAX).filter(|c| *c != '\u{130}') {
        let letters = ascii_letters_in_other_case(c);
        assert_eq!(letters.map(str::to_owned), in_other_case(c), "{c:?}");
    }
    // The lower case of this letter is `i` with a dot above, and `i` where one character
    // becomes one.
    assert_eq!(ascii_letters_in_other_case('\u{130}'), Some("i"));
}

#[test]
fn names_in_another_case_have_one_spelling() {
    for (text, expected) in [
        ("EMAIL", "email"),
        ("ema\u{131}l", "email"),
        ("EMA\u{130}L", "email"),
        ("u\u{17f}er", "user"),
        ("to\u{212a}en", "token"),
        ("Pa\u{df}word", "password"),
        ("\u{c4}MTER", "\u{e4}mter"),
    ] {
        assert_eq!(fold_case(text), expected);
        let with_other_byte = [text.as_bytes(), b"\xff"].concat();
        let folded = [expected.as_bytes(), b"\xff"].concat();
        assert_eq!(fold_case_of_bytes(&with_other_byte), folded);
    }
}
