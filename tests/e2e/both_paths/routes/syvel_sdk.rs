//! The PyPI package `syvel` works with riskgate if only its base URL and its key are changed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{DemoUpstream, Gateway, Setup, free_address, run_command, wait_until};

/// Calls the SDK as its users do, and prints what each call returns or raises.
const SDK_PROGRAM: &str = r#"
import asyncio, dataclasses, json, sys
import syvel

base_url, key, client_name, *calls = sys.argv[1:]

def outcome_of_error(error):
    reset_at = getattr(error, "reset_at", None)
    return {
        "raised": type(error).__name__,
        "status_code": error.status_code,
        "message": str(error),
        "reset_at": reset_at and reset_at.isoformat(),
    }

def call(client, words):
    method, *arguments = words.split()
    return getattr(client, method)(*arguments)

def sync_calls():
    with syvel.Syvel(key, base_url=base_url) as client:
        for words in calls:
            try:
                yield call(client, words)
            except syvel.SyvelError as error:
                yield outcome_of_error(error)

async def async_calls():
    async with syvel.AsyncSyvel(key, base_url=base_url) as client:
        outcomes = []
        for words in calls:
            try:
                outcomes.append(await call(client, words))
            except syvel.SyvelError as error:
                outcomes.append(outcome_of_error(error))
        return outcomes

def to_json(value):
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value.isoformat()

outcomes = list(sync_calls()) if client_name == "Syvel" else asyncio.run(async_calls())
print(json.dumps([syvel.__version__, outcomes], default=to_json))
"#;

const SDK_CLIENT_CLASSES: [&str; 2] = ["Syvel", "AsyncSyvel"];

/// The result or the exception of each call of the SDK.
#[track_caller]
fn call_sdk(client: &str, gateway: SocketAddr, key: &str, calls: &[&str]) -> Vec<Value> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/syvel");
    assert!(
        package.join("syvel").is_dir(),
        "expected the PyPI package syvel in {}, but found none: scripts/setup --tests",
        package.display()
    );
    let base_url = format!("http://{gateway}");
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", package).env("NO_PROXY", "127.0.0.1");
    command.args(["-c", SDK_PROGRAM, &base_url, key, client]).args(calls);
    let printed: Value = run_command(&mut command).expect(0).json();
    assert_eq!(printed[0], "0.1.0");
    printed[1].as_array().unwrap().clone()
}

fn start_gateway_for(upstream: SocketAddr) -> Gateway {
    Setup::new().with_upstreams(&[upstream]).start()
}

#[test]
fn the_sdk_returns_the_results_of_checks_and_usage() {
    let upstream = DemoUpstream::start(&["127.0.0.1:0"]);
    let gateway = start_gateway_for(upstream.address);
    for client in SDK_CLIENT_CLASSES {
        let key = gateway.create_active_key(client, &["--plan", "pro"]);
        let calls = ["check mail.yopmail.com", "check_email jane+news@gmial.com", "usage"];
        let outcomes = call_sdk(client, gateway.http, &key, &calls);
        assert_eq!(
            outcomes[0],
            json!({
                "email": "mail.yopmail.com",
                "is_risky": true,
                "risk_score": 100,
                "reason": "disposable",
                "deliverability_score": 95,
                "did_you_mean": null,
                "is_free_provider": false,
                "is_corporate_email": false,
                "is_alias_email": false,
                "mx_provider_label": "Yopmail",
            }),
            "{client}"
        );
        assert_eq!(outcomes[1]["email"], "ja****ws@gmial.com");
        assert_eq!(outcomes[1]["did_you_mean"], "gmail.com");
        let usage = &outcomes[2];
        assert_eq!((&usage["used"], &usage["plan"]), (&json!(2), &json!("pro")), "{client}");
        assert!(usage["limit"].as_u64().unwrap() > 2 && usage["reset_at"].is_string(), "{usage}");
    }
}

#[test]
fn an_imported_key_of_syvel_keeps_working() {
    const SYVEL_KEY: &str = "sv_0123456789abcdef0123456789abcdef";
    let upstream = DemoUpstream::start(&["127.0.0.1:0"]);
    let setup = Setup::new().with_upstreams(&[upstream.address]).env("SYVEL_API_KEY", SYVEL_KEY);
    let gateway = setup.start();
    let file = gateway.path("import.toml");
    let text = "[[key]]\nid = \"web\"\naccount = \"acme\"\nenv = \"SYVEL_API_KEY\"\n";
    std::fs::write(&file, text).unwrap();
    gateway.cli(&["keys", "import", file.to_str().unwrap()]).expect(0);
    wait_until("the imported key is accepted", || {
        gateway.get("/v1/usage", SYVEL_KEY).status == 200
    });
    let outcomes = call_sdk("Syvel", gateway.http, SYVEL_KEY, &["check example.com"]);
    assert_eq!(outcomes[0]["email"], "example.com");
}

#[test]
fn the_sdk_raises_its_exceptions_for_refusals() {
    let upstream = DemoUpstream::start(&["127.0.0.1:0"]);
    let gateway = start_gateway_for(upstream.address);
    let raised = |client: &str, key: &str, call: &str| {
        let outcome = call_sdk(client, gateway.http, key, &[call]).remove(0);
        assert!(outcome.get("raised").is_some(), "{call}: {outcome}");
        outcome
    };
    for client in SDK_CLIENT_CLASSES {
        let wrong = raised(client, "sv_wrong", "check example.com");
        assert_eq!(
            (&wrong["raised"], &wrong["status_code"]),
            (&json!("SyvelAuthError"), &json!(401))
        );

        let account = format!("small-{client}");
        gateway.cli(&["accounts", "set", &account, "--limit", "1"]).expect(0);
        let key = gateway.create_active_key(&account, &[]);
        let outcomes =
            call_sdk(client, gateway.http, &key, &["check a.com", "check a.com", "usage"]);
        assert_eq!(outcomes[0]["email"], "a.com");
        assert_eq!(outcomes[1]["raised"], "SyvelRateLimitError");
        assert_eq!(outcomes[1]["status_code"], 429);
        let (usage, reset_at) = (&outcomes[2], &outcomes[1]["reset_at"]);
        assert!(reset_at.is_string());
        assert_eq!(
            (&usage["used"], &usage["limit"], &usage["reset_at"]),
            (&json!(1), &json!(1), reset_at)
        );

        let bound = ["--origin", "https://app.example", "--require-origin"];
        let key = gateway.create_active_key(&format!("bound-{client}"), &bound);
        assert_eq!(raised(client, &key, "check a.com")["raised"], "SyvelForbiddenError");

        let key = gateway.create_active_key(&format!("plain-{client}"), &[]);
        assert_eq!(raised(client, &key, "check nothing")["raised"], "SyvelValidationError");
        let unknown = raised(client, &key, "logs");
        assert_eq!(
            (&unknown["raised"], &unknown["status_code"]),
            (&json!("SyvelError"), &json!(404))
        );
    }
}

#[test]
fn with_the_upstream_down_the_sdk_raises_an_error_with_status_500() {
    let gateway = start_gateway_for(free_address());
    let key = gateway.create_active_key("acme", &[]);
    let outcome = call_sdk("Syvel", gateway.http, &key, &["check a.com"]).remove(0);
    assert_eq!((&outcome["raised"], &outcome["status_code"]), (&json!("SyvelError"), &json!(500)));
    assert!(outcome["message"].as_str().unwrap().ends_with("Let your user through."), "{outcome}");
    assert_eq!(gateway.get_month_count(&key), 0);
}

#[test]
fn without_a_server_the_sdk_gets_checks_from_the_table() {
    let setup = Setup::with_bundled_table().with_upstreams(&[free_address()]);
    let gateway = setup.set_text("check.answer", "table").start();
    for client in SDK_CLIENT_CLASSES {
        let key = gateway.create_active_key(client, &[]);
        let calls = [
            "check yopmail.com",
            "check_email jane.doe@gmail.com",
            "check_email jane@gmaul.com",
            "check_email x1y2z3@duck.com",
            "check_email info@example-company.de",
            "check_email info@yopmail.com",
            "check nothing",
            "check_email a@b@c",
            "usage",
        ];
        let outcomes = call_sdk(client, gateway.http, &key, &calls);
        let verdicts: Vec<Value> = outcomes[..6]
            .iter()
            .map(|it| json!([it["email"], it["is_risky"], it["risk_score"], it["reason"]]))
            .collect();
        assert_eq!(
            verdicts,
            [
                json!(["yopmail.com", true, 100, "disposable"]),
                json!(["ja****oe@gmail.com", false, 0, "safe"]),
                json!(["j****@gmaul.com", false, 60, "undeliverable"]),
                json!(["x1****z3@duck.com", false, 35, "safe"]),
                json!(["i****@example-company.de", true, 70, "role_account"]),
                json!(["i****@yopmail.com", true, 100, "disposable"]),
            ],
            "{client}"
        );
        assert_eq!(outcomes[1]["is_free_provider"], true);
        assert_eq!(outcomes[2]["did_you_mean"], "gmail.com");
        assert_eq!(outcomes[3]["is_alias_email"], true);
        assert_eq!(outcomes[4]["deliverability_score"], 50);
        assert_eq!(outcomes[6]["raised"], "SyvelValidationError");
        assert_eq!(outcomes[7]["raised"], "SyvelValidationError");
        assert_eq!(outcomes[8]["used"], 8);
    }
}

#[test]
fn with_answer_fallback_the_sdk_gets_an_answer_while_the_server_is_down() {
    let upstream = DemoUpstream::start(&["127.0.0.1:0"]);
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let gateway = setup.set_text("check.answer", "fallback").start();
    let key = gateway.create_active_key("acme", &[]);
    let calls = ["check yopmail.com", "check_email info@gmail.com"];
    for client in SDK_CLIENT_CLASSES {
        assert_eq!(call_sdk(client, gateway.http, &key, &calls).len(), 2);
    }
    drop(upstream);
    for client in SDK_CLIENT_CLASSES {
        let outcomes = call_sdk(client, gateway.http, &key, &calls);
        assert_eq!(outcomes[0]["reason"], "disposable", "{client}: {outcomes:?}");
        assert_eq!(outcomes[1]["reason"], "role_account", "{client}: {outcomes:?}");
    }
    let fallbacks = ["route=\"check\"", "outcome=\"fallback\""];
    assert_eq!(gateway.sum_of_samples("riskgate_requests_total", &fallbacks), 4.0);
    assert_eq!(gateway.get_month_count(&key), 8);
}
