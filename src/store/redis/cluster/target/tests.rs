use super::*;

#[test]
fn each_command_goes_to_the_slot_of_its_key() {
    let mut commands = redis::pipe();
    commands.cmd("HGET").arg("riskgate:{ring}:meta").arg("x");
    commands.cmd("EVALSHA").arg("digest").arg(2).arg("a{acme}").arg("b{acme}").arg("value");
    commands.cmd("HGET").arg("c{other}").arg("x").cmd("TIME").cmd("WAIT").arg(1).arg(50);
    let found: Vec<Target> = commands.cmd_iter().map(find_target).collect();
    let slot = |tag: &str| Target::Slot(Slot::for_key(tag));
    assert_eq!(
        found,
        [slot("ring"), slot("acme"), slot("other"), Target::Ring, Target::ServersOfOthers]
    );
}

#[test]
fn a_redirection_names_slot_and_server() {
    let read = |bytes: &str| redis::parse_redis_value(bytes.as_bytes()).unwrap();
    for (reply, slot, host, is_asking) in [
        ("-MOVED 3999 127.0.0.1:6381\r\n", 3999, "127.0.0.1:6381", false),
        ("-ASK 1 cache-1.internal:7000\r\n", 1, "cache-1.internal:7000", true),
        ("-MOVED 7 ::1:6381\r\n", 7, "[::1]:6381", false),
        ("-MOVED 7 :6381\r\n", 7, ":6381", false),
    ] {
        let host = host.to_owned();
        let expected = Redirection { slot, host, is_asking };
        assert_eq!(parse_redirection(&read(reply)), Some(expected), "{reply}");
    }
    for reply in ["-MOVED x\r\n", "-ERR MOVED 1 a:1\r\n", "+MOVED 1 a:1\r\n"] {
        assert_eq!(parse_redirection(&read(reply)), None, "{reply}");
    }
    assert!(must_try_again(&read("-TRYAGAIN Multiple keys request during rehashing\r\n")));
}

#[test]
fn the_fewest_replicas_of_a_server_count() {
    let merge = |replies: &[i64]| merge_wait_replies(replies.iter().map(|it| Value::Int(*it)));
    assert_eq!(merge(&[2, 0, 1]), Value::Int(0));
    assert_eq!(merge(&[2]), Value::Int(2));
    assert_eq!(merge(&[]), Value::Int(0));
}
