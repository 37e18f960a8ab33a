use super::*;

#[test]
fn only_urls_to_which_riskgate_may_connect_are_accepted() {
    for (url, without, with_private) in [
        ("https://hooks.example/x?y=z", true, true),
        ("https://me:word@hooks.example:8443/x", true, true),
        ("https://8.8.8.8/", true, true),
        ("https://[2606:4700::1111]/", true, true),
        ("https://127.0.0.1/", false, true),
        ("https://10.0.0.1:8443/x", false, true),
        ("https://169.254.169.254/latest", false, true),
        ("https://[::1]/", false, true),
        ("https://[::ffff:10.0.0.1]/", false, true),
        ("https://localhost/", false, true),
        ("https://a.LOCALHOST./", false, true),
        ("http://127.0.0.1:8000/x", false, true),
        ("http://receiver.internal/x", false, true),
        ("http://8.8.8.8/", false, false),
        ("ftp://hooks.example/", false, false),
        ("hooks.example/x", false, false),
        ("https://", false, false),
        ("https://a b/", false, false),
        ("https://hooks.example/#x", false, false),
        ("", false, false),
    ] {
        assert_eq!(find_url_fault(url, false).is_none(), without, "{url}");
        assert_eq!(find_url_fault(url, true).is_none(), with_private, "{url}");
    }
}
