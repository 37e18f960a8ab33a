//! The audit, replayed from empty, gives the state of the store, whoever made changes at once.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::read_records;
use crate::harness::{Gateway, Setup};
use crate::one_path::operators::admin_api::{AdminTokens, call_api};
use crate::redis_server::RedisServer;

const ACCOUNTS: u64 = 4;
const PLANS: [&str; 3] = ["free", "pro", "business"];
/// How many changes each of two gateways makes, unless RISKGATE_TEST_CHANGES is set.
const CHANGES_BY_A_GATEWAY: u64 = 60;
/// For each change by a command, each gateway makes as many.
const CHANGES_FOR_A_COMMAND: u64 = 3;

/// Draws numbers, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn account(&mut self) -> String {
        format!("account-{}", self.below(ACCOUNTS))
    }

    fn plan(&mut self) -> &'static str {
        PLANS[self.below(PLANS.len() as u64) as usize]
    }
}

/// Makes a drawn change by the API. It may be refused.
fn change_by_api(gateway: &Gateway, tokens: &AdminTokens, draw: &mut Draw) {
    let send = |method: &str, path: &str, body: Value| {
        let answer = call_api(gateway, method, path, &tokens.write, &body);
        assert!([200, 201, 404, 409].contains(&answer.status), "{}", answer.text());
    };
    let drawn_key = |draw: &mut Draw| -> Option<String> {
        let listed = call_api(gateway, "GET", "/keys?limit=100", &tokens.read, &Value::Null);
        let items = listed.expect(200).json()["items"].as_array().unwrap().clone();
        let at = draw.below(items.len().max(1) as u64) as usize;
        Some(items.get(at)?["id"].as_str().unwrap().to_owned())
    };
    match draw.below(10) {
        0..=3 => {
            let mut body = json!({ "account": draw.account(), "label": "drawn" });
            if draw.below(3) > 0 {
                body["plan"] = json!(draw.plan());
            }
            send("POST", "/keys", body);
        }
        4..=6 => {
            let mut body = json!({ "plan": draw.plan() });
            if draw.below(2) == 0 {
                body["limit"] = json!(draw.below(50));
            }
            send("PATCH", &format!("/accounts/{}", draw.account()), body);
        }
        7 => {
            if let Some(id) = drawn_key(draw) {
                send("POST", &format!("/keys/{id}/rotate"), json!({ "overlap": "1h" }));
            }
        }
        _ => {
            if let Some(id) = drawn_key(draw) {
                send("POST", &format!("/keys/{id}/revoke"), Value::Null);
            }
        }
    }
}

/// Makes a drawn change by a command. It may be refused.
fn change_by_command(setup: &Setup, draw: &mut Draw, n: u64) {
    let (account, plan) = (draw.account(), draw.plan());
    let output = match draw.below(4) {
        0 => setup.cli(&["keys", "create", "--account", &account, "--plan", plan]),
        1 => setup.cli(&["accounts", "set", &account, "--plan", plan]),
        2 => setup.cli(&["accounts", "set", &account, "--limit", "unlimited"]),
        _ => {
            let file = setup.path("import.toml");
            let key = |part: u64| {
                let digest = 1_000 + 2 * n + part;
                format!(
                    "[[key]]\nid = \"imported-{digest}\"\naccount = \"{account}\"\n\
                     plan = \"{plan}\"\nhash = \"sha256:{digest:064x}\"\n"
                )
            };
            std::fs::write(&file, key(0) + &key(1)).unwrap();
            setup.cli(&["keys", "import", &file.display().to_string()])
        }
    };
    assert!([0, 1].contains(&output.exit_code), "{output:?}");
}

/// Keys and accounts by name, as records show them.
#[derive(Default)]
struct Replayed {
    keys: BTreeMap<String, Value>,
    accounts: BTreeMap<String, Value>,
}

impl Replayed {
    fn apply(&mut self, record: &Value) {
        let target = record["target"].as_str().unwrap().to_owned();
        let (before, after) = (&record["before"], record["after"].clone());
        match record["operation"].as_str().unwrap() {
            "key.create" => {
                assert_eq!(*before, Value::Null);
                self.add_key(target, after);
            }
            "key.import" => {
                // The plan of an account that is there already stays as it is.
                let plans = after["plans"].as_object().unwrap().iter();
                let new = plans.filter(|(account, _)| !self.accounts.contains_key(*account));
                let new: Vec<(&String, &Value)> = new.collect();
                for (id, state) in after["states"].as_object().unwrap() {
                    self.add_key(id.clone(), state.clone());
                }
                for (account, plan) in new {
                    self.accounts.get_mut(account).unwrap()["plan"] = plan.clone();
                }
            }
            "key.rotate" | "key.revoke" | "key.rotation_undo" => {
                let known = self.keys.insert(target, after);
                assert_eq!(known.as_ref(), Some(before), "{record}");
            }
            "account.set" => {
                let known = self.accounts.insert(target, after);
                assert_eq!(known.unwrap_or(Value::Null), *before, "{record}");
            }
            _ => {}
        }
    }

    fn add_key(&mut self, id: String, mut state: Value) {
        let plan = state.as_object_mut().unwrap().remove("plan");
        let account = state["account"].as_str().unwrap().to_owned();
        let new = || json!({ "plan": plan, "own_limit": null });
        self.accounts.entry(account).or_insert_with(new);
        assert!(self.keys.insert(id, state).is_none());
    }
}

#[track_caller]
fn assert_replay_gives_the_state(gateway: &Gateway) {
    let mut replayed = Replayed::default();
    read_records(gateway).iter().for_each(|record| replayed.apply(record));
    let list = |what: &str| {
        gateway.cli(&[what, "list", "--json"]).expect(0).json().as_array().unwrap().clone()
    };
    let stored: BTreeMap<String, Value> = list("keys")
        .into_iter()
        .map(|key| {
            let members = [
                "account",
                "label",
                "origins",
                "require_origin",
                "created_at",
                "expires_at",
                "revoked_at",
            ];
            let state = members.map(|name| (name.to_owned(), key[name].clone()));
            (key["id"].as_str().unwrap().to_owned(), Value::Object(state.into_iter().collect()))
        })
        .collect();
    assert_eq!(replayed.keys, stored);
    let stored: BTreeMap<String, (Value, Value)> = list("accounts")
        .into_iter()
        .map(|account| {
            let own_limit = account["own_limit"].as_bool().unwrap();
            let limit = if own_limit { account["limit"].clone() } else { Value::Null };
            (account["name"].as_str().unwrap().to_owned(), (account["plan"].clone(), limit))
        })
        .collect();
    let plan = |account: &Value| match &account["plan"] {
        Value::Null => json!("free"),
        plan => plan.clone(),
    };
    let replayed = replayed.accounts.iter();
    let replayed: BTreeMap<String, (Value, Value)> = replayed
        .map(|(name, account)| (name.clone(), (plan(account), account["own_limit"].clone())))
        .collect();
    assert_eq!(replayed, stored);
}

fn read_number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}: expected a number, but found {text}")))
}

#[test]
fn the_audit_replayed_from_empty_gives_the_state_of_the_store() {
    let changes = read_number("RISKGATE_TEST_CHANGES").unwrap_or(CHANGES_BY_A_GATEWAY);
    let first_seed = read_number("RISKGATE_TEST_SEED").unwrap_or(1);
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("shared.db").display());
    let server = RedisServer::start();
    for (seed, url) in [(first_seed, file), (first_seed + 1, server.url())] {
        let setups =
            [(), ()].map(|()| AdminTokens::add_to(Setup::new().set_text("store.url", &url)));
        setups[0].0.cli(&["store", "init"]).expect(0);
        let commands = Setup::new().set_text("store.url", &url);
        let gateways = setups.map(|(setup, tokens)| (setup.start(), tokens));
        std::thread::scope(|scope| {
            for (at, (gateway, tokens)) in gateways.iter().enumerate() {
                scope.spawn(move || {
                    let mut draw = Draw(100 * seed + at as u64);
                    (0..changes).for_each(|_| change_by_api(gateway, tokens, &mut draw));
                });
            }
            let mut draw = Draw(100 * seed + 7);
            let of_commands = changes / CHANGES_FOR_A_COMMAND;
            (0..of_commands).for_each(|n| change_by_command(&commands, &mut draw, n));
        });
        assert_replay_gives_the_state(&gateways[0].0);
    }
}
