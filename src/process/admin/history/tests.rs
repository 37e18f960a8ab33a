use super::*;

fn sample(at: i64, ok: u32, bucket: usize) -> Sample {
    let mut durations = [0; REQUEST_DURATION_BUCKETS.len() + 1];
    durations[bucket] = ok;
    let mut outcomes = [0; OUTCOMES.len()];
    outcomes[0] = ok;
    Sample { at, outcomes, verdicts: [0; Reason::ALL.len()], durations }
}

#[test]
fn a_day_is_shown_in_few_points_and_no_request_is_lost() {
    let samples: Vec<Sample> = (0..8_640).map(|n| sample(n * 10, 2, 3)).collect();
    let shown: Vec<&Sample> = samples.iter().collect();
    let json = render_samples(&shown, 24 * 60);
    let ok = json["requests"]["ok"].as_array().unwrap();
    assert!(ok.len() <= MAX_POINTS, "{}", ok.len());
    assert_eq!(ok.iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), 17_280);
    assert_eq!(json["interval_seconds"], 360);
    assert_eq!(json["latency_seconds"]["p99"].as_array().unwrap().len(), ok.len());
    assert!(json["requests"].get("internal_error").is_none());
}

#[test]
fn a_quantile_lies_in_its_bucket() {
    let (fast, slow) = (sample(0, 98, 0), sample(0, 2, 10));
    let both = [&fast, &slow];
    let median = estimate_quantile(&both, 0.5).unwrap();
    assert!(median > 0.0 && median <= REQUEST_DURATION_BUCKETS[0]);
    let high = estimate_quantile(&both, 0.99).unwrap();
    assert!(high > REQUEST_DURATION_BUCKETS[9] && high <= REQUEST_DURATION_BUCKETS[10], "{high}");
    let endless = sample(0, 1, REQUEST_DURATION_BUCKETS.len());
    assert_eq!(estimate_quantile(&[&endless], 0.5), Some(10.0));
    assert_eq!(estimate_quantile(&[&sample(0, 0, 0)], 0.5), None);
}
