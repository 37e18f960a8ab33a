use super::*;
use crate::table::TableLocation;

const NOW: i64 = 1_795_219_200;

/// Lists in a folder that protect these names.
fn inputs_with_protected_names(folder: &Path, names: &[&str]) -> TableInputs {
    let manifest = "[[list]]\nfile = \"protected.txt\"\nkind = \"protected\"\n";
    std::fs::write(folder.join("manifest.toml"), manifest).unwrap();
    std::fs::write(folder.join("protected.txt"), names.join("\n") + "\n").unwrap();
    let base_location = TableLocation::Path(folder.to_owned());
    TableInputs { base_location, ..TableInputs::default() }
}

#[test]
fn each_of_several_domains_is_told_with_the_protected_names_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let protected = ["mail.one.test", "post.one.test", "a.b.two.test", "three.test"];
    let inputs = inputs_with_protected_names(folder.path(), &protected);
    let names = ["test", "one.test", "two.test", "b.two.test", "three.test", "none.test", "e.test"];
    let names = names.map(|name| DnsName::parse(name).unwrap());
    let refused = |is_exact| match check_lists_do_not_protect(&inputs, &names, is_exact, NOW) {
        Err(ManagementFault::ForceRequired(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(false),
        "test: the lists protect 4 names below it, such as three.test\n\
         one.test: the lists protect 2 names below it, such as mail.one.test\n\
         two.test: the lists protect a.b.two.test, which is below it\n\
         b.two.test: the lists protect a.b.two.test, which is below it\n\
         three.test: the lists protect three.test"
    );
    assert_eq!(refused(true), "three.test: the lists protect three.test");
}

#[test]
fn each_domain_of_a_request_counts_once_and_keeps_its_place() {
    let domains = ["b.test", "a.test", "B.test.", "a.test"].map(str::to_owned);
    let request = OverrideRequest {
        domains: &domains,
        action: OverrideAction::Deny,
        is_exact: false,
        note: "",
        until: None,
        is_forced: false,
    };
    let names = request.parse_names().unwrap();
    assert_eq!(names.iter().map(DnsName::as_str).collect::<Vec<_>>(), ["b.test", "a.test"]);
}
