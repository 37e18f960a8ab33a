use super::*;

#[test]
fn each_component_has_advice_of_its_own_that_names_no_file_of_the_sources() {
    let parts = [
        "audit",
        "certificates",
        "config",
        "dns",
        "feeds",
        "keys",
        "overrides",
        "rates",
        "sign_ups",
        "table",
        "webhook",
    ];
    for component in parts.into_iter().chain(PROBLEM_COMPONENTS) {
        for keys in [KeyReadState::Read, KeyReadState::ReadBefore, KeyReadState::NeverRead] {
            let advice = find_advice(component, "expected a file", keys);
            assert_ne!(advice, NO_ADVICE, "{component}");
            assert!(!advice.contains("docs/"), "{component}: {advice}");
        }
    }
}

/// The overrides that were read last do not serve if the store lost one of them.
#[test]
fn a_lost_override_has_advice_that_does_not_contradict_its_text() {
    let advice = |problem| find_advice("overrides", problem, KeyReadState::Read);
    let lost = advice("override of a.com: the store lost it, and it is no longer in force; run x");
    assert!(lost.contains("that the store has are in force") && !lost.contains("read last"));
    let unread = advice("expected the overrides of the store, but found no answer");
    assert!(unread.contains("that riskgate read last serve"));
}
