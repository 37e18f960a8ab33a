use super::*;

#[test]
fn a_rate_is_a_number_and_a_time() {
    let rate = |requests, seconds| Rate::new(requests, Duration::from_secs(seconds));
    assert_eq!(parse_rate("20/h"), rate(20, 3_600));
    assert_eq!(parse_rate("5/s"), rate(5, 1));
    assert_eq!(parse_rate("100/10m"), rate(100, 600));
    assert_eq!(parse_rate("1/31d"), rate(1, 31 * 86_400));
    for text in [
        "",
        "20",
        "20/",
        "/h",
        "0/h",
        "-1/h",
        "+1/h",
        "1.5/h",
        "20/0",
        "20/h/h",
        "20 / h",
        "20/32d",
        "1000001/s",
        "20/hour",
        "2e1/h",
    ] {
        assert_eq!(parse_rate(text), None, "{text}");
    }
}
