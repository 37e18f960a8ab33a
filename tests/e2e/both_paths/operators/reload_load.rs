//! Reloads while clients send requests: responses stay correct, and reloads leak no resources.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::both_paths::operators::reload::start_gateway_without_limit;
use crate::harness::{CertificateAuthority, Gateway, SetOnDrop, Setup, get, request, wait_until};

#[test]
fn every_response_comes_from_one_table_while_tables_change() {
    let (gateway, key) = start_gateway_without_limit();
    let lists = gateway.lists();
    // Between the two tables, reason, score and label of swap.test differ together.
    let header = std::fs::read_to_string(lists.file_path("overrides.csv")).unwrap();
    let one = format!("{header}swap.test,exact,disposable,11,true,false,One\n");
    let two = format!("{header}swap.test,exact,role_account,22,false,true,Two\n");
    let bodies = [
        r#"{"domain":"swap.test","risk_score":11,"reason":"disposable","is_free_provider":true,"is_corporate_email":false,"mx_provider_label":"One"}"#,
        r#"{"domain":"swap.test","risk_score":22,"reason":"role_account","is_free_provider":false,"is_corporate_email":true,"mx_provider_label":"Two"}"#,
    ];
    lists.write("overrides.csv", &one);
    wait_until("the first table serves", || {
        gateway.get_domain("swap.test", &key).text() == bodies[0]
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let (gateway, key, done) = (&gateway, &key, &done);
                scope.spawn(move || {
                    let mut connection = gateway.connect();
                    let mut versions = std::collections::HashMap::new();
                    while !done.load(Ordering::Relaxed) {
                        let ask = get("/v1/public/domain/swap.test").key(key);
                        let answer = connection.send_request(&ask).expect(200);
                        let text = answer.text();
                        assert!(bodies.contains(&text.as_str()), "{text}");
                        let version = answer.header("X-Table-Version").unwrap().to_owned();
                        let first_text = versions.entry(version).or_insert_with(|| text.clone());
                        assert_eq!(*first_text, text, "one table version gives one response");
                    }
                    versions.len()
                })
            })
            .collect();
        let ended = SetOnDrop(&done);
        for (text, body) in [(&two, bodies[1]), (&one, bodies[0]), (&two, bodies[1])] {
            lists.write("overrides.csv", text);
            wait_until("the other table serves", || {
                gateway.get_domain("swap.test", &key).text() == body
            });
            let post = request("POST", "/reload").with_header("Host", "localhost");
            post.send(gateway.admin).expect(200);
        }
        drop(ended);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), 2, "each reader saw both tables and no third");
        }
    });
}

/// Writes and reads one large table after another until `done`. `reads` is odd during a read.
fn read_large_tables(gateway: &Gateway, names: &str, reads: &AtomicU64, done: &AtomicBool) {
    for round in 0.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        gateway.lists().write("disposable.txt", &format!("{names}another-{round}.test\n"));
        reads.fetch_add(1, Ordering::SeqCst);
        request("POST", "/reload").with_header("Host", "localhost").send(gateway.admin).expect(200);
        reads.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_key_is_revoked_while_a_large_table_is_read() {
    let names: String = (0..200_000).map(|number| format!("n{number}.test\n")).collect();
    let setup = Setup::new().set("plans.free", "\"unlimited\"");
    setup.lists().write("disposable.txt", &names);
    let gateway = &setup.start();
    let (reads, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ended = SetOnDrop(&done);
        scope.spawn(|| read_large_tables(gateway, &names, &reads, &done));
        // One read may end just after the command did; then the test tries again.
        let is_revoked_within_one_read = (0..20).any(|_| {
            let (revoked, id) = gateway.create_active_key_with_id("acme", &[]);
            gateway.cli(&["keys", "revoke", &id]).expect(0);
            let read = reads.load(Ordering::SeqCst);
            wait_until("it is revoked", || {
                gateway.get_domain("first.test", &revoked).status == 401
            });
            read % 2 == 1 && reads.load(Ordering::SeqCst) == read
        });
        drop(ended);
        assert!(is_revoked_within_one_read, "each key was accepted until the table was read");
    });
}

/// Repeated changes of routes, keys, certificates and tables must not leak resources.
#[test]
fn reloads_leak_no_descriptors_threads_or_memory() {
    let method = "M".repeat(320);
    let routes = |round: usize| -> String {
        let route = |at| {
            format!("[[upstream.route]]\nprefix = \"/r{round}/{at}\"\nmethods = [\"{method}\"]\n")
        };
        (0..100).map(route).collect()
    };
    let setup = Setup::new();
    let authority = CertificateAuthority::new(&setup.path(""));
    let setup = setup.with_certificates(&[authority.issue_certificate("one", "DNS:gate.test")]);
    let gateway = setup.append_toml(&routes(0)).start();
    let reload = |round: usize| {
        gateway.edit_config(|toml| {
            let begin = toml.find("[[upstream.route]]").unwrap();
            toml[..begin].to_owned() + &routes(round)
        });
        request("POST", "/reload").with_header("Host", "localhost").send(gateway.admin).expect(200);
    };
    (1..=20).for_each(reload);
    let (descriptors, threads) = (gateway.open_descriptor_count(), gateway.thread_count());
    let memory = gateway.resident_memory_kib();
    (21..=120).for_each(reload);
    wait_until("descriptors are closed", || gateway.open_descriptor_count() <= descriptors);
    // Tokio keeps threads for blocking work for a while.
    assert!(
        gateway.thread_count() < threads + 8,
        "{} threads, before {threads}",
        gateway.thread_count()
    );
    // The names of the methods alone would take 3 MB if they leaked.
    let most = memory + 2048;
    wait_until("the memory is freed", || gateway.resident_memory_kib() < most);
}
