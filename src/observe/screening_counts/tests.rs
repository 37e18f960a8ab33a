use super::*;

#[test]
fn the_domains_that_are_counted_apart_are_limited() {
    let counts = ScreeningCounts::default();
    let metric = IntCounter::new("screened", "Forms.").unwrap();
    let count_form = |domain: &str| {
        counts.count_form("/a", "pass", "safe", Some(domain), || metric.clone());
    };
    for number in 0..MAX_FORM_KINDS + 100 {
        count_form(&format!("n{number}.com"));
    }
    count_form("n7.com");
    assert_eq!(metric.get(), MAX_FORM_KINDS as u64 + 101);
    let forms = counts.to_json();
    let forms = forms.as_array().unwrap();
    assert_eq!(forms.len(), MAX_FORM_KINDS + 1);
    assert_eq!((&forms[0]["domain"], &forms[0]["count"]), (&Value::Null, &json!(100)));
    assert_eq!((&forms[1]["domain"], &forms[1]["count"]), (&json!("n7.com"), &json!(2)));
}
