use super::*;
use crate::store::finding::FindingLevel;

#[test]
fn an_answer_that_takes_half_of_the_deadline_is_told() {
    let mut times = [Duration::from_micros(200); LATENCY_SAMPLES];
    times[7] = Duration::from_millis(26);
    let slow = check_latency(times, Duration::from_millis(50));
    assert_eq!(slow.level, FindingLevel::Warning);
    assert_eq!(slow.found, "an answer takes 0.2 ms, at most 26.0 ms");
    assert!(slow.advice.unwrap().starts_with("store.deadline is 50 ms: raise it"));
    assert_eq!(check_latency(times, Duration::from_secs(1)).level, FindingLevel::Good);
}

#[test]
fn versions_are_compared_as_numbers() {
    for (info, level, found) in [
        ("redis_version:6.2.0\r\n", FindingLevel::Good, "Redis 6.2.0"),
        ("redis_version:10.0.1\r\n", FindingLevel::Good, "Redis 10.0.1"),
        ("redis_version:6.0.16\r\n", FindingLevel::Fault, "Redis 6.0.16"),
        ("redis_version:7.2.4\r\nvalkey_version:8.1.0\r\n", FindingLevel::Good, "Valkey 8.1.0"),
        ("", FindingLevel::Warning, "the server does not tell it"),
    ] {
        let finding = check_version(info);
        assert_eq!((finding.level, finding.found.as_str()), (level, found));
    }
}

#[test]
fn each_subject_of_a_cluster_is_told_whichever_server_has_it() {
    let good = |subject: &'static str| Finding::good(subject, "fine");
    let merged = merge_findings(vec![
        ("a:1".to_owned(), vec![good("version"), Finding::warning("slots", "it has none", "wait")]),
        ("b:1".to_owned(), vec![good("version"), good("memory"), good("replicas")]),
    ]);
    let subjects: Vec<&str> = merged.iter().map(|finding| &*finding.subject).collect();
    assert_eq!(subjects, ["version", "memory", "replicas", "slots"]);
    assert_eq!(merged[3].level, FindingLevel::Warning);
}
