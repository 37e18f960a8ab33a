use super::*;

#[test]
fn only_a_probe_that_began_later_confirms_a_finding() {
    let (mut held, denial) = (HeldFindings::default(), DnsFinding::Unknown("a".to_owned()));
    let names = |taken: Vec<(Arc<str>, DnsFinding)>| -> Vec<String> {
        taken.into_iter().map(|(name, _)| name.to_string()).collect()
    };
    held.hold("before.com".into(), denial.clone());
    held.note_probe_began();
    held.hold("since.com".into(), denial);
    assert_eq!(held.count(), 2);
    assert_eq!(names(held.take_confirmed()), ["before.com"]);
    assert_eq!(names(held.take_confirmed()), [""; 0]);
    held.note_probe_began();
    assert_eq!(names(held.take_confirmed()), ["since.com"]);
    assert_eq!(held.count(), 0);
}
