use super::*;

#[test]
fn a_refused_port_names_its_setting_and_what_to_write() {
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    let describe =
        |kind: ErrorKind| describe_bind_error("listen.http", address, &kind.into(), None);
    let refused = describe(ErrorKind::PermissionDenied);
    let start = "listen.http: expected to listen on 127.0.0.1:80, but found permission denied";
    assert!(refused.starts_with(start), "{refused}");
    assert!(refused.ends_with("AmbientCapabilities=CAP_NET_BIND_SERVICE"), "{refused}");
    assert!(describe(ErrorKind::AddrInUse).contains("; another program uses that port"));
    let in_use = ErrorKind::AddrInUse.into();
    let found = describe_bind_error("listen.http", address, &in_use, Some(7));
    assert!(found.contains("; riskgate runs already, as process 7, from the same"), "{found}");
    assert!(describe(ErrorKind::AddrNotAvailable).ends_with("or 0.0.0.0 for all of them"));
    assert!(!describe(ErrorKind::OutOfMemory).contains("write"));
}
