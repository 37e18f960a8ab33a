use super::*;

#[test]
fn the_delay_doubles_from_a_second_to_an_hour() {
    let delays: Vec<i64> = (0..=14).map(|failed| retry_delay_seconds(failed, 0)).collect();
    assert_eq!(
        delays,
        [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600],
        "in seconds"
    );
    assert_eq!(retry_delay_seconds(u32::MAX, 0), 3600);
}

#[test]
fn at_most_a_quarter_is_added_at_random() {
    for random in [0, 1, 7, 900, 901, u64::MAX] {
        assert!((3600..=4500).contains(&retry_delay_seconds(99, random)), "{random}");
        assert!((1..=2).contains(&retry_delay_seconds(1, random)), "{random}");
    }
    assert_eq!(retry_delay_seconds(1, 1), 2, "many nodes that failed together are apart at once");
    assert_eq!(retry_delay_seconds(99, 900), 4500);
}
