use super::*;

#[test]
fn html_counts_unless_json_stands_before_it() {
    for (accept, expected) in [
        ("text/html,application/xhtml+xml,*/*;q=0.8", true),
        ("Text/HTML ;q=0.9, application/json", true),
        ("text/vnd.turbo-stream.html, text/html, application/xhtml+xml", true),
        ("text/html-sandboxed, text/html", true),
        ("application/json, text/html", false),
        ("application/json, text/plain, */*", false),
        ("text/html;q=0, application/json", false),
        ("application/json; q=0.0, text/html; q=0.5", true),
        ("*/*", false),
        ("", false),
    ] {
        let accepted = AcceptedTypes::read([accept.as_bytes()].into_iter());
        assert_eq!(accepted.is_html_first(), expected, "{accept}");
    }
    let two = [&b"application/xml"[..], b"text/html"];
    assert!(AcceptedTypes::read(two.into_iter()).is_html_first());
}

#[test]
fn problem_details_count_alone() {
    for (accept, expected) in [
        ("application/problem+json", true),
        ("application/problem+json;q=1, Application/Problem+JSON", true),
        ("application/problem+json, */*", false),
        ("application/problem+json;q=0", false),
        ("application/problem+json, text/html;q=0", true),
        ("", false),
    ] {
        let accepted = AcceptedTypes::read([accept.as_bytes()].into_iter());
        assert_eq!(accepted.is_problems_only(), expected, "{accept}");
    }
}
