//! What a server can do to the ledger: forget, go back, refuse, hang, and demand a password.

use super::*;

const THOUSAND: Option<u64> = Some(1_000);
/// What an operation may take; a test waits longer than this only for a machine that is busy.
const SHORT: Duration = Duration::from_millis(100);

/// The key of acme's numbers.
const NUMBERS: &str = "riskgate:ledger:{acme}:2100-01";

fn url_of(server: &RedisServer, patience: Duration) -> Store {
    unconnected(&server.url(), &RedisOptions::default(), patience)
}

/// States the same numbers until the account does not settle any more.
#[track_caller]
fn settle(store: &mut Store, node: &mut Node, certain: [u64; 2], limit: Option<u64>) -> Standing {
    node.settle = Duration::ZERO;
    let mut last = None;
    until("the account has settled", || {
        let standing = node.say(store, certain[0], certain, limit);
        last = Some(standing);
        !standing.settling
    });
    last.unwrap()
}

/// Alice and Bob hold a part each, and know of each other.
fn alice_and_bob(store: &mut Store) -> (Node, Node) {
    let (mut alice, mut bob) = (Node::new(ALICE), Node::new(BOB));
    alice.say(store, 300, [250, 240], THOUSAND);
    bob.say(store, 500, [480, 470], THOUSAND);
    alice.say(store, 300, [300, 260], THOUSAND);
    (alice, bob)
}

/// Whatever was lost: floors stand, nothing is granted, until all could say their numbers again;
/// then the sum is within the limit as if nothing had been lost.
#[track_caller]
fn assert_settles(store: &mut Store, mut alice: Node, mut bob: Node) {
    let mut carol = Node::new(CAROL);
    let word = alice.say(store, 364, [300, 260], THOUSAND);
    assert_eq!((word.own, word.settling), (300, true), "nothing beyond the floor");
    let word = carol.say(store, 8, [0, 0], THOUSAND);
    assert_eq!((word.own, word.settling), (0, true), "nor to one who knows nothing of it");
    let word = bob.say(store, 564, [500, 470], THOUSAND);
    assert_eq!((word.own, word.settling), (500, true));
    let word = settle(store, &mut carol, [0, 0], THOUSAND);
    assert_eq!(numbers(word), (0, 800, 730));
    assert_eq!(carol.say(store, 900, [0, 0], THOUSAND).own, 200);
    assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 730, 1_000)]);
}

// --- it forgets ---

#[test]
fn numbers_that_were_deleted_are_restated_before_anything_is_granted() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let (alice, bob) = alice_and_bob(&mut store);
    server.tell(&["DEL", NUMBERS]);
    assert_settles(&mut store, alice, bob);
}

#[test]
fn numbers_that_went_back_to_an_older_copy_are_restated_before_anything_is_granted() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let (mut alice, bob) = alice_and_bob(&mut store);
    server.tell(&["COPY", NUMBERS, "older"]);
    alice.say(&mut store, 300, [300, 260], THOUSAND);
    server.tell(&["COPY", "older", NUMBERS, "REPLACE"]);
    assert_settles(&mut store, alice, bob);
}

#[test]
fn a_server_restarted_without_its_data_settles_before_anything_is_granted() {
    let mut server = RedisServer::start();
    let mut store = connected(&server);
    let before = store.pulse(month(), None).unwrap();
    let (mut alice, mut bob) = alice_and_bob(&mut store);
    server.restart();
    let raise = alice.next(364, [300, 260], THOUSAND);
    let error = alice.send(&mut store, &raise).unwrap_err().to_string();
    assert!(error.contains("stating the ledger"), "{error}");
    // Without a pulse nobody may speak: it may be another server by now.
    let error = alice.send(&mut store, &raise).unwrap_err().to_string();
    assert!(error.ends_with("no connection"), "{error}");
    let after = store.pulse(month(), Some(&before)).unwrap();
    assert_ne!(after.incarnation, before.incarnation);
    assert!(after.settle > Duration::from_secs(1), "{after:?}");
    for node in [&mut alice, &mut bob] {
        node.settle = after.settle;
    }
    assert_settles(&mut store, alice, bob);
}

#[test]
fn a_server_restarted_with_its_data_settles_and_still_knows_every_number() {
    let mut server = RedisServer::start_on_disk();
    let mut store = connected(&server);
    let before = store.pulse(month(), None).unwrap();
    let (mut alice, _) = alice_and_bob(&mut store);
    server.restart();
    let after = store.pulse(month(), Some(&before)).unwrap();
    assert!(after.settle > Duration::from_secs(1), "{after:?}");
    // Bob is no more, and his number stands.
    alice.settle = after.settle;
    let word = alice.say(&mut store, 364, [300, 260], THOUSAND);
    assert!(word.settling);
    assert_eq!(numbers(word), (300, 500, 470));
    let word = settle(&mut store, &mut alice, [300, 260], THOUSAND);
    assert_eq!(numbers(word), (300, 500, 470));
    assert_eq!(alice.say(&mut store, 900, [300, 260], THOUSAND).own, 500);
    assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 730, 1_000)]);
}

#[test]
fn an_emptied_server_settles_for_all_whoever_notices_first() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let before = store.pulse(month(), None).unwrap();
    assert_eq!(before.settle, Duration::ZERO, "nothing was lost on the first day");
    assert_eq!(store.pulse(month(), Some(&before)).unwrap(), before);
    server.tell(&["FLUSHALL"]);
    let mut other = connected(&server);
    for store in [&mut other, &mut store] {
        let after = store.pulse(month(), Some(&before)).unwrap();
        assert!(after.settle > Duration::from_secs(1), "{after:?}");
    }
    // A node that has just started hears it too.
    assert!(connected(&server).pulse(month(), None).unwrap().settle > Duration::from_secs(1));
}

#[test]
fn what_a_survivor_knew_of_the_dead_stays_counted() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let (mut alice, _) = alice_and_bob(&mut store);
    server.tell(&["DEL", NUMBERS]);
    assert!(alice.say(&mut store, 300, [300, 260], THOUSAND).settling);
    let word = settle(&mut store, &mut alice, [300, 260], THOUSAND);
    assert_eq!(numbers(word), (300, 500, 470), "Bob is dead, his calls were admitted");
    let mut carol = Node::new(CAROL);
    assert_eq!(carol.say(&mut store, 1_000, [0, 0], THOUSAND).own, 200);
    assert_eq!(store.others_spent("acme", month(), &ALICE).unwrap(), 470);
    assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 730, 1_000)]);
}

#[test]
fn what_is_given_back_while_an_account_settles_is_there_afterwards() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let (mut alice, mut bob) = alice_and_bob(&mut store);
    // Nothing is lost; the server was only restarted.
    for node in [&mut alice, &mut bob] {
        node.settle = Duration::from_millis(500);
    }
    assert!(alice.say(&mut store, 300, [300, 260], THOUSAND).settling);
    assert_eq!(numbers(bob.say(&mut store, 500, [500, 470], THOUSAND)), (500, 300, 260));
    assert_eq!(alice.say(&mut store, 260, [260, 260], THOUSAND).own, 260);
    assert_eq!(numbers(bob.say(&mut store, 500, [500, 470], THOUSAND)), (500, 260, 260));
    let word = settle(&mut store, &mut bob, [500, 470], THOUSAND);
    assert_eq!(numbers(word), (500, 260, 260));
    assert_eq!(bob.say(&mut store, 900, [500, 470], THOUSAND).own, 740);
}

#[test]
fn a_second_loss_while_an_account_settles_forgets_no_dead_node_either() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let (mut alice, _) = alice_and_bob(&mut store);
    for _ in 0..3 {
        server.tell(&["DEL", NUMBERS]);
        for _ in 0..2 {
            assert!(alice.say(&mut store, 300, [300, 260], THOUSAND).settling);
        }
    }
    let word = settle(&mut store, &mut alice, [300, 260], THOUSAND);
    assert_eq!(numbers(word), (300, 500, 470));
}

#[test]
fn scripts_that_were_forgotten_are_loaded_again_unseen() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let mut alice = Node::new(ALICE);
    let pulse = store.pulse(month(), None).unwrap();
    for spent in 1..4 {
        server.tell(&["SCRIPT", "FLUSH"]);
        let word = alice.say(&mut store, 50, [spent, spent], THOUSAND);
        assert_eq!((numbers(word), word.settling), ((50, 0, 0), false));
        server.tell(&["SCRIPT", "FLUSH"]);
        assert_eq!(store.pulse(month(), Some(&pulse)).unwrap(), pulse);
    }
    // Some of a batch before, some after: none counts twice.
    server.tell(&["SCRIPT", "FLUSH"]);
    let batch = [alice.next(50, [4, 4], THOUSAND), alice.next(51, [5, 5], THOUSAND)];
    let words = alice.send_all(&mut store, &batch).unwrap();
    assert_eq!(words.iter().map(|word| word.unwrap().own).collect::<Vec<_>>(), [50, 51]);
    assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 5, 51)]);
}

#[test]
fn numbers_outlive_a_clock_that_is_wrong_by_less_than_a_year() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let (mut alice, _) = alice_and_bob(&mut store);
    let kept_for = || server.tell(&["TTL", NUMBERS]).parse::<i64>().unwrap();
    assert!((399 * 86_400..=400 * 86_400).contains(&kept_for()), "{}", kept_for());
    // The last word on a month that is over, as far as its node knows.
    let next = Month::from_number(month().number() + 1).unwrap();
    let statement = alice.next(9, [9, 9], THOUSAND);
    let settle = Duration::ZERO;
    let round = Round { node: &ALICE, month: next, settle, needs_replicas: true };
    store.state(round, &[statement]).unwrap();
    assert!((61 * 86_400..=62 * 86_400).contains(&kept_for()), "{}", kept_for());
    for key in server.keys("*") {
        assert!(key.starts_with("riskgate:"), "{key}");
    }
}

// --- it refuses ---

#[test]
fn an_account_whose_key_is_of_a_wrong_type_fails_alone() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let mut alice = Node::new(ALICE);
    server.tell(&["SET", NUMBERS, "somebody's"]);
    let own = |name: &str, statement| Statement { account: name.to_owned(), ..statement };
    let batch = [
        own("before", alice.next(5, [0, 0], THOUSAND)),
        alice.next(5, [0, 0], THOUSAND),
        own("after", alice.next(7, [0, 0], THOUSAND)),
    ];
    let words = alice.send_all(&mut store, &batch).unwrap();
    let owns: Vec<Option<u64>> = words.iter().map(|word| word.map(|word| word.own)).collect();
    assert_eq!(owns, [Some(5), None, Some(7)]);
    assert_eq!(server.tell(&["GET", NUMBERS]), "somebody's");
    let others = store.usage(month(), Some("after")).unwrap();
    assert_eq!(others, [row("after", 0, 7)]);
}

#[test]
fn a_server_that_only_reads_or_is_full_says_so_and_is_of_use_again_later() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let mut alice = Node::new(ALICE);
    alice.say(&mut store, 50, [10, 10], THOUSAND);
    let nowhere = ["REPLICAOF", "127.0.0.1", "1"];
    let plenty = ["CONFIG", "SET", "maxmemory", "0"];
    for (refuse, allow, words) in [
        (&nowhere[..], &["REPLICAOF", "NO", "ONE"][..], "READONLY"),
        (&["CONFIG", "SET", "maxmemory", "1"], &plenty, "OOM"),
    ] {
        let before = store.pulse(month(), None).unwrap();
        server.tell(refuse);
        let raise = alice.next(60, [20, 20], THOUSAND);
        for _ in 0..3 {
            // It may be pulsed or not; it never acknowledges.
            let _ = store.pulse(month(), Some(&before));
            let error = alice.send(&mut store, &raise).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        server.tell(allow);
        until("it takes numbers again", || {
            store.pulse(month(), Some(&before)).is_ok() && alice.send(&mut store, &raise).is_ok()
        });
        let word = alice.send(&mut store, &raise).unwrap();
        alice.learn(&raise, word);
        settle(&mut store, &mut alice, [20, 20], THOUSAND);
    }
    assert_eq!(store.usage(month(), None).unwrap(), [row("acme", 20, 20)]);
}

#[test]
fn a_server_that_throws_keys_away_is_refused() {
    let server = RedisServer::start();
    let mut store = url_of(&server, Duration::from_secs(5));
    store.check().unwrap();
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        server.tell(&["CONFIG", "SET", "maxmemory-policy", policy]);
        for error in [store.check().unwrap_err(), store.recheck().unwrap_err()] {
            assert!(matches!(error, StoreError::Unusable { .. }));
            let error = error.to_string();
            let words = "expected maxmemory-policy noeviction";
            assert!(error.contains(words) && error.ends_with(policy), "{error}");
        }
    }
    server.tell(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    store.check().unwrap();
}

#[test]
fn a_server_that_is_not_there_is_no_wrong_one() {
    let mut server = RedisServer::start();
    server.kill();
    let mut store = url_of(&server, SHORT);
    store.check().unwrap();
    let error = store.pulse(month(), None).unwrap_err();
    assert!(matches!(error, StoreError::Unanswered { .. }), "{error}");
    let words = format!("redis://127.0.0.1:{}: connecting: ", server.port());
    assert!(error.to_string().starts_with(&words), "{error}");
}

#[test]
fn a_wrong_password_is_told_without_showing_it() {
    let server = RedisServer::start();
    server.tell(&["ACL", "SETUSER", "gate", "on", ">r1ght", "~*", "+@all"]);
    let open = |url: &str| unconnected(url, &RedisOptions::default(), Duration::from_secs(5));
    open(&server.url_as("gate", "r1ght")).pulse(month(), None).unwrap();
    for url in [server.url_as("gate", "s3cr3t"), server.url_as("nobody", "s3cr3t")] {
        let error = open(&url).pulse(month(), None).unwrap_err().to_string();
        assert!(error.to_lowercase().contains("auth") || error.contains("WRONGPASS"), "{error}");
        assert!(!error.contains("s3cr3t") && !error.contains("nobody"), "{error}");
    }
    server.tell(&["CONFIG", "SET", "requirepass", "set-meanwhile"]);
    let error = open(&server.url()).pulse(month(), None).unwrap_err().to_string();
    assert!(error.contains("NOAUTH"), "{error}");
}

// --- it is far away ---

#[test]
fn tls_works_with_the_authority_that_is_named_and_with_no_other() {
    let (server, other) = (RedisServer::start_with_tls(), RedisServer::start_with_tls());
    let open = |tls_ca: Option<PathBuf>| {
        let options = RedisOptions { tls_ca, ..RedisOptions::default() };
        unconnected(&server.tls_url(), &options, Duration::from_secs(5))
    };
    let mut store = open(Some(server.authority()));
    store.check().unwrap();
    store.pulse(month(), None).unwrap();
    assert_eq!(Node::new(ALICE).say(&mut store, 5, [0, 0], THOUSAND).own, 5);
    for wrong in [Some(other.authority()), None] {
        let error = open(wrong).pulse(month(), None).unwrap_err().to_string();
        assert!(error.starts_with("rediss://127.0.0.1:"), "{error}");
        assert!(error.contains("connecting: ") && error.contains("ertificate"), "{error}");
    }
}

#[test]
fn an_authority_that_is_no_certificate_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let open = || {
        let options = RedisOptions { tls_ca: Some(path.clone()), ..RedisOptions::default() };
        let url = StoreUrl::parse("rediss://127.0.0.1:1").unwrap();
        Store::open(&url, &options, SHORT).err().expect("a refusal").to_string()
    };
    for contents in [None, Some("no certificate"), Some("-----BEGIN CERTIFICATE-----\n?\n")] {
        if let Some(contents) = contents {
            std::fs::write(&path, contents).unwrap();
        }
        let error = open();
        assert!(error.contains("expected store.tls_ca to be a file of certificates"), "{error}");
    }
}

#[test]
fn an_acknowledgement_of_a_replica_is_waited_for_where_it_is_wanted() {
    let server = RedisServer::start();
    let options = RedisOptions { wait_replicas: 1, ..RedisOptions::default() };
    let mut store = unconnected(&server.url(), &options, Duration::from_millis(800));
    store.pulse(month(), None).unwrap();
    let mut alice = Node::new(ALICE);
    let raise = alice.next(5, [0, 0], THOUSAND);
    let error = alice.send(&mut store, &raise).unwrap_err().to_string();
    assert!(error.ends_with("only 0 of 1 replicas have it"), "{error}");
    let replica = RedisServer::replica_of(&server);
    let raise = alice.next(9, [1, 1], THOUSAND);
    until("the replica has it", || {
        store.pulse(month(), None).is_ok() && alice.send(&mut store, &raise).is_ok()
    });
    assert_eq!(replica.tell(&["HGET", NUMBERS, "leased"]), "9");
    assert_eq!(store.missing_replicas(), 0);
    replica.stop();
    let raise = alice.next(10, [2, 2], THOUSAND);
    let error = alice.send(&mut store, &raise).unwrap_err().to_string();
    assert!(error.ends_with("only 0 of 1 replicas have it"), "{error}");
    assert_eq!(store.missing_replicas(), 1);
    // Who may go on without it has the server's own word, and the next ones without a wait.
    let settle = Duration::ZERO;
    let round = Round { node: &ALICE, month: month(), settle, needs_replicas: false };
    for target in 11..31 {
        let raise = alice.next(target, [2, 2], THOUSAND);
        let begun = Instant::now();
        let standing = store.state(round, &[raise]).unwrap()[0].unwrap();
        assert_eq!((standing.own, store.missing_replicas()), (target, 1));
        assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
    }
    replica.cont();
    until("it is seen again, without a statement", || {
        store.pulse(month(), None).unwrap();
        store.missing_replicas() == 0
    });
}

#[test]
fn a_server_s_clock_that_is_set_back_while_accounts_settle_does_not_prolong_that() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    let (mut alice, _) = alice_and_bob(&mut store);
    let account = NUMBERS.replace("ledger", "settling");
    let all = "riskgate:{ring}:settling";
    for key in [account.as_str(), all] {
        server.tell(&["SET", key, "1", "PX", "86400000"]);
    }
    let settles = store.pulse(month(), None).unwrap().settle;
    assert!(settles <= Duration::from_secs(3), "{settles:?}");
    assert!(alice.say(&mut store, 50, [9, 9], THOUSAND).settling);
    until("nothing settles any more", || {
        let settles = store.pulse(month(), None).unwrap().settle;
        settles.is_zero() && !alice.say(&mut store, 50, [9, 9], THOUSAND).settling
    });
}

#[test]
fn a_kept_connection_that_died_costs_no_read() {
    let server = RedisServer::start();
    let mut store = connected(&server);
    alice_and_bob(&mut store);
    for _ in 0..3 {
        store.others_spent("acme", month(), &BOB).unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.usage(month(), None).unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.ring_mark().unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.latest_month().unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.top(1).unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.pulse(month(), None).unwrap();
        server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
}

#[test]
fn a_silent_server_costs_no_more_than_the_patience() {
    let server = RedisServer::start();
    let mut store = url_of(&server, SHORT);
    let mut alice = Node::new(ALICE);
    let batch: Vec<Statement> = (0..512)
        .map(|at| Statement { account: format!("account-{at}"), ..alice.next(5, [0, 0], THOUSAND) })
        .collect();
    let timed = |operation: &mut dyn FnMut() -> StoreError| {
        let begun = Instant::now();
        let error = operation();
        println!("{:?}: {error}", begun.elapsed());
        assert!(matches!(error, StoreError::Unanswered { .. }), "{error}");
        begun.elapsed()
    };
    let pulse = store.pulse(month(), None).unwrap();
    server.stop();
    let took = timed(&mut || alice.send_all(&mut store, &batch).unwrap_err());
    assert!(took >= SHORT && took < 5 * SHORT, "{took:?}");
    // To connect takes longer, and has a limit of its own.
    for _ in 0..2 {
        let took = timed(&mut || store.pulse(month(), Some(&pulse)).unwrap_err());
        assert!(took < Duration::from_millis(1_500), "{took:?}");
    }
    server.cont();
    until("it answers again", || store.pulse(month(), Some(&pulse)).is_ok());
    server.stop();
    let took = timed(&mut || store.pulse(month(), Some(&pulse)).unwrap_err());
    assert!(took >= SHORT && took < 5 * SHORT, "{took:?}");
    server.cont();
    until("it answers again", || store.pulse(month(), Some(&pulse)).is_ok());
    assert_eq!(alice.send_all(&mut store, &batch).unwrap().len(), 512);
}
