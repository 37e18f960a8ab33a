//! The settings of webhooks: allowed addresses, secrets, reload; and the example of the document.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::receiver::{Receiver, SECRET};
use super::{QUIET_TIME, setup, setup_for_url, spend_calls, wait_until_accepted, webhook_status};
use crate::harness::{Setup, wait_for, wait_until};

#[test]
fn addresses_that_are_not_public_are_refused_unless_allowed() {
    let receiver = Receiver::start();
    let refused = setup_for_url(&receiver.url()).cli(&["check"]).expect(78).stderr;
    assert!(refused.contains("webhook.url: expected https://…"), "{refused}");
    for url in ["https://127.0.0.1/s3cr3t", "https://[::ffff:10.0.0.1]/", "https://localhost/"] {
        let refused = setup_for_url(url).cli(&["check"]).expect(78).stderr;
        assert!(refused.contains("webhook.url: expected a public address"), "{refused}");
        assert!(!refused.contains("s3cr3t"), "{refused}");
    }
    // The config can't know what these numbers are; the system resolves them to 127.0.0.1.
    let port = receiver.url().split(':').nth(2).unwrap()[..5].trim_end_matches('/').to_owned();
    for host in ["2130706433", "0x7f.1"] {
        let gateway = setup_for_url(&format!("https://{host}:{port}/x")).start();
        let key = gateway.create_active_key("acme", &[]);
        spend_calls(&gateway, &key, 8);
        let error = wait_for("it is refused", || {
            webhook_status(&gateway)["last_error"].as_str().map(str::to_owned)
        });
        assert!(error.contains("no public address of the receiver"), "{error}");
    }
    assert!(receiver.messages().is_empty());
}

#[test]
fn no_output_shows_the_secret_or_the_path_of_the_receiver() {
    let receiver = Receiver::start();
    receiver.react_with_status(&[500, 410]);
    let gateway = setup(&receiver).start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 8);
    wait_until("it is given up", || webhook_status(&gateway)["given_up"] == 1);
    let shown = gateway.cli(&["config", "show"]).expect(0).stdout;
    assert!(shown.contains("secret = \"…\""), "{shown}");
    let secret_part = &SECRET[8..24];
    for (source, text) in [
        ("config show", shown),
        ("/status", gateway.get_admin_page("/status").text()),
        ("/", gateway.get_admin_page("/").text()),
        ("/readyz", gateway.readyz().text()),
        ("the log", gateway.stderr()),
    ] {
        for secret in ["s3cr3t", secret_part] {
            assert!(!text.contains(secret), "{source}: {text}");
        }
    }
    assert_eq!(webhook_status(&gateway)["url"].as_str().unwrap().matches('…').count(), 1);
}

#[test]
fn a_reload_switches_webhooks_on_and_off_and_changes_the_receiver() {
    let (first, second) = (Receiver::start(), Receiver::start());
    let gateway = Setup::new().set("plans.free", "10").start();
    assert_eq!(webhook_status(&gateway), Value::Null);
    let keys = ["a", "b", "c"].map(|name| gateway.create_active_key(name, &[]));
    let section = |receiver: &Receiver| {
        let url = receiver.url();
        format!("[webhook]\nurl = \"{url}\"\nsecret = \"{SECRET}\"\nallow_private = true\n")
    };
    gateway.edit_config(|config| config + &section(&first));
    spend_calls(&gateway, &keys[0], 8);
    wait_until_accepted(&first, &["a 80 of 10"]);
    gateway.edit_config(|config| config.replace(&first.url(), &second.url()));
    wait_until("the other receiver is in force", || {
        let port = second.url()[..22].trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned();
        webhook_status(&gateway)["url"].as_str().unwrap().starts_with(&port)
    });
    spend_calls(&gateway, &keys[1], 8);
    wait_until_accepted(&second, &["b 80 of 10"]);
    gateway.edit_config(|config| config.replace(&section(&second), ""));
    wait_until("webhooks are off", || webhook_status(&gateway) == Value::Null);
    spend_calls(&gateway, &keys[2], 8);
    std::thread::sleep(QUIET_TIME);
    assert_eq!((first.messages().len(), second.messages().len()), (1, 1));
}

#[test]
fn the_example_in_the_document_verifies_a_message() {
    let receiver = Receiver::start();
    let gateway = setup(&receiver).start();
    let key = gateway.create_active_key("acme", &[]);
    spend_calls(&gateway, &key, 8);
    wait_until_accepted(&receiver, &["acme 80 of 10"]);
    let message = receiver.messages().remove(0);
    let document = std::fs::read_to_string("docs/webhooks.md").unwrap();
    let example = document.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let verify = |body: &str, timestamp: &str| {
        let fields = serde_json::json!({
            "webhook-id": message.id, "webhook-timestamp": timestamp,
            "webhook-signature": format!("v1,AAAA {}", message.signature),
        });
        let call = format!(
            "\nimport json, sys\nfields = json.loads({:?})\n\
             sys.exit(0 if is_authentic({SECRET:?}, fields, sys.stdin.buffer.read()) else 3)\n",
            fields.to_string()
        );
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{example}{call}")]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        child.wait().unwrap().code()
    };
    assert_eq!(verify(&message.body, &message.timestamp), Some(0));
    assert_eq!(verify(&message.body.replace("acme", "evil"), &message.timestamp), Some(3));
    let old = (message.timestamp.parse::<i64>().unwrap() - 600).to_string();
    assert_eq!(verify(&message.body, &old), Some(3));
}
