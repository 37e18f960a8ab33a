use super::*;

#[test]
fn a_body_is_one_list_of_one_to_1000_names() {
    let list = |count: usize| format!(r#"{{"domains":{}}}"#, json!(vec!["a.com"; count]));
    for count in [1, 1_000] {
        assert_eq!(parse_names(list(count).as_bytes()).unwrap().len(), count);
    }
    for body in [
        list(0),
        list(1_001),
        String::new(),
        "[]".to_owned(),
        r#"[["a.com"]]"#.to_owned(),
        r#"{"domains":"a.com"}"#.to_owned(),
        r#"{"domains":[1]}"#.to_owned(),
        r#"{"domains":["a.com"],"domains":["b.com"]}"#.to_owned(),
        r#"{"domains":["a.com"],"more":1}"#.to_owned(),
        r#"{"domains":["a.com"]} "#.to_owned() + "x",
    ] {
        let fault = parse_names(body.as_bytes()).unwrap_err();
        assert!(fault.starts_with("expected {\"domains\""), "{body}: {fault}");
    }
}
