//! What a server can lose of the ledger, and how its numbers come back.

use super::server::{NUMBERS, THOUSAND, alice_and_bob, assert_settles, settle};
use super::*;

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
