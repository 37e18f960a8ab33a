use super::*;
use crate::config::ConfigFile;
use crate::support::certificate_validity::ValidityPeriod;

#[test]
fn a_certificate_that_has_expired_is_told_at_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("riskgate.toml");
    let text = "[listen]\nhttps = \"127.0.0.1:0\"\n[[listen.certificate]]\nchain = \"/a.pem\"\n\
                    key = \"/a.key\"\n";
    std::fs::write(&path, text).unwrap();
    let sources = ConfigSources { file: ConfigFile::Path(path), flags: Vec::new() };
    let config = Config::read(&sources).unwrap();
    let warnings = |days: i64| {
        let now = 1_000_000_000;
        let expires_at = now + days * 86_400;
        let certificate = CertificateDescription {
            chain: "/a.pem".to_owned(),
            names: Vec::new(),
            validity: ValidityPeriod { begins_at: 0, expires_at },
            unreachable: None,
        };
        warnings_of_invalid_certificates(&config, &[certificate], now)
    };
    let expected = "riskgate.toml:4:9: listen.certificate 1: chain: expected a certificate that \
                        is valid, but found one that expired 3 days ago\n";
    let expired = warnings(-3).concat();
    assert!(expired.contains(expected) && expired.contains("^ renew it"), "{expired}");
    assert_eq!(warnings(3), [""; 0]);
}
