//! DNS facts about names that no list contains, learned from a real server in the background.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    DelayingDnsProxy, DnsServer, Gateway, MockUpstream, Response, Setup, get, request, wait_for,
    wait_until,
};
use crate::redis_server::RedisServer;

/// riskgate ignores the answers of a resolver that does not know the large providers.
const PROVIDER_RECORDS: &str = "gmail MX 5 gmail-smtp-in.l.google.com.\n";
const TEST_RECORDS: &str = "\
null MX 0 .
burner MX 10 mx2.mailinator.com.
pro MX 20 alt1.aspmx.l.google.com.
pro MX 10 aspmx.l.google.com.
label MX 10 mx.forwardemail.net.
webmail-null MX 0 .
a-only A 192.0.2.1
self MX 10 self.com.
self A 192.0.2.3
own MX 10 mx.own.com.
mx.own A 192.0.2.2
chain CNAME link1.com.
link1 CNAME link2.com.
link2 MX 10 mail.mailinator.com.
dangling CNAME nowhere-at-all.com.
local MX 10 localhost.
loop MX 10 here.com.
here A 127.0.0.1
dead MX 10 gone.dead.com.
address MX 10 192.0.2.9.
nothing TXT \"no mail, no address\"
lame NS ns.elsewhere.org.
yopmail MX 0 .
gmqil MX 10 mx2.mailinator.com.
strange MX 10 a\\044b.strange.com.
underscore MX 10 _dc-mx.mailinator.com.
";

pub fn zone_records() -> String {
    let mut records = format!("{PROVIDER_RECORDS}{TEST_RECORDS}");
    // The answer about `large.com` exceeds a datagram: the server truncates it, and riskgate asks
    // again over TCP.
    for number in 0..60 {
        records +=
            &format!("large MX {} a-host-with-a-long-name-{number}.large.com.\n", 100 + number);
    }
    records + "large MX 1 mx.mailinator.com.\n"
}

pub fn setup_with_dns_learning(resolver: SocketAddr) -> Setup {
    let setup = Setup::with_bundled_table().set("plans.free", "\"unlimited\"");
    setup.set("dns.learn", "true").set("dns.resolvers", &format!("[\"{resolver}\"]"))
}

fn start_dns_learning_gateway(resolver: SocketAddr) -> (Gateway, String) {
    let gateway = setup_with_dns_learning(resolver).set("dns.rate", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

fn verdict_source(answer: &Response) -> &str {
    answer.header("X-Verdict-Source").unwrap()
}

/// Reason, score and source of a verdict.
fn get_verdict(gateway: &Gateway, key: &str, name: &str) -> (String, u64, String) {
    let answer = gateway.get_domain(name, key).expect(200);
    let body = answer.json();
    let reason = body["reason"].as_str().unwrap().to_owned();
    (reason, body["risk_score"].as_u64().unwrap(), verdict_source(&answer).to_owned())
}

fn get_dns_status(gateway: &Gateway) -> Value {
    gateway.get_admin_page("/status").json()["dns"].clone()
}

/// Waits until riskgate has counted this many resolutions, with whatever outcome.
fn wait_for_resolution_count(gateway: &Gateway, names: u64) {
    wait_until("all names were asked", || {
        gateway.sum_of_samples("riskgate_dns_resolutions_total", &[]) >= names as f64
    });
}

#[test]
fn later_verdicts_use_the_dns_facts_that_the_first_request_asked_for() {
    let server = DnsServer::start(&zone_records());
    let (gateway, key) = start_dns_learning_gateway(server.address);
    let cases = [
        ("null.com", "undeliverable", 95),
        ("there-is-no-such-name.com", "undeliverable", 95),
        ("nothing.com", "undeliverable", 95),
        ("dangling.com", "undeliverable", 95),
        ("webmail-null.com", "undeliverable", 95),
        ("burner.com", "disposable", 85),
        ("chain.com", "disposable", 85),
        ("large.com", "disposable", 85),
        ("pro.com", "safe", 0),
        ("local.com", "undeliverable", 85),
        ("loop.com", "undeliverable", 85),
        ("dead.com", "undeliverable", 85),
        ("address.com", "undeliverable", 85),
        ("underscore.com", "disposable", 85),
        ("gmqil.com", "disposable", 85),
    ];
    let version =
        gateway.get_domain("null.com", &key).header("X-Table-Version").unwrap().to_owned();
    // riskgate resolves all names meanwhile.
    for (name, ..) in cases {
        get_verdict(&gateway, &key, name);
    }
    for (name, reason, score) in cases {
        let before = get_verdict(&gateway, &key, name);
        let now = wait_for(&format!("{name} is known"), || {
            Some(get_verdict(&gateway, &key, name)).filter(|found| found.2 == "dns")
        });
        assert_eq!((now.0.as_str(), now.1), (reason, score), "{name}");
        assert!(before.2 != "dns" || before == now, "{name}: {before:?}");
    }
    let pro = gateway.get_domain("pro.com", &key);
    assert_eq!(pro.json()["is_corporate_email"], true);
    assert_eq!(pro.json()["mx_provider_label"], "Google Workspace");
    assert_eq!(pro.header("X-Table-Version"), Some(version.as_str()), "the table is the same");
    wait_until("the status page reports it", || {
        let status = get_dns_status(&gateway);
        status["learning"] == true
            && status["problem"].is_null()
            && status["answered_at"].is_string()
            && status["queue"] == 0
            && status["known"].as_u64() >= Some(15)
    });
}

#[test]
fn unclear_dns_answers_change_no_verdict() {
    let server = DnsServer::start(&zone_records());
    let (gateway, key) = start_dns_learning_gateway(server.address);
    let names =
        ["a-only.com", "own.com", "lame.com", "sub.lame.com", "x.broken.net", "strange.com"];
    let before: Vec<_> = names.iter().map(|name| get_verdict(&gateway, &key, name)).collect();
    wait_for_resolution_count(&gateway, 6);
    let after: Vec<_> = names.iter().map(|name| get_verdict(&gateway, &key, name)).collect();
    assert_eq!(before, after);
    assert!(
        after.iter().all(|found| *found == ("safe".to_owned(), 10, "none".to_owned())),
        "{after:?}"
    );
    let outcome = |word: &str| {
        gateway.sum_of_samples("riskgate_dns_resolutions_total", &[&format!("outcome=\"{word}\"")])
    };
    assert_eq!((outcome("host"), outcome("unknown")), (2.0, 4.0));
    assert_eq!(get_dns_status(&gateway)["problem"], Value::Null, "no fault of riskgate");
}

#[test]
fn learned_verdicts_never_override_lists_overrides_or_stronger_rules() {
    let server = DnsServer::start(&zone_records());
    let (gateway, key) = start_dns_learning_gateway(server.address);
    wait_for("the operator's override outranks the learned verdict", || {
        get_verdict(&gateway, &key, "null.com");
        get_verdict(&gateway, &key, "burner.com");
        (get_verdict(&gateway, &key, "null.com").2 == "dns"
            && get_verdict(&gateway, &key, "burner.com").2 == "dns")
            .then_some(())
    });
    // Once the second one applies, the first one does: no name that a list judges is asked for.
    gateway.cli(&["table", "deny", "pro.com"]).expect(0);
    gateway.cli(&["table", "allow", "null.com"]).expect(0);
    wait_until("both overrides apply", || {
        get_verdict(&gateway, &key, "null.com") == ("safe".to_owned(), 0, "list".to_owned())
            && get_verdict(&gateway, &key, "pro.com").2 == "list"
    });
    assert_eq!(
        get_verdict(&gateway, &key, "burner.com").2,
        "dns",
        "the verdict is known with another table"
    );
    let query_count = gateway.sum_of_samples("riskgate_dns_resolutions_total", &[]);
    for (name, reason, from) in [
        ("yopmail.com", "disposable", "list"),
        ("x.yopmail.com", "disposable", "list"),
        ("gmail.com", "safe", "list"),
        ("someone.github.io", "safe", "none"),
        ("any.invalid", "undeliverable", "list"),
        ("name.nosuchtld", "undeliverable", "rule"),
    ] {
        let (said_reason, _, said_from) = get_verdict(&gateway, &key, name);
        assert_eq!((said_reason.as_str(), said_from.as_str()), (reason, from), "{name}");
    }
    get_verdict(&gateway, &key, "own.com");
    wait_for_resolution_count(&gateway, query_count as u64 + 1);
    let known = get_dns_status(&gateway)["known"].as_u64().unwrap();
    assert!(known <= query_count as u64 + 2, "names of lists are not asked for: {known}");
}

/// The median latency of 300 new names.
fn median_latency_of_new_names(gateway: &Gateway, key: &str) -> Duration {
    let mut connection = gateway.connect();
    let mut times: Vec<Duration> = (0..300)
        .map(|number| {
            let target = format!("/v1/public/domain/name-{number}.com");
            let begun = Instant::now();
            let answer = connection.send_request(&get(&target).key(key)).expect(200);
            assert_eq!(verdict_source(&answer), "none");
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_silent_dns_server_delays_no_request_and_is_reported() {
    let silent = DelayingDnsProxy::start(None, Duration::ZERO);
    let (gateway, key) = start_dns_learning_gateway(silent.address);
    let median = median_latency_of_new_names(&gateway, &key);
    // Waiting for the DNS would take two seconds.
    assert!(median < Duration::from_secs(1), "{median:?}");
    wait_until("riskgate reports it", || {
        let problem = get_dns_status(&gateway)["problem"].as_str().unwrap_or_default().to_owned();
        problem.contains("expected the mail hosts of") && problem.contains("no answer within 2 s")
    });
    assert!(gateway.readyz().expect(200).text().contains("dns: "));
    assert_eq!(get_dns_status(&gateway)["queue"], 300, "all names wait for the recovery");
}

#[test]
fn riskgate_learns_from_a_slow_dns_server_without_delaying_requests() {
    let server = DnsServer::start(&zone_records());
    let slow = DelayingDnsProxy::start(Some(server.address), Duration::from_millis(900));
    let (gateway, key) = start_dns_learning_gateway(slow.address);
    let begun = Instant::now();
    for number in 0..20 {
        get_verdict(&gateway, &key, &format!("there-is-no-{number}.com"));
    }
    assert!(begun.elapsed() < Duration::from_secs(9), "no request waits for the DNS server");
    wait_until("both are known", || {
        get_verdict(&gateway, &key, "null.com").1 == 95
            && get_verdict(&gateway, &key, "burner.com").1 == 85
    });
}

#[test]
fn riskgate_sends_no_more_dns_queries_than_dns_rate_allows() {
    let server = DnsServer::start(&zone_records());
    let proxy = DelayingDnsProxy::start(Some(server.address), Duration::ZERO);
    let gateway = setup_with_dns_learning(proxy.address).set("dns.rate", "10").start();
    let key = gateway.create_active_key("acme", &[]);
    let query_count = || proxy.query_count.load(Ordering::Relaxed);
    wait_until("riskgate sends its first query", || query_count() > 0);
    let (begun, before) = (Instant::now(), query_count());
    for number in 0..100 {
        get_verdict(&gateway, &key, &format!("there-is-no-{number}.com"));
    }
    wait_until("riskgate has sent thirty queries", || query_count() >= before + 30);
    assert!(begun.elapsed() > Duration::from_millis(2_500), "{:?}", begun.elapsed());
}

#[test]
fn riskgate_ignores_a_resolver_that_does_not_know_the_large_providers() {
    let mut server = DnsServer::start("x A 192.0.2.1\n");
    let (gateway, key) = start_dns_learning_gateway(server.address);
    wait_until("riskgate reports it", || {
        get_dns_status(&gateway)["problem"]
            .as_str()
            .is_some_and(|it| it.contains("found no such name"))
    });
    assert_eq!(get_verdict(&gateway, &key, "there-is-no-such-name.com").2, "none");
    assert_eq!(gateway.sum_of_samples("riskgate_dns_resolutions_total", &[]), 0.0);
    server.replace_records(&zone_records());
    wait_until("riskgate uses the resolver", || {
        get_verdict(&gateway, &key, "there-is-no-such-name.com").1 == 95
    });
    wait_until("/status reports no problem", || get_dns_status(&gateway)["problem"].is_null());
}

#[test]
fn a_resolver_that_begins_to_deny_every_name_teaches_nothing() {
    let mut server = DnsServer::start(&zone_records());
    let proxy = DelayingDnsProxy::start(Some(server.address), Duration::ZERO);
    let (gateway, key) = start_dns_learning_gateway(proxy.address);
    wait_until("riskgate trusts the resolver", || get_verdict(&gateway, &key, "null.com").1 == 95);
    server.replace_records("x A 192.0.2.1\n");
    let query_count = proxy.query_count.load(Ordering::Relaxed);
    get_verdict(&gateway, &key, "honest-company-one.com");
    wait_until("riskgate asks for the name", || {
        proxy.query_count.load(Ordering::Relaxed) > query_count
    });
    let source = || get_verdict(&gateway, &key, "honest-company-one.com").2;
    wait_until("riskgate reports the resolver, or believes it", || {
        let problem = get_dns_status(&gateway)["problem"].clone();
        problem.as_str().is_some_and(|it| it.contains("found no such name")) || source() == "dns"
    });
    assert_eq!(source(), "none");
    let resolved =
        |outcome: &str| gateway.sum_of_samples("riskgate_dns_resolutions_total", &[outcome]);
    assert_eq!(resolved("outcome=\"no_mail\""), 1.0, "null.com");
    // The name waits for no delay of a failed query.
    let record = "honest-company-one MX 10 mx.forwardemail.net.\n";
    server.replace_records(&format!("{}{record}", zone_records()));
    wait_until("riskgate asks for the name again", || {
        get_verdict(&gateway, &key, "honest-company-one.com");
        resolved("outcome=\"host\"") > 0.0
    });
    assert_eq!(get_verdict(&gateway, &key, "honest-company-one.com").0, "safe");
}

#[test]
fn learned_verdicts_stay_while_the_dns_server_is_down() {
    let mut server = DnsServer::start(&zone_records());
    let (gateway, key) = start_dns_learning_gateway(server.address);
    wait_until("it is known", || get_verdict(&gateway, &key, "null.com").1 == 95);
    server.stop();
    get_verdict(&gateway, &key, "burner.com");
    assert_eq!(get_verdict(&gateway, &key, "null.com").1, 95);
    server.replace_records(&zone_records());
    assert_eq!(get_verdict(&gateway, &key, "null.com").1, 95);
}

#[test]
fn learned_verdicts_survive_a_restart_and_end_if_dns_learn_is_set_to_false() {
    let server = DnsServer::start(&zone_records());
    let (gateway, key) = start_dns_learning_gateway(server.address);
    wait_until("it is known", || get_verdict(&gateway, &key, "null.com").1 == 95);
    // riskgate writes what it learned within about one second.
    std::mem::drop(server);
    let path = gateway.path("riskgate.db");
    wait_until("it is in the store", || {
        let wal = path.with_extension("db-wal");
        let bytes =
            [std::fs::read(&path).unwrap(), std::fs::read(wal).unwrap_or_default()].concat();
        bytes.windows(8).any(|part| part == b"null.com")
    });
    let shown = gateway.cli(&["table", "lookup", "null.com", "yopmail.com"]).expect(0).stdout;
    assert!(
        shown.contains("\"risk_score\":95") && shown.contains("  learned  ., until 20"),
        "{shown}"
    );
    assert_eq!(shown.matches("learned").count(), 1, "{shown}");
    let shown = gateway.cli(&["table", "lookup", "--json", "null.com"]).expect(0).json();
    assert_eq!((&shown[0]["learned"], &shown[0]["source"]), (&".".into(), &"dns".into()));
    let gateway = gateway.restart();
    wait_until("it is known again", || get_verdict(&gateway, &key, "null.com").1 == 95);
    gateway.edit_config(|text| text.replace("learn = true", "learn = false"));
    wait_until("the table alone answers", || {
        get_verdict(&gateway, &key, "null.com") == ("safe".to_owned(), 10, "none".to_owned())
    });
    wait_until("/status reports that learning is off", || {
        get_dns_status(&gateway)["learning"] == false && get_dns_status(&gateway)["known"] == 0
    });
}

#[test]
fn nodes_with_a_common_store_share_learned_verdicts() {
    let (server, redis) = (DnsServer::start(&zone_records()), RedisServer::start());
    let first = setup_with_dns_learning(server.address).with_redis(&redis).start();
    let key = first.create_active_key("acme", &[]);
    // The second gateway has no resolver.
    let silent = DelayingDnsProxy::start(None, Duration::ZERO);
    let second = setup_with_dns_learning(silent.address).with_redis(&redis).start();
    wait_until("the key is accepted", || second.get("/v1/usage", &key).status == 200);
    wait_until("the first one knows", || get_verdict(&first, &key, "burner.com").1 == 85);
    wait_until("the second one knows too", || get_verdict(&second, &key, "burner.com").1 == 85);
}

#[test]
fn names_beyond_the_dns_queue_are_dropped_and_counted() {
    let silent = DelayingDnsProxy::start(None, Duration::ZERO);
    let (gateway, key) = start_dns_learning_gateway(silent.address);
    let mut connection = gateway.connect();
    let mut names = 0..;
    let mut look_up = |count: usize| {
        for number in names.by_ref().take(count) {
            let target = format!("/v1/public/domain/a-name-that-nobody-has-{number}.com");
            connection.send_request(&get(&target).key(&key)).expect(200);
        }
    };
    look_up(10_000);
    wait_until("the queue is full, and further names are dropped", || {
        // riskgate takes some names from the queue, to ask for them.
        look_up(100);
        let length = gateway.sum_of_samples("riskgate_dns_queue_length", &[]);
        assert!(length <= 10_000.0, "{length}");
        let dropped = gateway.sum_of_samples("riskgate_dns_names_dropped_total", &[]);
        length == 10_000.0 && dropped >= 1_000.0
    });
}

/// A pool of names, each with an MX host of its own name, all on one address. A second address has
/// such a name too, and an unlisted name whose MX host belongs to a protected company.
const POOL_RECORDS: &str = "\
pool-1 MX 10 mail.pool-1.com.
mail.pool-1 A 185.7.8.9
pool-2 MX 10 mail.pool-2.com.
mail.pool-2 A 185.7.8.9
pool-3 MX 10 mail.pool-3.com.
mail.pool-3 A 185.7.8.9
tenant MX 10 mail.tenant.com.
mail.tenant A 185.7.8.1
branch MX 10 mail.safe-corp.com.
mail.safe-corp A 185.7.8.1
";

/// Starts a gateway whose table lists both addresses, with a screened route `/signup`.
fn start_gateway_with_listed_addresses(resolver: SocketAddr, upstream: SocketAddr) -> Gateway {
    let setup = Setup::new().set("plans.free", "\"unlimited\"").set("dns.learn", "true");
    let setup = setup.set("dns.resolvers", &format!("[\"{resolver}\"]")).set("dns.rate", "1000");
    let lists = setup.lists();
    let manifest = std::fs::read_to_string(lists.file_path("manifest.toml")).unwrap();
    let list = "[[list]]\nfile = \"mx-addresses.csv\"\nkind = \"mx_address\"\n";
    lists.write("manifest.toml", &format!("{list}{manifest}"));
    let rows = "185.7.8.9,Pool,a test,2026-11-01\n185.7.8.1,,a test,2026-11-01\n";
    lists.write("mx-addresses.csv", &format!("address,label,source,date\n{rows}"));
    let route = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\nkey = false\n\
                 [upstream.route.screen]\nfields = [\"email\"]\nmode = \"block\"\n";
    setup.with_upstreams(&[upstream]).append_toml(route).start()
}

#[test]
fn a_listed_address_of_an_mx_host_raises_the_score_and_does_not_block() {
    let (server, upstream) = (DnsServer::start(POOL_RECORDS), MockUpstream::start());
    let gateway = start_gateway_with_listed_addresses(server.address, upstream.address);
    let key = gateway.create_active_key("acme", &[]);
    for name in ["pool-1.com", "pool-2.com", "pool-3.com"] {
        let raised = ("disposable".to_owned(), 70, "dns".to_owned());
        wait_until(name, || get_verdict(&gateway, &key, name) == raised);
    }
    let pool = gateway.get_domain("pool-1.com", &key);
    assert_eq!(pool.json()["mx_provider_label"], "Pool");
    let form = request("POST", "/signup")
        .with_header("Content-Type", "application/x-www-form-urlencoded")
        .body("email=jane%40pool-1.com");
    gateway.send_request(&form).expect(200);
    let seen = upstream.last_request();
    assert_eq!(seen.header("X-Riskgate-Action"), "pass");
    assert_eq!(seen.header("X-Riskgate-Score"), "70");
    wait_until("the store has the facts", || {
        let proposed = gateway.cli(&["table", "suggest-hosts", "--json", "--min", "1"]).expect(0);
        proposed.json()["addresses"].as_array().is_some_and(|all| !all.is_empty())
            || gateway.cli(&["table", "lookup", "pool-3.com"]).expect(0).stdout.contains("learned")
    });
    let shown = gateway.cli(&["table", "lookup", "pool-3.com"]).expect(0).stdout;
    assert!(shown.contains("  rule     disposable_mx_address\n"), "{shown}");
    assert!(shown.contains("  learned  mail.pool-3.com (185.7.8.9), until 20"), "{shown}");
    // Once the address is in no list, the command proposes it from the learned facts.
    gateway.lists().write("mx-addresses.csv", "address,label,source,date\n");
    gateway
        .lists()
        .write("disposable.txt", "first.test\nsecond.test\nthird.test\npool-1.com\npool-2.com\n");
    let proposed = gateway.cli(&["table", "suggest-hosts"]).expect(0).stdout;
    assert!(proposed.contains("# 2 listed, 0 protected, 1 in no list: pool-1.com"), "{proposed}");
    assert!(proposed.contains("\n185.7.8.9,,riskgate table suggest-hosts,20"), "{proposed}");
}

#[test]
fn an_address_that_the_mail_host_of_a_protected_name_has_counts_for_no_name() {
    let (server, upstream) = (DnsServer::start(POOL_RECORDS), MockUpstream::start());
    let gateway = start_gateway_with_listed_addresses(server.address, upstream.address);
    let key = gateway.create_active_key("acme", &[]);
    wait_until("the address counts", || get_verdict(&gateway, &key, "tenant.com").1 == 70);
    // The MX host of this name belongs to safe-corp.com, which is protected.
    get_verdict(&gateway, &key, "branch.com");
    let unknown = ("safe".to_owned(), 10, "none".to_owned());
    wait_until("no longer", || get_verdict(&gateway, &key, "tenant.com") == unknown);
    assert_eq!(get_verdict(&gateway, &key, "branch.com"), unknown);
    wait_until("the command agrees", || {
        let shown = gateway.cli(&["table", "lookup", "tenant.com"]).expect(0).stdout;
        shown.contains("\"risk_score\":10") && shown.contains("learned")
    });
    wait_until("the other address still counts", || {
        get_verdict(&gateway, &key, "pool-1.com").1 == 70
    });
    let proposed = gateway.cli(&["table", "suggest-hosts", "--min", "2"]).expect(0).stdout;
    assert!(
        proposed.contains("\n# 185.7.8.1 (do not add it: a protected name uses it)\n"),
        "{proposed}"
    );
}
