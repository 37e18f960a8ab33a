use super::*;

/// The count of each domain, and of all forms without one.
fn read_counts(counts: &ScreeningCounts, action: &str) -> HashMap<Option<String>, u64> {
    let forms = counts.to_json();
    let forms = forms.as_array().unwrap().iter().filter(|form| form["action"] == action);
    let domain = |form: &Value| form["domain"].as_str().map(str::to_owned);
    forms.map(|form| (domain(form), form["count"].as_u64().unwrap())).collect()
}

#[test]
fn the_domains_that_are_counted_apart_are_limited_and_frequent_ones_stay() {
    let counts = ScreeningCounts::default();
    let metric = IntCounter::new("screened", "Forms.").unwrap();
    let count_form = |action, domain: &str| {
        counts.count_form("/a", action, "safe", Some(domain), || metric.clone());
    };
    let total = 3 * MAX_FORM_KINDS as u64;
    for number in 0..total {
        count_form("pass", &format!("n{number}.com"));
        if number % 100 == 0 {
            count_form("pass", "often.com");
        }
        assert!(read_len(&counts) <= MAX_FORM_KINDS + 1, "{number}");
    }
    let passed = read_counts(&counts, "pass");
    let sum: u64 = passed.values().sum();
    assert_eq!((sum, metric.get()), (total + total / 100, total + total / 100));
    assert_eq!(passed[&Some("often.com".to_owned())], total / 100, "a frequent domain stays");
    assert_eq!(passed[&Some(format!("n{}.com", total - 1))], 1, "the newest is named");
    // Domains that pass take no share of those that do not, and the other way round.
    count_form("block", "bad.com");
    for number in 0..total {
        count_form("pass", &format!("m{number}.com"));
    }
    assert_eq!(read_counts(&counts, "block"), [(Some("bad.com".to_owned()), 1)].into());
    assert!(read_len(&counts) <= MAX_FORM_KINDS + 2);
}

fn read_len(counts: &ScreeningCounts) -> usize {
    let counts = counts.0.lock().unwrap();
    counts.passed.len() + counts.others.len()
}
