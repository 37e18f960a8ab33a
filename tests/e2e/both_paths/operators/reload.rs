//! When a running gateway reloads, each component changes completely or not at all. riskgate
//! reports a refused change.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::harness::{Gateway, ListFolder, Setup, request, wait_until};

const LONGER_LIST: &str = "first.test\nsecond.test\nthird.test\n=exact.test\nmail.com\nnew.test\n";

pub fn start_gateway_without_limit() -> (Gateway, String) {
    let gateway = Setup::new().set("plans.free", "\"unlimited\"").start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

fn verdict_reason(gateway: &Gateway, key: &str, name: &str) -> String {
    let body = gateway.get_domain(name, key).expect(200).json();
    body["reason"].as_str().unwrap().to_owned()
}

fn is_flagged(gateway: &Gateway, key: &str, name: &str) -> bool {
    verdict_reason(gateway, key, name) == "disposable"
}

fn reload_count(gateway: &Gateway, part: &str, outcome: &str) -> f64 {
    let labels = [format!("part=\"{part}\""), format!("outcome=\"{outcome}\"")];
    gateway.sum_of_samples("riskgate_reloads_total", &[&labels[0], &labels[1]])
}

fn readyz_reports_no_fault(gateway: &Gateway) -> bool {
    gateway.readyz().json()["degraded"].as_array().unwrap().is_empty()
}

#[test]
fn a_list_written_in_place_is_picked_up() {
    let (gateway, key) = start_gateway_without_limit();
    let before = gateway.get_domain("new.test", &key).header("X-Table-Version").unwrap().to_owned();
    assert!(!is_flagged(&gateway, &key, "new.test"));
    gateway.lists().write("disposable.txt", LONGER_LIST);
    wait_until("the new row answers", || is_flagged(&gateway, &key, "new.test"));
    let answer = gateway.get_domain("new.test", &key);
    assert_ne!(answer.header("X-Table-Version"), Some(before.as_str()));
    wait_until("the reload is counted", || reload_count(&gateway, "table", "ok") >= 1.0);
}

#[test]
fn a_list_renamed_over_the_old_one_is_picked_up() {
    let (gateway, key) = start_gateway_without_limit();
    gateway.lists().replace_by_rename("disposable.txt", LONGER_LIST);
    wait_until("the new row answers", || is_flagged(&gateway, &key, "new.test"));
}

#[test]
fn a_kubernetes_style_symlink_swap_is_picked_up() {
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    let mount = setup.path("mount");
    let versioned = |name: &str| mount.join(name);
    ListFolder::create(versioned("..v1"));
    ListFolder::create(versioned("..v2")).write("disposable.txt", LONGER_LIST);
    symlink("..v1", mount.join("..data")).unwrap();
    for entry in std::fs::read_dir(versioned("..v1")).unwrap() {
        let name = entry.unwrap().file_name();
        symlink(format!("..data/{}", name.display()), mount.join(&name)).unwrap();
    }
    let gateway = setup.set_text("table.path", mount.to_str().unwrap()).start();
    let key = gateway.create_active_key("acme", &[]);
    assert!(!is_flagged(&gateway, &key, "new.test"));
    symlink("..v2", mount.join("..tmp")).unwrap();
    std::fs::rename(mount.join("..tmp"), mount.join("..data")).unwrap();
    wait_until("the new row answers", || is_flagged(&gateway, &key, "new.test"));
}

#[test]
fn a_compiled_table_replaced_by_another_is_picked_up() {
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    let (lists, built) = (setup.path("lists"), setup.path("built.table"));
    let build = |to: &std::path::Path| {
        let mut command = std::process::Command::new(crate::harness::BINARY);
        crate::harness::run_command(command.args(["table", "build"]).arg(&lists).arg("-o").arg(to))
            .expect(0)
    };
    build(&built);
    let gateway = setup.set_text("table.path", built.to_str().unwrap()).start();
    let key = gateway.create_active_key("acme", &[]);
    assert!(!is_flagged(&gateway, &key, "new.test"));
    gateway.lists().write("disposable.txt", LONGER_LIST);
    build(&built);
    wait_until("the new row answers", || is_flagged(&gateway, &key, "new.test"));
    std::fs::write(gateway.path("broken"), "no table at all").unwrap();
    std::fs::rename(gateway.path("broken"), &built).unwrap();
    wait_until("riskgate reports the broken file", || !readyz_reports_no_fault(&gateway));
    assert!(is_flagged(&gateway, &key, "new.test") && is_flagged(&gateway, &key, "first.test"));
}

#[test]
fn a_broken_list_is_reported_with_its_line_and_the_old_table_serves() {
    let (gateway, key) = start_gateway_without_limit();
    gateway.lists().write("disposable.txt", "first.test\nnew.test\nnot a name\n");
    wait_until("/readyz reports the fault", || {
        gateway.readyz().text().contains("disposable.txt:3: expected")
    });
    assert_eq!(gateway.readyz().status, 200, "the gateway still serves");
    assert!(!is_flagged(&gateway, &key, "new.test") && is_flagged(&gateway, &key, "second.test"));
    assert!(reload_count(&gateway, "table", "failed") >= 1.0);
    assert_eq!(gateway.sum_of_samples("riskgate_reload_failing", &["part=\"table\""]), 1.0);
    assert!(gateway.stderr().contains("disposable.txt:3"), "{}", gateway.stderr());
    // A broken table delays neither keys nor config.
    let other = gateway.create_active_key("other", &[]);
    gateway.get_domain("first.test", &other).expect(200);
    gateway.lists().write("disposable.txt", LONGER_LIST);
    wait_until("the mended table answers", || is_flagged(&gateway, &key, "new.test"));
    wait_until("/readyz reports no fault", || readyz_reports_no_fault(&gateway));
    assert_eq!(gateway.sum_of_samples("riskgate_reload_failing", &["part=\"table\""]), 0.0);
}

#[test]
fn if_the_table_folder_vanishes_the_old_table_serves() {
    let (gateway, key) = start_gateway_without_limit();
    let lists = gateway.lists().path;
    std::fs::rename(&lists, gateway.path("away")).unwrap();
    wait_until("riskgate reports the missing folder", || !readyz_reports_no_fault(&gateway));
    assert!(is_flagged(&gateway, &key, "first.test"));
    std::fs::rename(gateway.path("away"), &lists).unwrap();
    wait_until("/readyz reports no fault", || readyz_reports_no_fault(&gateway));
}

#[test]
fn a_table_that_flags_a_protected_name_is_refused() {
    let (gateway, key) = start_gateway_without_limit();
    let header = std::fs::read_to_string(gateway.lists().file_path("overrides.csv")).unwrap();
    gateway
        .lists()
        .write("overrides.csv", &format!("{header}gmail.com,subtree,disposable,100,,,\n"));
    wait_until("riskgate reports the refusal", || gateway.readyz().text().contains("gmail.com"));
    assert_eq!(verdict_reason(&gateway, &key, "gmail.com"), "safe");
    gateway.lists().write("overrides.csv", &header);
    wait_until("/readyz reports no fault", || readyz_reports_no_fault(&gateway));
}

#[test]
fn a_table_that_lost_most_of_its_rows_is_refused() {
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    let lists = setup.lists();
    let rows: String = (0..200).map(|at| format!("flagged{at:03}.test\n")).collect();
    lists.write("disposable.txt", &format!("{LONGER_LIST}{rows}"));
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let manifest = std::fs::read_to_string(lists.file_path("manifest.toml")).unwrap();
    lists.write("manifest.toml", &manifest.replace("= 1.0", "= 0.3"));
    lists.write("disposable.txt", LONGER_LIST);
    wait_until("riskgate reports the refusal", || !readyz_reports_no_fault(&gateway));
    assert!(is_flagged(&gateway, &key, "flagged007.test"));
    lists.write("disposable.txt", &format!("{LONGER_LIST}{rows}"));
    wait_until("/readyz reports no fault", || readyz_reports_no_fault(&gateway));
}

#[test]
fn a_changed_plan_takes_effect_without_a_restart() {
    let gateway = Setup::new().set("plans.free", "3").start();
    let key = gateway.create_active_key("acme", &[]);
    for _ in 0..3 {
        gateway.get_domain("first.test", &key).expect(200);
    }
    gateway.get_domain("first.test", &key).expect(429);
    gateway.edit_config(|text| text.replace("free = 3", "free = 50"));
    wait_until("the raised plan admits", || gateway.get_domain("first.test", &key).status == 200);
    // The ledger has the limit a moment before the key ring has the plan.
    wait_until("the usage has the raised limit", || {
        gateway.get("/v1/usage", &key).json()["monthly_limit"] == 50
    });
    gateway.edit_config(|text| text.replace("free = 50", "free = 2"));
    wait_until("the lowered plan refuses", || gateway.get_domain("first.test", &key).status == 429);
}

#[test]
fn a_broken_config_is_reported_and_the_old_config_stays() {
    let gateway = Setup::new().set("plans.free", "50").set("plans.all", "\"unlimited\"").start();
    let key = gateway.create_active_key("acme", &[]);
    let asker = gateway.create_active_key("asker", &["--plan", "all"]);
    gateway.edit_config(|text| text.replace("free = 50", "free = \"lots\""));
    wait_until("riskgate reports the fault", || {
        let text = gateway.readyz().text();
        text.contains("plans.free: expected") && text.contains("but found")
    });
    assert_eq!(gateway.get("/v1/usage", &key).json()["monthly_limit"], 50);
    assert!(reload_count(&gateway, "config", "failed") >= 1.0);
    // A broken config does not delay the table or the keys.
    gateway.lists().write("disposable.txt", LONGER_LIST);
    wait_until("the new row answers", || is_flagged(&gateway, &asker, "new.test"));
    gateway.edit_config(|text| text.replace("free = \"lots\"", "free = 60"));
    wait_until("the mended plan is in effect", || {
        gateway.get("/v1/usage", &key).json()["monthly_limit"] == 60
    });
    wait_until("/readyz reports no fault", || readyz_reports_no_fault(&gateway));
    wait_until("the log has both", || {
        let log = gateway.stderr();
        log.contains("info: config reloaded: plans.free 50 → 60")
            && log.contains("info: config: the fault has ended")
    });
}

#[test]
fn an_emptied_key_file_or_config_is_reported_and_the_last_good_one_stays() {
    let setup = Setup::new().set("plans.free", "50");
    let keys = setup.path("keys.toml");
    let hash = riskgate::keys::format_key_hash("a_key_that_a_file_declares");
    let declared = format!("[[key]]\nid = \"a\"\naccount = \"filed\"\nhash = \"{hash}\"\n");
    std::fs::write(&keys, &declared).unwrap();
    let gateway = setup.set_text("keys.file", keys.to_str().unwrap()).start();
    let limit = || {
        let answer = gateway.get("/v1/usage", "a_key_that_a_file_declares");
        answer.expect(200).json()["monthly_limit"].as_u64()
    };
    let is_reported = |words: &str| gateway.readyz().text().contains(words);
    std::fs::write(&keys, "").unwrap();
    wait_until("riskgate reports it", || {
        is_reported("keys.toml: expected keys, but found an empty file")
    });
    assert_eq!(limit(), Some(50));
    std::fs::write(&keys, "# None any more.\n").unwrap();
    let opens = || gateway.get("/v1/usage", "a_key_that_a_file_declares").status == 200;
    wait_until("the removal of the last key takes effect", || !opens());
    std::fs::write(&keys, &declared).unwrap();
    wait_until("it is back", opens);
    let config = std::fs::read_to_string(gateway.path("riskgate.toml")).unwrap();
    gateway.edit_config(|_| String::new());
    wait_until("riskgate reports it", || {
        is_reported("riskgate.toml: expected settings, but found an empty file")
    });
    assert_eq!(limit(), Some(50));
    gateway.edit_config(|_| config.replace("free = 50", "free = 60"));
    wait_until("the config is accepted again", || limit() == Some(60));
    wait_until("/readyz reports no fault", || readyz_reports_no_fault(&gateway));
}

#[test]
fn a_missing_config_in_the_default_place_is_reported_and_the_old_one_stays() {
    let setup = Setup::new().set("plans.free", "50");
    let (keys, usual) = (setup.path("keys.toml"), setup.path("site/conf/riskgate.toml"));
    let token = "a_key_that_a_file_declares";
    let hash = riskgate::keys::format_key_hash(token);
    std::fs::write(&keys, format!("[[key]]\nid = \"a\"\naccount = \"a\"\nhash = \"{hash}\"\n"))
        .unwrap();
    let folder = setup.path("site").display().to_string();
    let script =
        format!("mkdir -p {folder}/conf && cd {folder} && cp ../riskgate.toml conf && exec $0 run");
    let setup =
        setup.set_text("keys.file", keys.to_str().unwrap()).run_under(&["sh", "-c", &script]);
    let gateway = setup.start();
    let limit = || gateway.get("/v1/usage", token).expect(200).json()["monthly_limit"].as_u64();
    let config = std::fs::read_to_string(&usual).unwrap();
    let is_reported = |words: &str| gateway.readyz().text().contains(words);
    std::fs::remove_file(&usual).unwrap();
    wait_until("riskgate reports it", || {
        is_reported("riskgate.toml: expected a config file, but found")
    });
    assert_eq!(limit(), Some(50));
    std::fs::create_dir(&usual).unwrap();
    wait_until("riskgate reports the folder", || is_reported("but found a directory"));
    assert_eq!(limit(), Some(50));
    std::fs::remove_dir(&usual).unwrap();
    std::fs::write(&usual, "\n").unwrap();
    wait_until("riskgate reports the empty file", || {
        is_reported("expected settings, but found an empty file")
    });
    assert_eq!(limit(), Some(50));
    std::fs::write(&usual, config.replace("free = 50", "free = 60")).unwrap();
    wait_until("the config is accepted again", || limit() == Some(60));
}

#[test]
fn a_changed_setting_that_needs_a_restart_is_reported_and_not_applied() {
    let gateway = Setup::new().set("plans.free", "50").start();
    let key = gateway.create_active_key("acme", &[]);
    let needs_restart = || gateway.get_admin_page("/status").json()["needs_restart"].clone();
    gateway.edit_config(|text| text.replace("[listen]", "[listen]\nmax_target_bytes = 64"));
    wait_until("riskgate reports the change", || needs_restart() != json!([]));
    assert_eq!(needs_restart(), json!(["listen.max_target_bytes"]));
    gateway.edit_config(|text| text.replace("[upstream]", "[upstream]\neject_for = \"7s\""));
    wait_until("riskgate reports both", || {
        needs_restart() == json!(["listen.max_target_bytes", "upstream.eject_for"])
    });
    gateway.edit_config(|text| text.replace("eject_for = \"7s\"", "eject_for = \"2s\""));
    wait_until("the default is no change", || {
        needs_restart() == json!(["listen.max_target_bytes"])
    });
    gateway.get_domain(&format!("{}.com", "a".repeat(60)), &key).expect(200);
}

#[test]
fn sighup_and_post_reload_reload_config_table_and_keys() {
    let (gateway, key) = start_gateway_without_limit();
    gateway.send_signal("HUP");
    wait_until("everything was read again", || {
        ["config", "table", "keys"].iter().all(|part| reload_count(&gateway, part, "ok") >= 1.0)
    });
    let post = || request("POST", "/reload").with_header("Host", "localhost").send(gateway.admin);
    let parts = post().expect(200).json();
    for part in ["config", "keys", "table"] {
        assert_eq!(parts[part], "ok", "{parts}");
    }
    gateway.lists().write("disposable.txt", LONGER_LIST);
    post().expect(200);
    // No wait is needed: the response to the POST comes when the new table serves.
    assert!(is_flagged(&gateway, &key, "new.test"));
    gateway.lists().write("disposable.txt", "no name\n");
    let broken = post();
    assert!(broken.status >= 400, "{}", broken.text());
    assert!(broken.json()["table"].as_str().unwrap().contains("disposable.txt:1"));
    assert_eq!(broken.json()["config"], "ok");
}
