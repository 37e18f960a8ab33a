use super::*;

#[test]
fn a_shown_url_has_neither_user_nor_path_nor_query() {
    let url = WebhookUrl::from_checked("https://me:word@a.example:8443/T0/x?key=y".to_owned());
    assert_eq!(format!("{url} {url:?}"), "https://a.example:8443/… https://a.example:8443/…");
    assert!(url.has_tls() && url.expose_text().contains("word"));
}
