use super::*;

#[test]
fn facts_are_parsed_back_and_no_name_is_left_out() {
    for fact in Fact::ALL {
        assert_eq!(Fact::parse(fact.as_str()), Some(fact));
    }
    assert_eq!(REASON_NAMES, Reason::ALL.map(Reason::as_str));
    assert_eq!(VERDICT_SOURCE_NAMES, VerdictSource::ALL.map(VerdictSource::as_str));
}
