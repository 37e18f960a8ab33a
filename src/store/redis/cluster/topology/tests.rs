use super::*;

/// A reply to CLUSTER SLOTS with these slots and addresses.
fn slots(ranges: &[(i64, i64, &str, i64)]) -> Value {
    let range = |(first, last, host, port): &(i64, i64, &str, i64)| {
        let host = Value::BulkString(host.as_bytes().to_vec());
        let id = Value::BulkString(b"id".to_vec());
        let server = Value::Array(vec![host, Value::Int(*port), id]);
        Value::Array(vec![Value::Int(*first), Value::Int(*last), server.clone(), server])
    };
    Value::Array(ranges.iter().map(range).collect())
}

#[test]
fn every_slot_has_the_primary_that_the_cluster_names() {
    let reply = slots(&[(8_192, 16_383, "::1", 2), (0, 5_000, "b", 1), (5_001, 8_191, "", 3)]);
    let read = parse_slots(reply, "a.test:7").unwrap();
    assert_eq!(read.hosts, ["[::1]:2", "a.test:3", "b:1"]);
    let owner = |slot| read.owners[&Slot::new(slot).unwrap()];
    let owners = [0, 5_000, 5_001, 8_191, 8_192, 16_383].map(owner);
    assert_eq!(owners, [2, 2, 1, 1, 0, 0]);
}

#[test]
fn slots_without_a_known_owner_are_told() {
    for (reply, expected) in [
        (slots(&[(0, 99, "a", 1), (101, 16_383, "a", 1)]), "slot 100 has no owner"),
        (slots(&[]), "slot 0 has no owner"),
        (slots(&[(0, 16_383, "?", 1)]), "no address of the primary that has the slots 0 to"),
        (Value::Int(1), "a reply of another form to CLUSTER SLOTS"),
    ] {
        let fault = parse_slots(reply, "a:7").unwrap_err();
        assert!(fault.starts_with(expected), "{fault}");
    }
}
