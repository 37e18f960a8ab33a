use super::*;

fn error(text: &str) -> Value {
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap()
}

#[test]
fn an_error_in_a_script_of_redis_6_2_has_the_code_that_later_versions_send() {
    let cases = [
        (": WRONGTYPE Operation against a key", "WRONGTYPE Operation against a key"),
        (": @user_script: 7: -OOM command not allowed", "OOM command not allowed"),
        (": @user_script: 7: -READONLY You can't write", "READONLY You can't write"),
        (": @user_script: 7: Unknown Redis command", "ERR Unknown Redis command"),
        (": @user_script: 7: The user can't run it", "ERR The user can't run it"),
        (": user_script:7: attempt to index a nil", "ERR user_script:7: attempt to index a nil"),
    ];
    for (found, expected) in cases {
        let found = format!("ERR Error running script (call to f_9d94): @user_script:7{found}");
        assert_eq!(unwrap_script_error(error(&found)), error(expected), "{found}");
    }
    let read_only = unwrap_script_error(error(
        "ERR Error running script (call to f_9d94): @user_script:7: @user_script: 7: -READONLY no",
    ));
    assert_eq!(error_kind(&read_only), Some(ServerErrorKind::ReadOnly));
}

#[test]
fn other_replies_stay_as_they_are() {
    for text in [
        "ERR unknown command",
        "WRONGTYPE Operation script: 9d94, on @user_script:7.",
        "DAMAGED ERR Error running script (call to f_9d94): @user_script:7: OOM no",
        "ERR Error running script (call to f_9d94)",
    ] {
        assert_eq!(unwrap_script_error(error(text)), error(text), "{text}");
    }
    assert_eq!(unwrap_script_error(Value::Int(7)), Value::Int(7));
}
