use super::*;

#[test]
fn a_look_alike_is_read_as_latin() {
    for (name, apparent_name, is_mixed) in [
        ("gm\u{430}il.com", "gmail.com", true),
        ("\u{43e}utl\u{43e}\u{43e}k.com", "outlook.com", true),
        ("h\u{3bf}tmail.com", "hotmail.com", true),
        ("\u{443}\u{430}\u{4bb}\u{43e}\u{43e}.com", "yahoo.com", false),
        ("\u{261}mail.com", "gmail.com", false),
        ("gma\u{131}l.com", "gmail.com", false),
        ("gm\u{e1}il.com", "gmail.com", false),
        ("z\u{fc}rich.ch", "zurich.ch", false),
    ] {
        let expected = LookAlike { apparent_name: apparent_name.to_owned(), is_mixed };
        assert_eq!(read_look_alike(name), Some(expected), "{name}");
    }
    for (name, apparent_name) in
        [("g\u{43c}ail.com", "g?ail.com"), ("\u{43e}utl\u{43e}\u{43e}\u{3ba}.com", "outloo?.com")]
    {
        let expected = LookAlike { apparent_name: apparent_name.to_owned(), is_mixed: false };
        assert_eq!(read_look_alike(name), Some(expected), "{name}");
    }
    for name in ["\u{43c}ai.com", "gmai.\u{43c}om", "\u{43c}\u{43c}ail.com"] {
        assert_eq!(read_look_alike(name), None, "{name}");
    }
    for name in ["gmail.com", "\u{43f}\u{43e}\u{447}\u{442}\u{430}.\u{440}\u{444}", "例え.jp", ""]
    {
        assert_eq!(read_look_alike(name), None, "{name}");
    }
}

#[test]
fn each_look_alike_looks_like_one_character() {
    for pair in ASCII_OF_LETTERS.windows(2) {
        assert!(pair[0].0 < pair[1].0, "{pair:?}");
    }
}

#[test]
fn every_lower_case_letter_has_look_alikes() {
    for letter in 'a'..='z' {
        assert!(LOOK_ALIKES.lines().any(|line| line.starts_with(&format!("{letter} "))));
    }
}
