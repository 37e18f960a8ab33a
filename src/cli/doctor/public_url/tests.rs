use super::*;

#[test]
fn the_plain_url_of_an_ipv6_address_has_brackets() {
    for (text, plain) in [
        ("https://[::1]", "http://[::1]/"),
        ("https://[2001:db8::7]:443/a", "http://[2001:db8::7]/"),
        ("https://a.example/?b", "http://a.example/"),
        ("https://127.0.0.1", "http://127.0.0.1/"),
    ] {
        assert_eq!(PublicUrl::parse(text).unwrap().plain_url(), plain);
    }
}

#[test]
fn an_answer_of_another_server_is_good_for_no_config() {
    let level_with = |text: &str| {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let sources = crate::config::ConfigSources {
            file: crate::config::ConfigFile::Path(file.path().to_owned()),
            flags: Vec::new(),
        };
        let config = Config::read(&sources).unwrap();
        judge_answer(StatusCode::OK, false, &config).level
    };
    let authz = "[authz]\npath = \"/authz\"\ncheck = [\"key\"]\n";
    let route = "[[upstream.route]]\nprefix = \"/signup\"\n";
    assert_eq!(level_with(authz), FindingLevel::Warning);
    assert_eq!(level_with(&format!("{authz}{route}")), FindingLevel::Fault);
    assert_eq!(level_with(route), FindingLevel::Fault);
}
