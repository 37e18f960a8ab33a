use super::*;

fn settings(variables: &[(&str, &str)]) -> ProxySettings {
    ProxySettings::read(|name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn the_first_variable_with_a_value_names_the_proxy() {
    for (variables, expected) in [
        (&[][..], None),
        (&[("HTTPS_PROXY", " ")], None),
        (&[("HTTPS_PROXY", ""), ("http_proxy", "p.test")], Some("p.test:80")),
        (&[("ALL_PROXY", "a.test:1"), ("https_proxy", "https://b.test")], Some("b.test:443")),
        (&[("ALL_PROXY", "http://me:w%40@[::1]:3128/")], Some("[::1]:3128")),
    ] {
        let found = settings(variables).proxy_for("lists.test", 443).unwrap();
        let found = found.map(|proxy| proxy.host_and_port);
        assert_eq!(found.as_deref(), expected, "{variables:?}");
    }
}

#[test]
fn hosts_without_a_proxy_are_named_with_ports_and_patterns() {
    for (hosts, host, port, is_direct) in [
        ("lists.test", "LISTS.test", 443, true),
        ("lists.test", "a.lists.test", 443, false),
        ("a.test, lists.test:8443", "lists.test", 8443, true),
        ("lists.test:8443", "lists.test", 443, false),
        (".test", "lists.test", 443, true),
        ("*.lists.test", "lists.test", 443, false),
        ("*", "lists.test", 443, true),
        ("10.*,192.168.", "192.168.0.1", 443, true),
        ("[::1]:443", "::1", 443, true),
        ("::1", "::1", 443, true),
        ("", "lists.test", 443, false),
    ] {
        let settings = settings(&[("HTTPS_PROXY", "p.test"), ("no_proxy", hosts)]);
        let found = settings.proxy_for(host, port).unwrap();
        assert_eq!(found.is_none(), is_direct, "{hosts} {host}:{port}");
    }
}

#[test]
fn an_unusable_proxy_is_a_fault_without_its_value() {
    for value in ["socks5://me:secret@p.test", "me secret", "http://[::1", "http://", "a b://c"] {
        let settings = settings(&[("HTTPS_PROXY", value)]);
        let fault = settings.proxy_for("lists.test", 443).err().unwrap();
        assert!(fault.starts_with("HTTPS_PROXY: expected the URL of a proxy"), "{fault}");
        assert!(!format!("{fault} {settings:?}").contains("secret"), "{fault}");
    }
}
