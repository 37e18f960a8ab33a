use super::may_be_secret;

#[test]
fn only_a_text_that_begins_as_a_path_and_has_plain_words_is_no_secret() {
    for path in ["/run/secrets/token", "./token.txt", "../a-b/c_d", "~/.config/url"] {
        assert!(!may_be_secret(path), "{path}");
    }
    for secret in [
        "hunter2",
        "redis://:pw@10.0.0.5:6379/0",
        "/redis://:pw@10.0.0.5",
        "ab/cd",
        "/aB3/xY9",
        "/0123456789abcdef0123456789abcdef",
        "/a+b",
        "/ab=",
    ] {
        assert!(may_be_secret(secret), "{secret}");
    }
}
