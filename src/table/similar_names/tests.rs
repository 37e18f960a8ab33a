use super::*;

#[test]
fn each_kind_of_slip_has_its_cost() {
    for (typed, meant, cost) in [
        ("gmail", "gmail", 0),
        ("gmial", "gmail", SWAP_COST),
        ("gmaill", "gmail", SWAP_COST),
        ("outlok", "outlook", SWAP_COST),
        ("gmil", "gmail", NEAR_SLIP_COST),
        ("gmsil", "gmail", NEAR_SLIP_COST),
        ("gmeil", "gmail", NEAR_SLIP_COST),
        ("gmai1", "gmail", NEAR_SLIP_COST),
        ("gmaikl", "gmail", NEAR_SLIP_COST),
        ("grnail", "gmail", NEAR_SLIP_COST),
        ("icould", "icloud", NEAR_SLIP_COST),
        ("gmxil", "gmail", OTHER_SLIP_COST),
        ("g-mail", "gmail", OTHER_SLIP_COST),
        ("hmail", "gmail", NEAR_SLIP_COST + FIRST_LETTER_EXTRA_COST),
        ("hgmail", "gmail", NEAR_SLIP_COST + FIRST_LETTER_EXTRA_COST),
        ("mail", "gmail", NEAR_SLIP_COST + FIRST_MISSING_EXTRA_COST),
        ("gmailll", "gmail", 2 * SWAP_COST),
        ("gmial", "gmali", NEAR_SLIP_COST),
    ] {
        assert_eq!(compute_edit_cost(typed.as_bytes(), meant.as_bytes()), cost, "{typed} {meant}");
    }
    for (typed, meant) in [("pmail", "gmail"), ("xgmail", "gmail"), ("7gmail", "gmail")] {
        assert!(compute_edit_cost(typed.as_bytes(), meant.as_bytes()) >= UNLIKELY_COST, "{typed}");
    }
}

proptest::proptest! {
    #[test]
    fn no_name_is_a_slip_of_itself_and_none_panics(label in "[a-z0-9-]{0,25}", suffix in "[a-z.]{0,25}") {
        let name = format!("{label}.{suffix}");
        let others = ["gmail.com", "sfr.fr", "yahoo.co.uk"].map(str::to_owned);
        for state in [SuffixState::Exists, SuffixState::IsNoSuffix, SuffixState::HasNoTld] {
            let Some(typed) = TypedName::new(&name, state) else { continue };
            let own = std::slice::from_ref(&name);
            let own = MistypedProviderFinder::new(own, &[], own);
            proptest::prop_assert_eq!(own.find_meant_provider(&typed), None);
            MistypedProviderFinder::new(&others, &[], &[]).find_meant_provider(&typed);
        }
    }
}
