//! What is kept about one person, shown and deleted: `riskgate sign-ups` and the admin API.

use serde_json::{Value, json};

use super::admin_api::{AdminTokens, call_api};
use crate::both_paths::decisions::start_counting;
use crate::harness::{
    BINARY, CommandOutput, Gateway, Setup, TcpForwarder, request, run_command_with_input,
    wait_until,
};
use crate::one_path::quota::keys::sha256_hex;
use crate::redis_server::RedisServer;

/// A rule that asks for counts, and blocks nothing.
const RULE: &str =
    "[[rule]]\nname = \"none\"\nif = [\"inbox_accounts_30d >= 1000\"]\nthen = \"review\"\n";
/// Two spellings of one inbox, and a person of the same domain.
const JANE: [&str; 2] = ["jane.doe@quelbrandt.com", "Jane.Doe@Quelbrandt.COM"];
const JOHN: &str = "john@quelbrandt.com";

fn setup() -> Setup {
    Setup::with_bundled_table().set("plans.free", "100000").append_toml(RULE)
}

fn assess(gateway: &Gateway, key: &str, email: &str, count: bool) -> Value {
    let body = json!({ "email": email, "ip": "203.0.113.7", "count": count }).to_string();
    let answer = gateway.send_request(&request("POST", "/v1/assess").key(key).body(&body));
    answer.expect(200).json()["facts"].clone()
}

/// The other accounts of an inbox, and what a stranger sees of its domain and of its network.
fn counts(gateway: &Gateway, key: &str, email: &str) -> [Value; 3] {
    let (own, stranger) = (
        assess(gateway, key, email, false),
        assess(gateway, key, "stranger@quelbrandt.com", false),
    );
    [&own["inbox_accounts_30d"], &stranger["domain_accounts_1h"], &stranger["client_accounts_1h"]]
        .map(Value::clone)
}

fn run(gateway: &Gateway, command: &str, email: &str) -> CommandOutput {
    gateway.cli_with_input(&["sign-ups", command, "-", "--json"], email.as_bytes())
}

/// Restarts a gateway, and waits until it counts.
fn restart(gateway: Gateway, key: &str) -> Gateway {
    let gateway = gateway.restart();
    wait_until("sign-ups are counted", || !gateway.readyz().text().contains("sign_ups"));
    wait_until("the key is known", || gateway.get("/v1/usage", key).status == 200);
    gateway
}

/// The last record of the audit, without its id and time.
fn last_record(gateway: &Gateway) -> Value {
    let lines = gateway.cli(&["audit", "--json"]).expect(0).stdout;
    serde_json::from_str(lines.lines().next().unwrap()).unwrap()
}

#[test]
fn the_sign_ups_of_one_inbox_are_deleted_on_all_nodes_and_stay_deleted() {
    let redis = RedisServer::start();
    let nodes =
        [start_counting(setup().with_redis(&redis)), start_counting(setup().with_redis(&redis))];
    let key = nodes[0].create_active_key("acme", &[]);
    wait_until("both nodes know the key", || nodes[1].get("/v1/usage", &key).status == 200);
    // A provider's rule makes one inbox of these.
    for email in ["jane.doe+a@gmail.com", "janedoe+b@googlemail.com"] {
        assess(&nodes[0], &key, email, true);
    }
    for email in [JANE[0], JOHN] {
        assess(&nodes[1], &key, email, true);
    }
    let of_gmail = |node: &Gateway| {
        assess(node, &key, "janedoe@gmail.com", false)["inbox_accounts_30d"].clone()
    };
    for node in &nodes {
        wait_until("both nodes count all", || {
            of_gmail(node) == 2
                && counts(node, &key, "x@quelbrandt.com") == [json!(0), json!(2), json!(3)]
        });
    }
    let shown = run(&nodes[0], "show", "j.a.n.e.doe@gmail.com").expect(0).json();
    assert_eq!(shown["sign_ups"], 2);
    assert!(shown["first"].as_str().unwrap() <= shown["last"].as_str().unwrap(), "{shown}");

    let deleted = run(&nodes[0], "delete", "JaneDoe@gmail.com").expect(0);
    assert_eq!(deleted.json(), json!({ "sign_ups": 2 }));
    let deleted_at = std::time::Instant::now();
    for node in &nodes {
        wait_until("no node counts them", || {
            of_gmail(node) == 0
                && counts(node, &key, "x@quelbrandt.com") == [json!(0), json!(2), json!(2)]
        });
    }
    assert!(deleted_at.elapsed().as_secs_f64() < 2.0, "{:?}", deleted_at.elapsed());
    run(&nodes[1], "delete", JANE[1]).expect(0);
    let nodes = nodes.map(|node| restart(node, &key));
    for node in &nodes {
        assert_eq!(of_gmail(node), 0);
        assert_eq!(counts(node, &key, "x@quelbrandt.com"), [json!(0), json!(1), json!(1)]);
    }
    let shown = run(&nodes[0], "show", "janedoe@gmail.com").expect(0).json();
    assert_eq!(shown, json!({ "sign_ups": 0, "first": null, "last": null }));
    // A new account counts again.
    assess(&nodes[0], &key, "jane.doe+c@gmail.com", true);
    wait_until("the other node counts it", || of_gmail(&nodes[1]) == 1);
}

#[test]
fn the_command_deletes_from_a_file_and_its_record_names_nobody() {
    let gateway = start_counting(setup());
    let key = gateway.create_active_key("acme", &[]);
    for email in [JANE[0], JOHN, "jane.doe+x@quelbrandt.com"] {
        assess(&gateway, &key, email, true);
    }
    wait_until("the store has them", || {
        run(&gateway, "show", JANE[1]).expect(0).json()["sign_ups"] == 1
    });
    let text = gateway.cli_with_input(&["sign-ups", "delete", "-"], JANE[1].as_bytes()).expect(0);
    assert_eq!(
        text.stdout,
        "1 sign-up of this inbox deleted; running gateways forget them within two seconds\n"
    );
    let record = last_record(&gateway);
    assert_eq!(
        [&record["operation"], &record["target"], &record["before"], &record["after"]],
        [
            &json!("sign_ups.delete"),
            &json!("the sign-ups of one inbox"),
            &json!({ "sign_ups": 1 }),
            &Value::Null
        ]
    );
    wait_until("the gateway forgets", || {
        counts(&gateway, &key, "x@quelbrandt.com") == [json!(0), json!(2), json!(2)]
    });
    let gateway = restart(gateway, &key);
    assert_eq!(counts(&gateway, &key, "x@quelbrandt.com"), [json!(0), json!(2), json!(2)]);
    let refused = gateway.cli_with_input(&["sign-ups", "delete", "-"], b"jane").expect(2);
    assert!(refused.stderr.contains("standard input: expected an e-mail address"));
    gateway.cli(&["sign-ups", "delete", "jane@quelbrandt.com"]).expect(2);
}

#[test]
fn the_api_deletes_with_a_token_that_may_write_and_the_node_forgets_at_once() {
    let (setup, tokens) = AdminTokens::add_to(setup());
    let gateway = start_counting(setup);
    let key = gateway.create_active_key("acme", &[]);
    let body = json!({ "email": JANE[0] });
    let post =
        |token: &str, body: &Value| call_api(&gateway, "POST", "/sign-ups/delete", token, body);
    post("", &body).expect(401);
    post(&tokens.read, &body).expect(403);
    post(&tokens.account, &body).expect(403);
    call_api(&gateway, "GET", "/sign-ups/delete", &tokens.write, &Value::Null).expect(405);
    for (faulty, expected) in [
        (json!({ "email": "secret-local-part" }), "email: expected an e-mail address"),
        (json!({}), "missing field `email`"),
        (json!({ "email": JANE[0], "more": 1 }), "unknown field `more`"),
    ] {
        let answer = post(&tokens.write, &faulty).expect(422).text();
        assert!(answer.contains(expected) && !answer.contains("secret-local"), "{answer}");
    }
    for round in 0..3 {
        assess(&gateway, &key, JANE[0], true);
        assess(&gateway, &key, JOHN, true);
        assert_eq!(counts(&gateway, &key, "x@quelbrandt.com")[1], 2, "{round}");
        wait_until("the store has it", || {
            run(&gateway, "show", JANE[0]).expect(0).json()["sign_ups"] == 1
        });
        assert_eq!(post(&tokens.write, &body).expect(200).json(), json!({ "sign_ups": 1 }));
        assert_eq!(counts(&gateway, &key, "x@quelbrandt.com")[1], 1, "{round}");
        // A sign-up of the second of the deletion, which this node has read, counts too.
    }
    let record = last_record(&gateway);
    assert_eq!((&record["actor"], &record["via"]), (&json!("ops"), &json!("api")));
}

#[test]
fn while_the_store_is_down_nothing_is_deleted_and_a_node_that_was_cut_off_forgets_later() {
    let mut redis = RedisServer::start();
    let forwarder = TcpForwarder::start_to(&redis);
    let (near, tokens) = AdminTokens::add_to(setup().with_redis(&redis));
    let near = start_counting(near);
    let far = start_counting(setup().set_text("store.url", &forwarder.url()));
    let key = near.create_active_key("acme", &[]);
    wait_until("both nodes know the key", || far.get("/v1/usage", &key).status == 200);
    assess(&far, &key, JANE[0], true);
    let domain = |node: &Gateway| counts(node, &key, "x@quelbrandt.com")[1].clone();
    wait_until("the other node counts it", || domain(&near) == 1);

    let mut nowhere = RedisServer::start();
    nowhere.kill();
    forwarder.switch_to(&nowhere);
    wait_until("the far node is cut off", || far.readyz().text().contains("sign_ups"));
    let failing = || far.sum_of_samples("riskgate_reload_failing", &["part=\"sign_ups\""]);
    wait_until("the metric shows the part", || failing() == 1.0);
    // Another address of the inbox, which waits to be written.
    let of_gmail = |node: &Gateway| {
        assess(node, &key, "janedoe@gmail.com", false)["inbox_accounts_30d"].clone()
    };
    assess(&far, &key, "jane.doe+a@gmail.com", true);
    assert_eq!(of_gmail(&far), 1);
    let refused = run(&far, "delete", JANE[0]).expect(1).stderr;
    assert!(!refused.contains("jane") && !refused.is_empty(), "{refused}");
    assert_eq!(run(&near, "delete", JANE[0]).expect(0).json()["sign_ups"], 1);
    assert_eq!(run(&near, "delete", "janedoe@gmail.com").expect(0).json()["sign_ups"], 0);
    wait_until("the near node forgets", || domain(&near) == 0);
    assert_eq!(domain(&far), 1);
    forwarder.switch_to(&redis);
    wait_until("the far node forgets", || domain(&far) == 0 && of_gmail(&far) == 0);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!((of_gmail(&near), of_gmail(&far)), (json!(0), json!(0)));
    assert_eq!(run(&near, "show", "janedoe@gmail.com").expect(0).json()["sign_ups"], 0);

    redis.kill();
    wait_until("the store is down", || near.readyz().text().contains("sign_ups"));
    let body = json!({ "email": JANE[0] });
    let answer = call_api(&near, "POST", "/sign-ups/delete", &tokens.write, &body);
    assert_eq!(answer.status, 503, "{}", answer.text());
}

#[test]
fn accounts_with_ids_of_their_own_are_covered_and_another_secret_is_refused() {
    let gateway = start_counting(setup().set_text("decide.scope", "account"));
    let [first, second] = ["one", "two"].map(|account| gateway.create_active_key(account, &[]));
    for key in [&first, &second] {
        assess(&gateway, key, JANE[0], true);
    }
    wait_until("the store has them", || {
        run(&gateway, "show", JANE[1]).expect(0).json()["sign_ups"] == 2
    });
    let other = gateway.setup().path("other-secret");
    std::fs::write(&other, "s".repeat(32)).unwrap();
    let config = std::fs::read_to_string(&gateway.config).unwrap();
    let with_file = gateway.setup().path("with-file.toml");
    let section = format!("{config}\n[inbox]\nsecret_file = \"{}\"\n", other.display());
    std::fs::write(&with_file, section).unwrap();
    for name in ["show", "delete"] {
        let mut command = std::process::Command::new(BINARY);
        command.args(["sign-ups", name, "-", "-c"]).arg(&with_file);
        let refused = run_command_with_input(&mut command, JANE[0].as_bytes()).expect(1).stderr;
        assert!(refused.contains("make other inbox ids"), "{refused}");
    }
    assert_eq!(run(&gateway, "delete", JANE[1]).expect(0).json()["sign_ups"], 2);
    for key in [&first, &second] {
        wait_until("no account counts it", || counts(&gateway, key, "x@quelbrandt.com")[1] == 0);
    }
}

#[test]
fn accounts_that_are_damaged_or_no_longer_in_the_key_file_are_covered() {
    let (setup, tokens) = AdminTokens::add_to(setup().set_text("decide.scope", "account"));
    let file = setup.path("keys.toml");
    let of_file = "sv_0123456789abcdef0123456789abcdef";
    let entry = format!(
        "[[key]]\nid = \"filed\"\naccount = \"filed\"\nhash = \"sha256:{}\"\n",
        sha256_hex(of_file)
    );
    std::fs::write(&file, entry).unwrap();
    let gateway = start_counting(setup.set_text("keys.file", &file.display().to_string()));
    let damaged = gateway.create_active_key("damaged", &[]);
    let sign_up = |email: &str| {
        assess(&gateway, of_file, email, true);
        assess(&gateway, &damaged, email, true);
    };
    [JANE[0], JOHN].into_iter().for_each(sign_up);
    let shown = |email: &str| run(&gateway, "show", email).expect(0).json()["sign_ups"].clone();
    wait_until("the store has them", || shown(JANE[0]) == 2 && shown(JOHN) == 2);
    std::fs::write(&file, "# no key\n").unwrap();
    wait_until("the key is gone", || gateway.get("/v1/usage", of_file).status == 401);
    let store = rusqlite::Connection::open(gateway.setup().path("riskgate.db")).unwrap();
    let damage = "UPDATE account SET calls = 'x' WHERE name = 'damaged'";
    assert_eq!(store.execute(damage, []).unwrap(), 1);
    drop(store);

    assert_eq!(shown(JANE[0]), 2);
    assert_eq!(run(&gateway, "delete", JANE[0]).expect(0).json()["sign_ups"], 2);
    let body = json!({ "email": JOHN });
    let deleted = call_api(&gateway, "POST", "/sign-ups/delete", &tokens.write, &body);
    assert_eq!(deleted.expect(200).json()["sign_ups"], 2);
}
