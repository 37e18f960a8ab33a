use super::*;

#[test]
fn the_store_deletes_exactly_the_facts_that_have_ended() {
    let now = 1_790_000_000;
    let latest = latest_useless_expiry(now);
    assert!(!is_before_stale_limit(latest, now) && is_before_stale_limit(latest + 1, now));
}
