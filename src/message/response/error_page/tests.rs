use super::*;

#[test]
fn a_message_is_text_and_no_markup() {
    let page = render_error_page(422, "<b>\"No\" & 'no'</b>", Some("gmail.com"));
    assert!(page.contains("<h1>&lt;b&gt;&quot;No&quot; &amp; &#39;no&#39;&lt;/b&gt;</h1>"));
    assert!(page.contains("<strong>gmail.com</strong>"));
    assert!(page.contains("<title>Unprocessable Entity</title>"));
    assert!(!render_error_page(500, "x", None).contains("Did you mean"));
}
