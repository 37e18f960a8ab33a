use super::*;

#[test]
fn a_failed_bind_is_told_once_and_repeated() {
    let sockets = StoreNameSockets(Arc::new(Mutex::new(Sockets {
        address_hashes: vec!["a hash of this test alone".to_owned()],
        ..Sockets::default()
    })));
    let served = ServedStore { address: "sqlite:a".to_owned(), id: None, inode: Some(7) };
    let lock = || sockets.0.lock().unwrap();
    lock().served = Some(served.clone());
    let name = lock().names_to_bind().remove(0);
    let other = bind_name(&name).unwrap();
    sockets.update(&served).unwrap_err();
    sockets.update(&served).unwrap();
    drop(other);
    sockets.update(&served).unwrap();
    assert!(lock().bound.is_empty(), "a pause comes first");
    let early = Instant::now().checked_sub(SERVED_STORE_RETRY_PAUSE);
    lock().failed_at = early;
    sockets.update(&served).unwrap();
    assert_eq!(lock().bound.len(), 1);
    assert!(bind_name(&name).is_err(), "the name is bound");
}

#[test]
fn a_line_of_another_socket_names_no_store() {
    let hashes = ["0123456789abcdef".to_owned()];
    let parse = |name: &str| {
        let line = format!("0000000000000000: 00000002 00000000 00000000 0001 01 1234 {name}");
        parse_line(&line, &hashes, "sqlite:/a")
    };
    let found = parse("@riskgate-store/0123456789abcdef/serving/77/ab12/4711").unwrap();
    let expected = ServedStore {
        address: "sqlite:/a".to_owned(),
        id: Some("ab12".to_owned()),
        inode: Some(77),
    };
    assert_eq!(found, LocalGateway { served: expected, is_draining: false });
    let unknown = parse("@riskgate-store/0123456789abcdef/draining///4711").unwrap();
    assert_eq!((unknown.served.id, unknown.served.inode), (None, None));
    assert!(unknown.is_draining);
    for other in [
        "",
        "/run/riskgate-store/0123456789abcdef/serving/77/ab12/4711",
        "@riskgate-store/",
        "@riskgate-store/0123456789abcdef",
        "@riskgate-store/fedcba9876543210/serving/77/ab12/4711",
    ] {
        assert_eq!(parse(other), None, "{other}");
    }
}
