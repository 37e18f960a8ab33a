use super::*;
use crate::store::StoreUrl;
use crate::store::redis_server::RedisServer;

#[test]
fn a_connector_with_renewed_certificates_knows_the_same_primaries() {
    let server = RedisServer::start_with_tls();
    let folder = tempfile::tempdir().unwrap();
    let tls_ca = folder.path().join("ca.pem");
    std::fs::copy(server.ca_certificate_path(), &tls_ca).unwrap();
    let options = RedisOptions { tls_ca: Some(tls_ca.clone()), ..RedisOptions::default() };
    let url = StoreUrl::parse("rediss+cluster://127.0.0.1:1").unwrap();
    let StoreUrl::Redis(url) = url else { panic!("no server") };
    let (mut watch, mut connector) = CertificateWatch::begin(&url, &options).unwrap();
    let primaries = |connector: &mut Connector| match connector {
        Connector::Cluster { last_primaries, .. } => std::mem::take(last_primaries),
        _ => panic!("no Cluster"),
    };
    if let Connector::Cluster { last_primaries, .. } = &mut connector {
        last_primaries.push("127.0.0.1:2".to_owned());
    }
    assert!(!watch.renew(&mut connector), "nothing has changed");
    let certificate = std::fs::read(&tls_ca).unwrap();
    std::fs::write(&tls_ca, [&certificate[..], &certificate].concat()).unwrap();
    assert!(watch.renew(&mut connector) && !watch.renew(&mut connector));
    assert_eq!(primaries(&mut connector), ["127.0.0.1:2"]);
}
