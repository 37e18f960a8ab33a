use super::OverridesVersion;

#[test]
fn a_version_is_lost_if_the_store_is_behind_it_or_reached_its_number_by_another_change() {
    let version = |number, change_id: &str| OverridesVersion {
        number,
        change_id: change_id.to_owned(),
        ..OverridesVersion::default()
    };
    for (known, found, id, is_lost) in [
        (version(3, "c"), version(3, "c"), Some("c"), false),
        (version(3, "c"), version(3, "x"), Some("x"), true),
        (version(3, "c"), version(2, "b"), None, true),
        (version(3, "c"), version(5, "e"), Some("c"), false),
        (version(3, "c"), version(5, "e"), Some("x"), true),
        // An earlier version of riskgate made the change.
        (version(3, "c"), version(5, "e"), None, false),
        (version(0, "-"), version(2, "b"), None, false),
    ] {
        assert_eq!(known.is_lost(&found, id), is_lost, "{known:?} {found:?} {id:?}");
    }
}
