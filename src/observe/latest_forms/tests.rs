use super::*;

#[test]
fn the_last_hundred_forms_are_kept_and_the_latest_is_first() {
    let forms = LatestForms::default();
    assert_eq!(forms.to_json(), json!([]));
    for number in 0..MAX_LATEST_FORMS + 7 {
        forms.record(LatestForm {
            at: number as i64,
            route: SmolStr::new_static("/signup"),
            action: "block",
            rule: None,
            reason: "disposable",
            score: Some(100),
            domain: Some(format!("n{number}.com").into()),
        });
    }
    let json = forms.to_json();
    let domains: Vec<&str> =
        json.as_array().unwrap().iter().map(|it| it["domain"].as_str().unwrap()).collect();
    let expected: Vec<String> =
        (7..MAX_LATEST_FORMS + 7).rev().map(|number| format!("n{number}.com")).collect();
    assert_eq!(domains, expected);
    assert_eq!(
        json[0],
        json!({
            "at": "1970-01-01T00:01:46Z", "route": "/signup", "action": "block", "rule": null,
            "reason": "disposable", "score": 100, "domain": "n106.com",
        })
    );
}
