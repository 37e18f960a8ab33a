//! `riskgate config`: each setting in force, and the place that it is from.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{BINARY, CommandOutput, run_command};

fn run_config(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let mut command = Command::new(BINARY);
    command.arg("config").args(words).current_dir(folder).env_remove("RISKGATE_CONFIG");
    run_command(command.envs(variables.iter().copied()))
}

const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The value in TOML, and the source, of a setting in force.
fn find_setting(shown: &Value, key: &str) -> (String, String) {
    let settings = shown.as_array().unwrap();
    let found = settings.iter().find(|setting| setting["key"] == key);
    let found = found.unwrap_or_else(|| panic!("{key} is not shown"));
    let text = |member: &str| found[member].as_str().unwrap_or_default().to_owned();
    (text("value"), text("source"))
}

/// The settings of a schema that are in no array of tables, with dotted keys.
fn list_settings(schema: &Value, prefix: &str, out: &mut Vec<(String, Value)>) {
    for (name, member) in schema["properties"].as_object().unwrap() {
        let key = format!("{prefix}{name}");
        match member.get("properties") {
            Some(_) => list_settings(member, &format!("{key}."), out),
            None if member["items"].get("properties").is_some() => {}
            None => out.push((key, member.clone())),
        }
    }
}

/// A valid value other than the default, as the environment and as the file have it.
fn other_value(key: &str, schema: &Value) -> (String, String) {
    let quoted = |text: &str| (text.to_owned(), json!(text).to_string());
    let plain = |value: Value| (value.to_string(), value.to_string());
    let texts = [
        ("listen.http", "127.0.0.1:1111"),
        ("listen.admin", "127.0.0.1:2222"),
        ("listen.https", "127.0.0.1:3333"),
        ("admin.token", "a-token-of-more-than-16-characters"),
        ("authz.path", "/ask"),
        // A readable file of more than 32 bytes, which every system has.
        ("inbox.secret_file", "/etc/passwd"),
        ("keys.header", "x-key"),
        ("keys.max_per_client", "5/m"),
        ("keys.prefix", "xx_"),
        ("log.level", "debug"),
        ("store.url", "redis://127.0.0.1:1/0"),
        ("traces.endpoint", "http://127.0.0.1:4318"),
        ("upstream.health_path", "/up"),
        ("upstream.tls_name", "name.test"),
        ("upstream.host", "host.test"),
        ("webhook.secret", WEBHOOK_SECRET),
        ("webhook.previous_secret", WEBHOOK_SECRET),
        ("webhook.url", "https://hooks.test"),
    ];
    let lists = [
        ("authz.block_reasons", "disposable"),
        ("authz.check", "key"),
        ("authz.email", "query:email"),
        ("decide.block_reasons", "disposable"),
        ("dns.resolvers", "127.0.0.1"),
        ("log.fields", "status"),
        ("listen.trusted_proxies", "10.0.0.0/8"),
        ("upstream.resolvers", "127.0.0.2"),
        ("upstream.servers", "other.test:80"),
    ];
    if let Some((_, text)) = texts.iter().find(|(known, _)| *known == key) {
        return quoted(text);
    }
    if let Some((_, text)) = lists.iter().find(|(known, _)| *known == key) {
        return ((*text).to_owned(), json!([text]).to_string());
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return quoted(choices.last().unwrap().as_str().unwrap());
    }
    match schema["type"].as_str() {
        Some("array") if schema["items"]["type"] == "integer" => {
            ("7,8".to_owned(), "[7, 8]".into())
        }
        Some("boolean") => plain(json!(!schema["default"].as_bool().unwrap())),
        Some("integer") => plain(match schema["default"] == schema["minimum"] {
            true => schema["maximum"].clone(),
            false => schema["minimum"].clone(),
        }),
        Some("string") if schema.get("pattern").is_some() => quoted("77s"),
        Some("string") => quoted("some/other.path"),
        _ => plain(json!(77)),
    }
}

/// The rest of a config in which the other value of a setting is valid.
fn settings_beside(key: &str) -> &'static [(&'static str, &'static str)] {
    match key {
        "listen.client_address" | "listen.proxy_protocol" => {
            &[("RISKGATE__LISTEN__TRUSTED_PROXIES", "10.0.0.1")]
        }
        "authz.path" => &[("RISKGATE__AUTHZ__EMAIL", "query:email")],
        "plans.shipped" => &[("RISKGATE__PLANS__FREE", "5")],
        "upstream.tls" => &[("RISKGATE__UPSTREAM__TLS_NAME", "name.test")],
        "listen.https" => &[],
        "webhook.url" => &[("RISKGATE__WEBHOOK__SECRET", WEBHOOK_SECRET)],
        "store.tls_ca" => &[("RISKGATE__STORE__URL", "rediss://127.0.0.1:1")],
        "store.tls_certificate" => &[
            ("RISKGATE__STORE__URL", "rediss://127.0.0.1:1"),
            ("RISKGATE__STORE__TLS_KEY", "key.pem"),
        ],
        "store.tls_key" => &[
            ("RISKGATE__STORE__URL", "rediss://127.0.0.1:1"),
            ("RISKGATE__STORE__TLS_CERTIFICATE", "chain.pem"),
        ],
        "rates.shared" => &[("RISKGATE__STORE__URL", "redis://127.0.0.1:1")],
        "store.sentinel_user" => &[
            ("RISKGATE__STORE__URL", "redis+sentinel://127.0.0.1/main"),
            ("RISKGATE__STORE__SENTINEL_PASSWORD_FILE", "password"),
        ],
        "store.sentinel_password_file" => {
            &[("RISKGATE__STORE__URL", "redis+sentinel://127.0.0.1/main")]
        }
        _ => &[],
    }
}

#[test]
fn each_setting_of_file_and_environment_is_shown_with_its_source() {
    let folder = TempDir::new().unwrap();
    let mut settings = Vec::new();
    list_settings(&run_config(folder.path(), &["schema"], &[]).expect(0).json(), "", &mut settings);
    assert!(settings.len() > 70, "{}", settings.len());
    for (key, schema) in settings {
        // A certificate would be needed, and the files would have to exist.
        if ["listen.https", "listen.redirect"].contains(&key.as_str())
            || ["admin.token_file", "store.url_file"].contains(&key.as_str())
            || ["webhook.secret_file", "webhook.previous_secret_file"].contains(&key.as_str())
            || ["traces.tls_ca", "webhook.tls_ca"].contains(&key.as_str())
        {
            continue;
        }
        let (in_environment, in_file) = other_value(&key, &schema);
        let is_secret =
            ["admin.token", "webhook.secret", "webhook.previous_secret"].contains(&key.as_str());
        let shown_as = if is_secret { "\"…\"".to_owned() } else { in_file.clone() };
        let words = ["show", "--json", "-c", "given.toml"];
        std::fs::write(folder.path().join("given.toml"), "[log]\n").unwrap();
        let variable = format!("RISKGATE__{}", key.replace('.', "__").to_ascii_uppercase());
        let mut variables = settings_beside(&key).to_vec();
        variables.push((&variable, &in_environment));
        let shown = run_config(folder.path(), &words, &variables).expect(0).json();
        assert_eq!(find_setting(&shown, &key), (shown_as.clone(), variable.clone()));
        let toml = format!("{key} = {in_file}\n");
        std::fs::write(folder.path().join("given.toml"), toml).unwrap();
        let shown = run_config(folder.path(), &words, settings_beside(&key)).expect(0).json();
        assert_eq!(find_setting(&shown, &key), (shown_as, "given.toml:1".to_owned()));
    }
}

#[test]
fn flags_override_the_environment_and_what_is_shown_is_a_config() {
    let folder = TempDir::new().unwrap();
    let routes = "[[upstream.route]]\nprefix = \"/signup\"\nmethods = [\"POST\"]\n\
                  [upstream.route.screen]\nfields = [\"email\"]\n\
                  [[upstream.route]]\nprefix = \"/other\"\n\
                  [plans]\nmine = \"unlimited\"\n";
    std::fs::write(folder.path().join("given.toml"), routes).unwrap();
    let flags = ["--listen", "127.0.0.1:1", "--admin", "127.0.0.1:2", "--upstream", "a.test:3"];
    let words = [&["show", "--json", "-c", "given.toml"][..], &flags].concat();
    let variables = [("RISKGATE__LISTEN__HTTP", "127.0.0.1:9")];
    let shown = run_config(folder.path(), &words, &variables).expect(0).json();
    let from_flag = |value: &str| (value.to_owned(), "command line".to_owned());
    assert_eq!(find_setting(&shown, "listen.http"), from_flag("\"127.0.0.1:1\""));
    assert_eq!(find_setting(&shown, "listen.admin"), from_flag("\"127.0.0.1:2\""));
    assert_eq!(find_setting(&shown, "upstream.servers"), from_flag("[\"a.test:3\"]"));
    assert_eq!(find_setting(&shown, "plans.pro"), ("10000".to_owned(), "default".to_owned()));
    assert_eq!(find_setting(&shown, "upstream.route.1.methods").1, "default");
    let first = run_config(folder.path(), &["show", "-c", "given.toml"], &[]).expect(0).stdout;
    std::fs::write(folder.path().join("again.toml"), &first).unwrap();
    let again = run_config(folder.path(), &["show", "-c", "again.toml"], &[]).expect(0).stdout;
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(values(&first), values(&again));
    assert!(first.contains("[[upstream.route]]\n") && first.contains("[upstream.route.screen]"));
}

#[test]
fn the_file_is_looked_for_and_relative_paths_start_at_it() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("etc/conf")).unwrap();
    std::fs::create_dir_all(path("conf")).unwrap();
    std::fs::write(path("etc/named.toml"), "log.path = \"a.log\"\nadmin.token_file = \"token\"\n")
        .unwrap();
    std::fs::write(path("etc/token"), "a-token-of-a-file-1\n").unwrap();
    let source = |words: &[&str], variables: &[(&str, &str)], key: &str| {
        find_setting(&run_config(folder.path(), words, variables).expect(0).json(), key).1
    };
    let show = ["show", "--json"];
    assert_eq!(source(&show, &[], "log.path"), "default");
    std::fs::write(path("conf/riskgate.toml"), "\nlog.path = \"b.log\"\n").unwrap();
    assert_eq!(source(&show, &[], "log.path"), "conf/riskgate.toml:2");
    let named = [("RISKGATE_CONFIG", "etc/named.toml")];
    assert_eq!(source(&show, &named, "log.path"), "etc/named.toml:1");
    assert_eq!(source(&show, &named, "admin.token"), "etc/token");
    let other = ["show", "--json", "-c", "conf/riskgate.toml"];
    assert_eq!(source(&other, &named, "log.path"), "conf/riskgate.toml:2");
    let missing = run_config(folder.path(), &["show"], &[("RISKGATE_CONFIG", "none.toml")]);
    assert!(missing.expect(78).stderr.contains("none.toml: expected a config file"));
}

#[test]
fn a_default_config_file_that_cannot_be_reached_is_an_error() {
    let folder = TempDir::new().unwrap();
    // A link to itself: like a directory without permission, it hides whether the file exists.
    std::os::unix::fs::symlink("conf", folder.path().join("conf")).unwrap();
    let shown = run_config(folder.path(), &["show"], &[]).expect(78);
    assert!(shown.stderr.contains("conf/riskgate.toml: "), "{}", shown.stderr);
}

#[test]
fn a_secret_is_in_one_place_and_its_file_is_readable() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("url"), "redis://user:pass-word@127.0.0.1:1\n").unwrap();
    let show = |toml: &str, variables: &[(&str, &str)]| {
        std::fs::write(folder.path().join("given.toml"), toml).unwrap();
        run_config(folder.path(), &["show", "-c", "given.toml"], variables)
    };
    let shown = show("store.url_file = \"url\"\n", &[]).expect(0).stdout;
    assert!(shown.contains("\nurl = \"redis://127.0.0.1:1\"  # url\n"), "{shown}");
    assert!(!shown.contains("pass-word"), "{shown}");
    let both = [("RISKGATE__STORE__URL", "sqlite:x.db")];
    let refused = show("store.url_file = \"url\"\n", &both).expect(78).stderr;
    assert!(refused.contains("given.toml:1:7: store.url_file: expected no store.url beside it"));
    let refused = show("admin.token_file = \"/none/token\"\n", &[]).expect(78).stderr;
    let expected = "given.toml:1:7: admin.token_file: expected a readable file /none/token";
    assert!(refused.contains(expected));
}

#[test]
fn the_config_of_the_package_names_the_runtime_dir_of_its_service() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unit = std::fs::read_to_string(project.join("conf/systemd/riskgate@.service")).unwrap();
    let folder = unit.lines().find_map(|line| line.strip_prefix("RuntimeDirectory=")).unwrap();
    let config = project.join("packaging/riskgate.toml");
    let words = ["show", "--json", "-c", config.to_str().unwrap()];
    let shown = run_config(project, &words, &[]).expect(0).json();
    let (value, _) = find_setting(&shown, "process.runtime_dir");
    assert_eq!(value, format!("\"/run/{folder}\""));
}
