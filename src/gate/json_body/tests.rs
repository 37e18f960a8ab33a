use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    #[expect(dead_code)]
    email: String,
}

#[test]
fn a_fault_says_where_it_is_and_repeats_nothing() {
    for (body, expected) in [
        (r#""jane@a.com""#, "no JSON object"),
        (r#"["jane@a.com"]"#, "no JSON object"),
        ("", "no JSON object"),
        (r#"{"email":"jane@a.com""#, "JSON that ends too early in line 1, column 21"),
        (r#"{"email":jane@a.com}"#, "a fault in the JSON in line 1, column 10"),
        (r#"{"email":"a"} jane@a.com"#, "a fault in the JSON in line 1, column 15"),
        ("{\n\"jane@a.com\":1}", "a member of another name in line 2, column 12"),
        (r#"{"email":{"jane@a.com":1}}"#, "another type of email in line 1, column 9"),
        ("{\n\"email\":5}", "another type of email in line 2, column 9"),
        ("{}", "no member email in line 1, column 2"),
        (r#"{"email":"a","email":"b"}"#, "the member email twice in line 1, column 20"),
    ] {
        let members = r#"expected {"email":"…"}"#;
        let found = parse_json_object::<Question>(body.as_bytes(), members).unwrap_err();
        assert_eq!(found, format!("{members}, but found {expected}"), "{body}");
    }
}
