//! Plans change only by a change of plan: no creation of a key and no import changes one.

use serde_json::{Value, json};

use crate::harness::{CommandOutput, Gateway, Setup, get, wait_until};
use crate::one_path::operators::admin_api::{AdminTokens, call_api};
use crate::redis_server::RedisServer;

const PAIRS: usize = 60;
/// Each of so many pairs has a command in it, because a process takes longer than a request.
const PAIRS_FOR_A_COMMAND: usize = 6;

/// Two gateways on one store, each with the tokens of its config.
struct TwoGateways([(Gateway, AdminTokens); 2]);

impl TwoGateways {
    /// Starts them on this store.
    fn start(store_url: &str) -> TwoGateways {
        let setups = [(), ()].map(|()| {
            let setup = Setup::new().set_text("store.url", store_url);
            AdminTokens::add_to(setup)
        });
        setups[0].0.cli(&["store", "init"]).expect(0);
        TwoGateways(setups.map(|(setup, tokens)| (setup.start(), tokens)))
    }

    /// Sends a change to a gateway, and returns the status.
    fn change(&self, gateway: usize, method: &str, path: &str, body: &Value) -> u16 {
        let (gateway, tokens) = &self.0[gateway];
        call_api(gateway, method, path, &tokens.write, body).status
    }

    fn create_by_command(&self, account: &str, plan: &str) -> u16 {
        let words = ["keys", "create", "--account", account, "--plan", plan];
        match self.0[0].0.cli(&words).exit_code {
            0 => 201,
            1 => 409,
            other => panic!("expected the exit code 0 or 1, but found {other}"),
        }
    }

    fn plan_of(&self, account: &str) -> String {
        let accounts = self.0[0].0.cli(&["accounts", "list", "--json"]).expect(0).json();
        let found = accounts.as_array().unwrap().iter().find(|it| it["name"] == account).cloned();
        found.unwrap()["plan"].as_str().unwrap().to_owned()
    }
}

/// Runs a test on an SQLite store and on a Redis store, each with two gateways.
fn with_two_gateways(test: impl Fn(&TwoGateways)) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shared.db");
    test(&TwoGateways::start(&format!("sqlite:{}", file.display())));
    let server = RedisServer::start();
    test(&TwoGateways::start(&server.url()));
}

/// Runs both at the same time, and returns both results.
fn race(one: impl FnOnce() -> u16 + Send, other: impl FnOnce() -> u16 + Send) -> (u16, u16) {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        (one.join().unwrap(), other)
    })
}

#[test]
fn of_two_racing_first_keys_with_two_plans_one_is_made() {
    with_two_gateways(|gateways| {
        let mut winners = Vec::new();
        for pair in 0..PAIRS {
            let account = format!("account-{pair}");
            let body = |plan: &str| json!({ "account": account, "plan": plan });
            let (pro, free) = race(
                || match pair % PAIRS_FOR_A_COMMAND {
                    0 => gateways.create_by_command(&account, "pro"),
                    _ => gateways.change(0, "POST", "/keys", &body("pro")),
                },
                || gateways.change(1, "POST", "/keys", &body("free")),
            );
            match (pro, free) {
                (201, 409) => winners.push((account, "pro")),
                (409, 201) => winners.push((account, "free")),
                other => panic!("{account}: expected 201 and 409, but found {other:?}"),
            }
        }
        for (account, plan) in winners {
            assert_eq!(gateways.plan_of(&account), plan, "{account}");
        }
    });
}

#[test]
fn no_racing_creation_of_a_key_undoes_a_change_of_plan() {
    with_two_gateways(|gateways| {
        for pair in 0..PAIRS {
            let account = format!("account-{pair}");
            let new = json!({ "account": account, "plan": "pro" });
            assert_eq!(gateways.change(0, "POST", "/keys", &new), 201);
            let path = format!("/accounts/{account}");
            let (patched, made) = race(
                || gateways.change(0, "PATCH", &path, &json!({ "plan": "business" })),
                || match pair % PAIRS_FOR_A_COMMAND {
                    0 => gateways.create_by_command(&account, "pro"),
                    _ => gateways.change(1, "POST", "/keys", &new),
                },
            );
            assert_eq!(patched, 200);
            assert!([201, 409].contains(&made), "{made}");
        }
        for pair in 0..PAIRS {
            assert_eq!(gateways.plan_of(&format!("account-{pair}")), "business");
        }
    });
}

/// A key file with one key of an account.
fn key_file(id: &str, account: &str, plan: &str, digest: u32) -> String {
    format!(
        "[[key]]\nid = \"{id}\"\naccount = \"{account}\"\nplan = \"{plan}\"\n\
         hash = \"sha256:{digest:064x}\"\n"
    )
}

fn refused_plan(output: CommandOutput) -> String {
    let output = output.expect(1);
    assert!(output.stdout.is_empty(), "{}", output.stdout);
    output.stderr
}

#[test]
fn a_new_key_changes_no_plan_of_the_key_file() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        let (setup, tokens) = AdminTokens::add_to(setup);
        let file = setup.path("keys.toml");
        std::fs::write(&file, key_file("f1", "acme", "pro", 1)).unwrap();
        let setup = setup.set_text("keys.file", &file.display().to_string());
        setup.cli(&["store", "init"]).expect(0);
        let gateway = setup.start();
        let create =
            |plan: &str| gateway.cli(&["keys", "create", "--account", "acme", "--plan", plan]);
        let refused = refused_plan(create("free"));
        assert!(
            refused.contains("--plan: expected pro, the plan of the account acme"),
            "{refused}"
        );
        let body = json!({ "account": "acme", "plan": "free" });
        call_api(&gateway, "POST", "/keys", &tokens.write, &body).expect(409);
        let import = gateway.path("import.toml");
        std::fs::write(&import, key_file("i1", "acme", "free", 2)).unwrap();
        refused_plan(gateway.cli(&["keys", "import", &import.display().to_string()]));

        let key = create("pro").expect(0).stdout.trim().to_owned();
        let plan = || get("/v1/usage").key(&key).send(gateway.http).json()["plan"].clone();
        wait_until("the key works", || plan() == "pro");
        let body = json!({ "account": "acme", "plan": "pro" });
        let made = call_api(&gateway, "POST", "/keys", &tokens.write, &body).expect(201).json();
        assert_eq!(made["plan"], "pro");
        let without_plan = json!({ "account": "acme" });
        let made = call_api(&gateway, "POST", "/keys", &tokens.write, &without_plan).expect(201);
        assert_eq!(made.json()["plan"], "pro", "the answer shows the plan that applies");
        // The key file goes on to decide.
        std::fs::write(&file, key_file("f1", "acme", "business", 1)).unwrap();
        wait_until("the plan of the file applies", || plan() == "business");
    }
}

#[test]
fn an_import_changes_no_plan() {
    let server = RedisServer::start();
    for setup in [Setup::new(), Setup::new().with_redis(&server)] {
        setup.cli(&["keys", "create", "--account", "acme", "--plan", "pro"]).expect(0);
        let file = setup.path("import.toml");
        let import = |text: String| {
            std::fs::write(&file, text).unwrap();
            setup.cli(&["keys", "import", &file.display().to_string()])
        };
        let list = |what: &str| setup.cli(&[what, "list", "--json"]).expect(0).json();
        let before = (list("keys"), list("accounts"));
        let refused = refused_plan(import(key_file("i1", "acme", "free", 1)));
        assert!(refused.contains("riskgate accounts set acme --plan free"), "{refused}");
        let two_plans = key_file("i1", "new", "free", 1) + &key_file("i2", "new", "pro", 2);
        refused_plan(import(two_plans));
        assert_eq!((list("keys"), list("accounts")), before, "nothing was imported");
        import(key_file("i1", "acme", "pro", 1) + &key_file("i2", "new", "pro", 2)).expect(0);
        let plans: Vec<Value> =
            list("accounts").as_array().unwrap().iter().map(|it| it["plan"].clone()).collect();
        assert_eq!(plans, ["pro", "pro"]);
    }
}
