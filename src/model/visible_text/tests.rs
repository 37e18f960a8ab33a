use super::*;

#[test]
fn letters_of_all_scripts_are_visible_and_marks_of_direction_are_not() {
    assert!(
        !"Ünïcode 日本 עברית\u{200f} می\u{200c}خواهم 👩\u{200d}💻, a"
            .chars()
            .any(is_control_or_invisible)
    );
    for c in ['\n', '\u{85}', '\u{200b}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{feff}'] {
        assert!(is_control_or_invisible(c), "{c:?}");
    }
}
