use super::*;

#[test]
fn a_reply_with_a_flipped_bit_is_rejected() {
    let reply = b"*6\r\n:64\r\n:1000\r\n:930\r\n:77\r\n:0\r\n:12412\r\n";
    let read = |sequence, bytes: &[u8]| {
        redis::parse_redis_value(bytes).ok().and_then(|value| parse_grant(sequence, value))
    };
    let intact = read(17, reply);
    assert_eq!(intact.map(|grant| grant.own_leased), Some(64));
    assert_eq!(read(18, reply), None, "the answer to another report");
    for (at, bit) in (0..reply.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut corrupted = reply.to_vec();
        corrupted[at] ^= 1 << bit;
        let parsed = read(17, &corrupted);
        assert!(parsed.is_none() || parsed == intact, "{at} {bit}: {parsed:?}");
    }
}
