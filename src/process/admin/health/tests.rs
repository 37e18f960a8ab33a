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
        for keys in [KeySource::Read, KeySource::ReadBefore, KeySource::NeverRead] {
            let advice = find_advice(component, keys);
            assert_ne!(advice, NO_ADVICE, "{component}");
            assert!(!advice.contains("docs/"), "{component}: {advice}");
        }
    }
}
