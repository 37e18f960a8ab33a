//! One feed whose lock another process holds, beside a feed that nobody holds.

use std::sync::atomic::Ordering;

use super::list_server::{ListServer, list_response, names_of_day};
use super::{feed_problem, feed_setup, feed_toml, serves_list_of_day};
use crate::harness::wait_until;

#[test]
fn a_held_lock_of_one_feed_stops_no_other_feed_and_is_told() {
    let (held, free) = (ListServer::start(), ListServer::start());
    for server in [&held, &free] {
        server.responses.lock().unwrap().push_back(list_response(&names_of_day(0), "").into());
    }
    let setup = feed_setup();
    let folder = setup.path("feeds");
    std::fs::create_dir(&folder).unwrap();
    let lock = std::fs::File::create(folder.join("held.lock")).unwrap();
    lock.lock().unwrap();
    let gateway = setup
        .append_toml(&feed_toml("held", &held.url(), "interval = \"1s\""))
        .append_toml(&feed_toml("free", &free.url(), "interval = \"1s\""))
        .start();
    let key = gateway.create_active_key("acme", &[]);
    wait_until("the other feed serves", || serves_list_of_day(&gateway, &key, 0));
    free.respond_with(list_response(&names_of_day(1), ""));
    wait_until("the other feed follows", || serves_list_of_day(&gateway, &key, 1));
    wait_until("the held lock is told", || feed_problem(&gateway).contains("held.lock"));
    assert_eq!(held.response_count.load(Ordering::SeqCst), 0);
    drop(lock);
    wait_until("the feed is fetched", || held.response_count.load(Ordering::SeqCst) > 0);
    wait_until("nothing is wrong any more", || feed_problem(&gateway).is_empty());
}
