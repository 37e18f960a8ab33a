use super::*;

#[test]
fn the_backend_asks_about_a_typing_error_once() {
    let told = RiskgateFields { suggestion: "gmail.com".into(), ..RiskgateFields::default() };
    let asked = render_answer_page(b"email=jane%40gmial.com", &told);
    assert!(asked.contains("Did you mean <b>jane@gmail.com</b>?"), "{asked}");
    let kept = render_answer_page(b"email=jane%40gmial.com&confirmed=yes", &told);
    assert!(kept.contains("Welcome, <b>jane@gmial.com</b>"), "{kept}");
}

#[test]
fn an_address_can_not_add_html() {
    let told = RiskgateFields { suggestion: "a\"><b>".into(), ..RiskgateFields::default() };
    for body in ["email=<i>'%40x", "email=<i>'%40x&confirmed=yes"] {
        let page = render_answer_page(body.as_bytes(), &told);
        assert!(!page.contains("<i>") && !page.contains("><b>\""), "{page}");
    }
}
