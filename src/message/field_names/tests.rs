use super::*;

#[test]
fn a_set_contains_its_names_in_any_case_and_no_others() {
    const LONG: &str = "x-a-name-of-64-characters-which-is-longer-than-the-lengths-told";
    let names = FieldNameSet::new(["te", "trailer", LONG]);
    for name in ["te", "TE", "Trailer", &LONG.to_uppercase()] {
        assert!(names.contains(name.as_bytes()), "{name}");
    }
    for name in ["", "t", "et", "trailers", &LONG[1..], &format!("{LONG}x")] {
        assert!(!names.contains(name.as_bytes()), "{name}");
    }
    assert!(!FieldNameSet::new([]).contains(b""));
}
