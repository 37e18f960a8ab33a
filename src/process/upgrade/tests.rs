use super::*;

#[test]
fn a_failed_transfer_keeps_the_directory_claimed_and_a_later_one_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = RuntimeDir::open(folder.path()).unwrap();
    assert!(serving.claim().unwrap() && serving.is_claimed());
    let sockets = || [("http".to_owned(), listener.try_clone().unwrap())];
    assert!(transfer_sockets(&mut serving, &sockets(), &|| false).is_err(), "no successor waits");

    let path = folder.path().to_owned();
    let successor = RuntimeDir::open(&path).unwrap();
    let upgrade_socket = UpgradeSocket::bind(&successor).unwrap();
    assert!(UpgradeSocket::bind(&successor).is_err(), "one successor waits already");
    let leaves =
        std::thread::spawn(move || drop(upgrade_socket.receive_sockets(&successor).unwrap()));
    assert!(transfer_sockets(&mut serving, &sockets(), &|| false).is_err(), "the successor left");
    assert!(serving.is_claimed());
    leaves.join().unwrap();

    let successor = RuntimeDir::open(&path).unwrap();
    let upgrade_socket = UpgradeSocket::bind(&successor).unwrap();
    let stays = std::thread::spawn(move || {
        let (mut sockets, predecessor) =
            upgrade_socket.receive_sockets(&successor).unwrap().unwrap();
        predecessor.confirm_accepting(&successor).unwrap();
        sockets.remove(0)
    });
    transfer_sockets(&mut serving, &sockets(), &|| false).unwrap();
    let (name, received) = stays.join().unwrap();
    assert_eq!((name.as_str(), received.local_addr().unwrap()), ("http", address));
    let mut successor = RuntimeDir::open(&path).unwrap();
    assert!(!successor.is_claimed() && successor.claim().unwrap());
}

#[test]
fn a_successor_may_serve_after_its_predecessor_died_before_or_after_connecting() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = RuntimeDir::open(folder.path()).unwrap();
    assert!(serving.claim().unwrap());
    let path = folder.path().to_owned();
    let waiting = || {
        let successor = RuntimeDir::open(&path).unwrap();
        let upgrade_socket = UpgradeSocket::bind(&successor).unwrap();
        std::thread::spawn(move || match upgrade_socket.receive_sockets(&successor).unwrap() {
            None => "the predecessor did not connect",
            Some((_, predecessor)) => match predecessor.confirm_accepting(&successor) {
                Ok(()) => "the predecessor has ended",
                Err(_) => "the predecessor keeps serving",
            },
        })
    };
    // The predecessor dies before its final message.
    let waits = waiting();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = UnixStream::connect(serving.upgrade_socket_path()).unwrap();
    send_fds(&stream, &[("http".to_owned(), listener)]).unwrap();
    (&stream).read_exact(&mut [0; ACCEPTING_MESSAGE.len()]).unwrap();
    drop((stream, serving));
    assert_eq!(waits.join().unwrap(), "the predecessor has ended");
    // The predecessor dies before it connects.
    let mut serving = RuntimeDir::open(folder.path()).unwrap();
    assert!(serving.claim().unwrap());
    let waits = waiting();
    drop(serving);
    assert_eq!(waits.join().unwrap(), "the predecessor did not connect");
}
