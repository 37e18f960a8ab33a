//! Trials of wrong clocks: of the gateway, of a command, of their machine and of the Redis server.
//! Nothing is deleted, begins or ends that would not have done so with a steady clock.

use serde_json::{Value, json};

use crate::both_paths::faults::unset_clock::forget_boot;
use crate::harness::{BINARY, CommandOutput, FakeClock, Gateway, Setup, run_command, wait_until};
use crate::one_path::operators::admin_api::{api_request, call_api};
use crate::redis_server::RedisServer;

const START: &str = "2031-04-10T12:00:00Z";
const DAY: i64 = 86_400;
/// How far a clock is moved: two years ahead, ten days back, a month, a year, and to 1999.
const STEPS: [i64; 7] =
    [731 * DAY, -10 * DAY, 31 * DAY, -31 * DAY, 365 * DAY, -365 * DAY, -11_424 * DAY];

/// Whose clock is wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Gateway,
    Command,
    Machine,
    Server,
}

/// A gateway with a history, and the clocks of all who take part.
struct Trial {
    gateway: Gateway,
    gateway_clock: FakeClock,
    command_clock: FakeClock,
    server: Option<(RedisServer, FakeClock)>,
    live_token: String,
    ended_token: String,
    key: String,
    first_record: Value,
    idempotent_key: Value,
    audited_changes: u64,
}

fn unix_seconds(moment: &str) -> i64 {
    moment.parse::<jiff::Timestamp>().unwrap().as_second()
}

/// Parses the JSON objects that a command prints, one per line.
fn parse_lines(output: &CommandOutput) -> Vec<Value> {
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Trial {
    fn start(on_redis: bool) -> Trial {
        let clock = || FakeClock::starting_at(START);
        let (gateway_clock, command_clock) = (clock(), clock());
        let server = on_redis.then(|| {
            let clock = clock();
            (RedisServer::start_with_env(&clock.environment_variables()), clock)
        });
        let mut setup = Setup::new().set("plans.free", "\"unlimited\"").with_clock(&gateway_clock);
        if let Some((server, _)) = &server {
            setup = setup.with_redis(server).set_text("store.deadline", "2s");
            setup.cli(&["store", "init"]).expect(0);
        }
        let mut toml = String::new();
        let mut add_token = |name: &str, expires: &str| {
            let words = ["admin-token", "create", "--name", name, "--scope", "write", "--json"];
            let mut command = std::process::Command::new(BINARY);
            let made = run_command(command.args(words)).expect(0).json();
            let text = |member: &str| made[member].as_str().unwrap().to_owned();
            toml += &format!(
                "[[admin.token]]\nname = \"{name}\"\nhash = \"{}\"\nscope = \"write\"\n\
                 expires = \"{expires}\"\n",
                text("hash")
            );
            text("token")
        };
        let live_token = add_token("live", "2031-04-12T00:00:00Z");
        let ended_token = add_token("ended", "2031-04-09T00:00:00Z");
        let gateway = setup.append_toml(&toml).start();
        let key = gateway.create_active_key("acme", &[]);
        gateway.cli(&["table", "deny", "denied-for-now.com", "--until", "2031-04-11"]).expect(0);
        wait_until("the domain is denied", || {
            let verdict = gateway.get_domain("denied-for-now.com", &key).expect(200).json();
            verdict["reason"] == "disposable"
        });
        let mut trial = Trial {
            gateway,
            gateway_clock,
            command_clock,
            server,
            live_token,
            ended_token,
            key,
            first_record: Value::Null,
            idempotent_key: Value::Null,
            audited_changes: 0,
        };
        trial.idempotent_key = trial.create_idempotent_key();
        trial.first_record = trial.read_audit().last().unwrap().clone();
        trial.wait_until_time_is_remembered();
        trial
    }

    /// Runs a command by the clock of commands.
    fn command(&self, words: &[&str]) -> CommandOutput {
        let mut command = std::process::Command::new(BINARY);
        command.args(words).arg("-c").arg(&self.gateway.config);
        run_command(command.envs(self.command_clock.environment_variables()))
    }

    fn read_audit(&self) -> Vec<Value> {
        let words = ["audit", "--json", "--limit", "1000"];
        parse_lines(&self.command(&words).expect(0))
    }

    fn create_idempotent_key(&self) -> Value {
        let request = api_request("POST", "/keys", &self.live_token)
            .with_header("Content-Type", "application/json")
            .with_header("Idempotency-Key", "once")
            .body("{\"account\":\"acme\"}");
        request.send(self.gateway.admin).expect(201).json()["id"].clone()
    }

    fn wait_until_time_is_remembered(&self) {
        wait_until("the gateway has told the store the time", || match &self.server {
            Some((server, _)) => !server.run(&["HGET", "riskgate:{ring}:meta", "time"]).is_empty(),
            None => {
                let store = rusqlite::Connection::open(self.gateway.path("riskgate.db")).unwrap();
                let select = "SELECT value FROM meta WHERE key = 'time'";
                store.query_row(select, [], |row| row.get::<_, String>(0)).is_ok()
            }
        });
    }

    fn step(&self, wrong: Wrong, seconds: i64) {
        let (gateway, command, server) = match wrong {
            Wrong::Gateway => (true, false, false),
            Wrong::Command => (false, true, false),
            Wrong::Machine => (true, true, false),
            Wrong::Server => (false, false, true),
        };
        if gateway {
            self.gateway_clock.step(seconds);
        }
        if command {
            self.command_clock.step(seconds);
        }
        if let Some((_, clock)) = self.server.as_ref().filter(|_| server) {
            clock.step(seconds);
        }
    }

    /// Waits until the gateway doubts a clock, or no longer doubts one.
    fn wait_until_noticed(&self, is_doubted: bool) {
        wait_until("the gateway has noticed the step", || {
            // Without a token, the answer has only the names of the faulty parts.
            self.gateway.readyz().text().contains("\"clock") == is_doubted
        });
    }

    /// Asserts that the present time is that of the start, a few minutes later, in all that has a
    /// time.
    fn assert_nothing_happened(&mut self, what: &str) {
        let now = unix_seconds(START);
        let is_near = |text: &Value, expected: i64| {
            let found = unix_seconds(text.as_str().unwrap());
            assert!((expected..expected + 1_800).contains(&found), "{what}: {text}");
        };
        // Records: none is deleted, and each new one has the right time.
        for _ in 0..2 {
            self.audited_changes += 1;
            let limit = (1_000_000 + self.audited_changes).to_string();
            self.command(&["accounts", "set", "acme", "--limit", &limit]).expect(0);
        }
        let records = self.read_audit();
        assert_eq!(records.last(), Some(&self.first_record), "{what}");
        let changes = records.iter().filter(|record| record["operation"] == "account.set");
        assert_eq!(changes.count() as u64, self.audited_changes, "{what}");
        records.iter().for_each(|record| is_near(&record["at"], now));
        // Requests that can be repeated.
        assert_eq!(self.create_idempotent_key(), self.idempotent_key, "{what}");
        // Expiry, by a command and by the API.
        let create = ["keys", "create", "--account", "acme", "--expires", "1h", "--json"];
        let made = self.command(&create).expect(0).json();
        let body = json!({ "account": "acme", "expires": "1h" });
        let of_api = call_api(&self.gateway, "POST", "/keys", &self.live_token, &body);
        is_near(&of_api.expect(201).json()["expires_at"], now + 3_600);
        let listed = self.command(&["keys", "list", "--json"]).expect(0).json();
        let row = listed.as_array().unwrap().iter().find(|row| row["id"] == made["id"]).unwrap();
        is_near(&row["expires_at"], now + 3_600);
        assert_eq!(row["state"], "active", "{what}");
        let create = ["admin-token", "create", "--name", "new", "--expires", "1h", "--json"];
        is_near(&self.command(&create).expect(0).json()["expires"], now + 3_600);
        // Rotation without an overlap ends the old key at once.
        let old = made["key"].as_str().unwrap();
        wait_until("the key works", || self.gateway.get("/v1/usage", old).status == 200);
        let rotate = ["keys", "rotate", made["id"].as_str().unwrap(), "--overlap", "0s"];
        self.command(&rotate).expect(0);
        wait_until("the old key has ended", || self.gateway.get("/v1/usage", old).status == 401);
        // Admin tokens.
        let read = |token: &str| call_api(&self.gateway, "GET", "/keys", token, &Value::Null);
        assert_eq!(read(&self.live_token).status, 200, "{what}");
        assert_eq!(read(&self.ended_token).status, 401, "{what}");
        // The month, on both sides, and the days of overrides.
        self.gateway.get_domain("first.test", &self.key).expect(200);
        wait_until("the call is in the store", || {
            let usage = self.command(&["usage", "--json"]).expect(0).json();
            usage.as_array().unwrap().iter().any(|row| row["account"] == "acme")
        });
        let usage = self.command(&["usage", "--json"]).expect(0).json();
        assert_eq!(usage[0]["month"], "2031-04", "{what}");
        let usage = call_api(&self.gateway, "GET", "/usage", &self.live_token, &Value::Null);
        assert_eq!(usage.expect(200).json()["month"], "2031-04", "{what}");
        let verdict = self.gateway.get_domain("denied-for-now.com", &self.key).expect(200).json();
        assert_eq!(verdict["reason"], "disposable", "{what}");
        let lookup = self.command(&["table", "lookup", "denied-for-now.com"]).expect(0).stdout;
        assert!(lookup.contains("rule     override"), "{what}: {lookup}");
        let past = ["table", "deny", "other.com", "--until", "2031-04-09"];
        assert!(self.command(&past).expect(2).stderr.contains("until"), "{what}");
    }
}

fn try_all_steps(on_redis: bool, wrong: Wrong) {
    let mut trial = Trial::start(on_redis);
    let follows_wrong_clock = match wrong {
        Wrong::Gateway | Wrong::Machine => !on_redis,
        Wrong::Server => true,
        Wrong::Command => false,
    };
    for step in STEPS {
        let what = format!("{wrong:?}, {} days, Redis: {on_redis}", step / DAY);
        trial.step(wrong, step);
        if follows_wrong_clock {
            trial.wait_until_noticed(true);
        }
        trial.assert_nothing_happened(&what);
        trial.step(wrong, -step);
        if follows_wrong_clock {
            trial.wait_until_noticed(false);
        }
    }
    trial.assert_nothing_happened("all clocks are right again");
}

#[test]
fn on_sqlite_nothing_begins_ends_or_is_deleted_by_a_wrong_clock_of_the_gateway() {
    try_all_steps(false, Wrong::Gateway);
}

#[test]
fn on_sqlite_nothing_begins_ends_or_is_deleted_by_a_wrong_clock_of_a_command() {
    try_all_steps(false, Wrong::Command);
}

#[test]
fn on_sqlite_nothing_begins_ends_or_is_deleted_by_a_wrong_clock_of_the_machine() {
    try_all_steps(false, Wrong::Machine);
}

#[test]
fn on_redis_nothing_begins_ends_or_is_deleted_by_a_wrong_clock_of_the_machine() {
    try_all_steps(true, Wrong::Machine);
}

#[test]
fn on_redis_nothing_begins_ends_or_is_deleted_by_a_wrong_clock_of_a_command() {
    try_all_steps(true, Wrong::Command);
}

#[test]
fn on_redis_nothing_begins_ends_or_is_deleted_by_a_wrong_clock_of_the_server() {
    try_all_steps(true, Wrong::Server);
}

#[test]
fn a_gateway_that_starts_with_a_wrong_clock_goes_on_with_the_time_of_the_one_before() {
    for on_redis in [false, true] {
        let mut trial = Trial::start(on_redis);
        for step in STEPS {
            trial.step(Wrong::Machine, step);
            trial = Trial { gateway: trial.gateway.restart(), ..trial };
            trial.assert_nothing_happened(&format!("restart, {} days, {on_redis}", step / DAY));
            trial.step(Wrong::Machine, -step);
        }
    }
}

#[test]
fn a_command_that_knows_no_time_makes_nothing_that_depends_on_the_time() {
    let trial = Trial::start(false);
    let Trial { gateway, command_clock, .. } = trial;
    let setup = gateway.shut_down();
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(BINARY);
        command.args(words).arg("-c").arg(setup.write_config());
        run_command(command.envs(command_clock.environment_variables()))
    };
    let listed = run(&["keys", "list", "--json"]).expect(0).json();
    let id = listed[0]["id"].as_str().unwrap();
    forget_boot(&setup);
    for step in STEPS.into_iter().filter(|step| *step != 31 * DAY) {
        command_clock.step(step);
        for words in [
            &["keys", "create", "--account", "acme", "--expires", "1h"][..],
            &["keys", "rotate", id, "--overlap", "0s"],
            &["admin-token", "create", "--name", "new", "--expires", "1h"],
        ] {
            let refused = run(words).expect(1).stderr;
            assert!(refused.contains("clock: expected a clock that agrees"), "{step}: {refused}");
        }
        // What does not depend on the present time goes on.
        let until = ["keys", "create", "--account", "acme", "--expires", "2031-05-01T00:00:00Z"];
        run(&until).expect(0);
        run(&["accounts", "set", "acme", "--limit", &(step.abs() / DAY).to_string()]).expect(0);
        command_clock.step(-step);
    }
    for record in parse_lines(&run(&["audit", "--json", "--limit", "1000"]).expect(0)) {
        assert!(record["at"].as_str().unwrap().starts_with("2031-04-10T12:"), "{record}");
    }
    run(&["keys", "rotate", id, "--overlap", "0s"]).expect(0);
}

#[test]
fn commands_judge_the_days_of_overrides_by_the_believed_time() {
    let trial = Trial::start(false);
    let columns = "is_free_provider,is_corporate_email,mx_provider_label,note,until";
    let rows = format!(
        "domain,scope,reason,risk_score,{columns}\n\
         ended.com,subtree,disposable,100,,,,,2031-04-09\n"
    );
    std::fs::write(trial.gateway.path("overrides.csv"), rows).unwrap();
    for step in [731 * DAY, -10 * DAY] {
        trial.command_clock.step(step);
        let today = ["table", "deny", "ended.com", "--until", "2031-04-10"];
        trial.command(&today).expect(0);
        trial.command(&["table", "clear", "ended.com"]).expect(0);
        let past = ["table", "deny", "ended.com", "--until", "2031-04-09"];
        let refused = trial.command(&past).expect(2).stderr;
        assert!(refused.contains("expected today or a later day"), "{refused}");
        trial.command_clock.step(-step);
    }
}

#[test]
fn a_key_can_be_revoked_whatever_the_clocks_say() {
    let trial = Trial::start(false);
    let setup = trial.gateway.shut_down();
    forget_boot(&setup);
    trial.gateway_clock.step(731 * DAY);
    let listed = setup.cli(&["keys", "list", "--json"]).expect(0).json();
    for key in listed.as_array().unwrap() {
        setup.cli(&["keys", "revoke", key["id"].as_str().unwrap()]).expect(0);
    }
    trial.gateway_clock.step(-731 * DAY);
    let gateway = setup.start();
    gateway.get("/v1/usage", &trial.key).expect(401);
}
