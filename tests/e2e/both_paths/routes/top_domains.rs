//! The most frequently flagged domains: first the seed, then the domains that this deployment has
//! seen.

use std::collections::HashSet;

use crate::harness::{Gateway, ListFolder, Setup, shared_gateway, wait_until};

const TOP_DOMAINS_TARGET: &str = "/v1/public/top-domains";

fn get_top_names(gateway: &Gateway, key: &str) -> Vec<String> {
    let body = gateway.get(TOP_DOMAINS_TARGET, key).expect(200).json();
    let domains = body["domains"].as_array().unwrap();
    assert_eq!(body["count"], domains.len());
    domains.iter().map(|entry| entry["domain"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_new_deployment_shows_a_hundred_flagged_domains_in_seed_order() {
    let (gateway, key) = shared_gateway();
    let body = gateway.get(TOP_DOMAINS_TARGET, key).expect(200).json();
    let domains = body["domains"].as_array().unwrap();
    assert_eq!((domains.len(), &body["count"]), (100, &100.into()));
    for entry in domains {
        let mut members: Vec<_> = entry.as_object().unwrap().keys().collect();
        members.sort_unstable();
        assert_eq!(members, ["domain", "reason", "risk_score"]);
        assert_ne!(entry["reason"], "safe");
        let name = entry["domain"].as_str().unwrap();
        let verdict = gateway.get_domain(name, key).json();
        assert_eq!(verdict["reason"], entry["reason"], "{name}");
        assert_eq!(verdict["risk_score"], entry["risk_score"], "{name}");
    }
    let unique: HashSet<_> = domains.iter().map(|entry| entry["domain"].to_string()).collect();
    assert_eq!(unique.len(), 100);
    // mailinator.com leads the seed, and one look-up does not change that.
    assert_eq!(domains[0]["domain"], "mailinator.com");
}

/// Writes a list of 43 flagged names; only the first three are in the seed.
fn write_43_flagged_names(setup: &Setup) {
    let names: String = (0..40).map(|at| format!("flagged{at:02}.test\n")).collect();
    setup.lists().write("disposable.txt", &format!("first.test\nsecond.test\nthird.test\n{names}"));
}

#[test]
fn top_limit_sets_the_length_of_the_list() {
    let gateway = Setup::new().set("top.limit", "2").start();
    let key = gateway.create_active_key("acme", &[]);
    assert_eq!(get_top_names(&gateway, &key), ["first.test", "second.test"]);
}

#[test]
fn a_lookup_counts_for_its_row_once_per_account_and_day() {
    // The seed has only three rows, so that one count is enough to enter the list below them.
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    write_43_flagged_names(&setup);
    let gateway = setup.start();
    let loud = gateway.create_active_key("loud", &[]);
    let second_key_of_loud = gateway.create_active_key("loud", &[]);
    for at in 0..50 {
        gateway.get_domain(&format!("n{at}.flagged07.test"), &loud).expect(200);
        gateway.get_domain("flagged07.test", &second_key_of_loud).expect(200);
    }
    for account in ["a", "b"] {
        let key = gateway.create_active_key(account, &[]);
        gateway.get_domain("deep.below.flagged21.test", &key).expect(200);
    }
    gateway.get_domain("nobody-knows-this.com", &loud).expect(200);
    // Two accounts requested flagged21; one account requested flagged07, more often.
    let seed_first =
        ["first.test", "second.test", "third.test", "flagged21.test", "flagged07.test"];
    wait_until("both rows entered the list in their order", || {
        get_top_names(&gateway, &loud) == seed_first
    });
    let gateway = gateway.restart();
    assert_eq!(get_top_names(&gateway, &loud), seed_first, "counts survive a restart");
    // The same account does not count again on the same day.
    gateway.get_domain("flagged07.test", &loud).expect(200);
    let c = gateway.create_active_key("c", &[]);
    gateway.get_domain("flagged33.test", &c).expect(200);
    wait_until("another row entered the list", || get_top_names(&gateway, &loud).len() == 6);
    // If it had counted, flagged07 would be level with flagged21, and newer.
    assert_eq!(get_top_names(&gateway, &loud)[3], "flagged21.test");
}

#[test]
fn a_row_that_many_accounts_request_outranks_a_row_of_the_seed() {
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    write_43_flagged_names(&setup);
    let gateway = setup.start();
    let first = gateway.create_active_key("account-0", &[]);
    gateway.get_domain("flagged05.test", &first).expect(200);
    // The third name of the seed starts with a count of 40.
    let keys: Vec<String> =
        (1..44).map(|at| gateway.create_key(&format!("account-{at}"), &[])).collect();
    wait_until("the last key is accepted", || gateway.get("/v1/usage", &keys[42]).status == 200);
    for key in &keys {
        gateway.get_domain("flagged05.test", key).expect(200);
    }
    wait_until("the row passed the third of the seed", || {
        get_top_names(&gateway, &first).get(2).is_some_and(|name| name == "flagged05.test")
    });
}

#[test]
fn a_row_enters_the_list_only_after_top_min_accounts_accounts() {
    let setup = Setup::new().set("top.min_accounts", "2").set("plans.free", "\"unlimited\"");
    write_43_flagged_names(&setup);
    let gateway = setup.start();
    let (one, two) = (gateway.create_active_key("one", &[]), gateway.create_active_key("two", &[]));
    gateway.get_domain("flagged01.test", &one).expect(200);
    gateway.get_domain("flagged02.test", &one).expect(200);
    gateway.get_domain("flagged02.test", &two).expect(200);
    wait_until("a row with two accounts entered", || get_top_names(&gateway, &one).len() == 4);
    assert_eq!(get_top_names(&gateway, &one)[3], "flagged02.test");
}

#[test]
fn a_row_that_is_no_longer_flagged_leaves_the_list() {
    let gateway = Setup::new().set("plans.free", "\"unlimited\"").start();
    let key = gateway.create_active_key("acme", &[]);
    assert_eq!(get_top_names(&gateway, &key)[0], "first.test");
    let lists: ListFolder = gateway.lists();
    lists.write("disposable.txt", "second.test\nthird.test\n=exact.test\nmail.com\n");
    lists.write("labels.csv", "domain,label\ngmail.com,Gmail\n");
    lists.write("seed.txt", "second.test\nthird.test\n");
    wait_until("the row left with its list", || {
        get_top_names(&gateway, &key) == ["second.test", "third.test"]
    });
}
