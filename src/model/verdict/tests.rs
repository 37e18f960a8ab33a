use super::*;

#[test]
fn a_json_tail_has_its_members_in_order_and_an_escaped_label() {
    let verdict = Verdict {
        reason: Reason::Disposable,
        score: Score::new(100).unwrap(),
        is_free_provider: false,
        is_corporate_email: false,
        rule: Rule::DisposableA,
    };
    assert_eq!(
        verdict.render_json_tail(Some("A\"B")),
        "\",\"risk_score\":100,\"reason\":\"disposable\",\"is_free_provider\":false,\
             \"is_corporate_email\":false,\"mx_provider_label\":\"A\\\"B\"}"
    );
    assert!(verdict.render_json_tail(None).ends_with(r#""mx_provider_label":null}"#));
}

#[test]
fn reasons_and_rules_are_parsed_back() {
    for reason in Reason::ALL {
        assert_eq!(Reason::parse(reason.as_str()), Some(reason));
    }
    for rule in Rule::ALL {
        assert_eq!(Rule::from_number(rule as u8), Some(rule));
    }
    assert_eq!(Reason::parse("Safe"), None);
    assert_eq!(Rule::from_number(0), None);
}

#[test]
fn a_score_is_at_most_one_hundred() {
    assert_eq!(Score::new(100).map(Score::value), Some(100));
    assert_eq!(Score::new(101), None);
}
