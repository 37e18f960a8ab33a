use super::is_host_field;

#[test]
fn a_host_may_have_a_port_up_to_65535() {
    for text in ["x", "www.example.com", "x:1", "x:65535", "[::1]", "[::1]:80"] {
        assert!(is_host_field(text), "{text}");
    }
    for text in ["", ":80", "x:", "x:0", "x:65536", "x:99999", "x:a", "me@x", "http://x", "x/y"] {
        assert!(!is_host_field(text), "{text}");
    }
}
