use super::*;

#[test]
fn each_name_has_its_flags_and_others_have_none() {
    let all: Vec<(String, u8)> = (0..5000).map(|n| (format!("tld{n}"), n as u8 | 1)).collect();
    let tlds = TldFlags::new(&all);
    for (name, flags) in &all {
        assert_eq!(tlds.flags_of(name), *flags, "{name}");
    }
    assert_eq!(tlds.flags_of("tld5000"), 0);
    assert_eq!(TldFlags::new(&[]).flags_of("com"), 0);
}
